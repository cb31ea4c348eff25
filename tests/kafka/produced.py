"""Producers that know nothing of Sparklog."""

import warnings
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import confluent_kafka

from tests.kafka.toolbox import KafkaToolError

with warnings.catch_warnings():  # see consumed.py
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

__all__ = ["ProducedRecord", "produce_in_transactions", "produce_with_confluent", "produce_with_kafka_python"]

_TIMEOUT_S = 60.0
_BATCH_RECORDS = 20  # several batches, each of them smaller than the segments of the tests


class ProducedRecord(NamedTuple):
    """What a producer sends."""

    topic: str
    partition: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def produce_with_confluent(
    bootstrap: str, records: Iterable[ProducedRecord], settings: Mapping[str, object] = MappingProxyType({})
) -> None:
    """Send records through librdkafka's idempotent producer and wait for every acknowledgement.

    Args:
        settings: further ones of the producer.
    """
    own = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.num.messages": _BATCH_RECORDS}
    _send(confluent_kafka.Producer({**own, **settings}), records)


def produce_in_transactions(bootstrap: str, transactions: Iterable[tuple[Iterable[ProducedRecord], str]]) -> None:
    """Send records in transactions, one after another; the marker of each takes an offset of every partition.

    Args:
        bootstrap: the broker's address.
        transactions: records, and how their transaction ends: `commit` or `abort`.
    """
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": "judge",
            "log_level": 3,  # the first one to ask finds the coordinator still loading, and tries again
        }
    )
    producer.init_transactions(_TIMEOUT_S)
    ends = {"commit": producer.commit_transaction, "abort": producer.abort_transaction}
    for records, end in transactions:
        producer.begin_transaction()
        _send(producer, records)
        ends[end](_TIMEOUT_S)


def produce_with_kafka_python(bootstrap: str, records: Iterable[ProducedRecord]) -> None:
    """Send records through kafka-python's producer and wait for every acknowledgement."""
    with kafka.KafkaProducer(bootstrap_servers=bootstrap) as producer:
        sent = [
            producer.send(
                each.topic,
                each.value,
                each.key,
                headers=list(each.headers),
                partition=each.partition,
                timestamp_ms=each.timestamp,
            )
            for each in records
        ]
        for each in sent:
            each.get(timeout=_TIMEOUT_S)


def _send(producer: confluent_kafka.Producer, records: Iterable[ProducedRecord]) -> None:
    failures: list[object] = []
    for each in records:
        producer.produce(
            each.topic,
            each.value,
            each.key,
            each.partition,
            timestamp=each.timestamp,
            headers=list(each.headers),
            on_delivery=lambda error, _message: failures.append(error) if error is not None else None,
        )
    left = producer.flush(_TIMEOUT_S)
    if left or failures:
        raise KafkaToolError(f"{left} records without an answer, refused: {failures[:3]}")
