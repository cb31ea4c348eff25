"""A record as clients report it, and the two Python clients that report it; Java's is in `console.py`.

Both check CRCs, read uncommitted unless told otherwise, and start at the log's start offset.
"""

import time
import warnings
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import confluent_kafka

from tests.kafka.toolbox import KafkaToolError

with warnings.catch_warnings():  # it reads its own resources in a way that Python 3.11 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka.structs import TopicPartition as KafkaPythonPartition

__all__ = [
    "CREATE_TIME",
    "LOG_APPEND_TIME",
    "Consumed",
    "Log",
    "lookup_times_with_confluent",
    "lookup_times_with_kafka_python",
    "read_with_confluent",
    "read_with_kafka_python",
]

CREATE_TIME = 0
LOG_APPEND_TIME = 1

_TIMEOUT_S = 60.0

Log = tuple[str, int]
"""Topic and partition."""


class Consumed(NamedTuple):
    """One record, with everything a client can see of it.

    Attributes:
        timestamp: ms since the epoch; -1 none.
        timestamp_type: `CREATE_TIME` or `LOG_APPEND_TIME`.
        headers: in order, names may repeat, values may be None.
    """

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read_with_kafka_python(bootstrap: str, partitions: Mapping[str, int]) -> dict[Log, list[Consumed]]:
    """Return every record of the topics, read by kafka-python.

    Args:
        bootstrap: the broker's address.
        partitions: how many partitions each topic has.
    """
    logs = [KafkaPythonPartition(topic, number) for topic, count in partitions.items() for number in range(count)]
    found: dict[Log, list[Consumed]] = {(each.topic, each.partition): [] for each in logs}
    with kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="none", max_poll_records=5000
    ) as consumer:
        consumer.assign(logs)
        consumer.seek_to_beginning(*logs)
        ends = consumer.end_offsets(logs)
        open_logs = set(logs)
        idle = 0
        while open_logs := {each for each in open_logs if consumer.position(each) < ends[each]}:
            polled = consumer.poll(timeout_ms=1000)
            idle = 0 if polled else idle + 1
            if idle > _TIMEOUT_S:
                raise KafkaToolError(f"kafka-python reads no further in {sorted(open_logs)}")
            for log, records in polled.items():
                found[log.topic, log.partition] += [
                    Consumed(r.offset, r.timestamp, r.timestamp_type, r.key, r.value, _pairs(r.headers))
                    for r in records
                ]
    return found


def read_with_confluent(
    bootstrap: str, partitions: Mapping[str, int], isolation: str = "read_uncommitted"
) -> dict[Log, list[Consumed]]:
    """Return every record of the topics, read by librdkafka; see `read_with_kafka_python`."""
    found: dict[Log, list[Consumed]] = {
        (topic, number): [] for topic, count in partitions.items() for number in range(count)
    }
    consumer = confluent_kafka.Consumer(_librdkafka_settings(bootstrap) | {"isolation.level": isolation})
    try:
        consumer.assign(
            [confluent_kafka.TopicPartition(topic, number, confluent_kafka.OFFSET_BEGINNING) for topic, number in found]
        )
        open_logs = set(found)
        deadline = time.monotonic() + _TIMEOUT_S
        while open_logs:
            messages = consumer.consume(5000, timeout=0.05)  # the time it gathers for, not the time it may take
            if messages:
                deadline = time.monotonic() + _TIMEOUT_S
            elif time.monotonic() > deadline:
                raise KafkaToolError(f"librdkafka reads no further in {sorted(open_logs)}")
            for message in messages:
                log = str(message.topic()), int(message.partition() or 0)
                error = message.error()
                if error is None:
                    found[log].append(_consumed(message))
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    open_logs.discard(log)
                else:
                    raise KafkaToolError(f"librdkafka reads no further in {log}: {error}")
    finally:
        consumer.close()
    return found


def lookup_times_with_confluent(bootstrap: str, asked: Mapping[Log, int]) -> dict[Log, int | None]:
    """Return the offset of each log's first record at or after a time, None for none, as librdkafka says."""
    consumer = confluent_kafka.Consumer(_librdkafka_settings(bootstrap))
    try:
        query = [confluent_kafka.TopicPartition(*log, timestamp) for log, timestamp in asked.items()]
        answers = {(each.topic, each.partition): each for each in consumer.offsets_for_times(query, timeout=_TIMEOUT_S)}
    finally:
        consumer.close()
    failed = [each for each in answers.values() if each.error is not None]
    if failed:
        raise KafkaToolError(f"librdkafka finds no times: {failed}")
    return {log: None if answers[log].offset < 0 else answers[log].offset for log in asked}


def lookup_times_with_kafka_python(bootstrap: str, asked: Mapping[Log, int]) -> dict[Log, int | None]:
    """Return the same as `lookup_times_with_confluent`, as kafka-python says."""
    with kafka.KafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        answers = consumer.offsets_for_times({KafkaPythonPartition(*log): each for log, each in asked.items()})
    return {(log.topic, log.partition): None if answer is None else answer.offset for log, answer in answers.items()}


def _librdkafka_settings(bootstrap: str) -> dict[str, object]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "judge",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "check.crcs": True,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 10,
    }


def _consumed(message: confluent_kafka.Message) -> Consumed:
    kind, timestamp = message.timestamp()
    if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE:  # how librdkafka says "-1"
        kind, timestamp = confluent_kafka.TIMESTAMP_CREATE_TIME, -1
    offset = message.offset()
    headers = message.headers()
    assert offset is not None
    assert not isinstance(headers, dict)  # a shape that only producers take
    return Consumed(
        offset,
        timestamp,
        LOG_APPEND_TIME if kind == confluent_kafka.TIMESTAMP_LOG_APPEND_TIME else CREATE_TIME,
        message.key(),
        message.value(),
        _pairs(headers),
    )


def _pairs(headers: Iterable[tuple[str, str | bytes | None]] | None) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in headers or ())
