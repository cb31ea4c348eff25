"""Where consumer groups stand in a cluster, and which record each log gives them next, as clients say."""

import time
import warnings
from collections.abc import Collection, Mapping

import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.kafka.consumed import Log

with warnings.catch_warnings():  # it reads its own resources in a way that Python 3.11 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka.structs import TopicPartition as KafkaPythonPartition

__all__ = ["NextRecords", "committed_offsets", "next_with_confluent", "next_with_kafka_python"]

_TIMEOUT_S = 60

NextRecords = Mapping[Log, tuple[int, bytes | None]]
"""Offset and value of a record of each log."""


def committed_offsets(admin: AdminClient, group: str, logs: Collection[Log]) -> dict[Log, int]:
    """Return what the cluster has of a group, once a broker that has just started has read it."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(*log) for log in logs])]
        try:
            answer = admin.list_consumer_group_offsets(asked)[group].result(_TIMEOUT_S)
            return {(each.topic, each.partition): each.offset for each in answer.topic_partitions}
        except confluent_kafka.KafkaException as error:
            loading = error.args[0].code() == confluent_kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS
            if not loading or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def next_with_confluent(bootstrap: str, group: str, logs: Collection[Log]) -> NextRecords:
    """Return the first record that each log gives the group, read by librdkafka; each must have one."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 10,
    }
    consumer = confluent_kafka.Consumer(settings)
    found: dict[Log, tuple[int, bytes | None]] = {}
    try:
        consumer.assign([TopicPartition(*log, confluent_kafka.OFFSET_STORED) for log in logs])
        deadline = time.monotonic() + _TIMEOUT_S
        while len(found) < len(logs):
            assert time.monotonic() < deadline, sorted(set(logs) - set(found))
            for message in consumer.consume(1000, timeout=0.1):
                assert message.error() is None, message.error()
                log = str(message.topic()), int(message.partition() or 0)
                found.setdefault(log, (int(message.offset() or 0), message.value()))
    finally:
        consumer.close()
    return found


def next_with_kafka_python(bootstrap: str, group: str, logs: Collection[Log]) -> NextRecords:
    """Return the same as `next_with_confluent`, read by kafka-python."""
    found: dict[Log, tuple[int, bytes | None]] = {}
    with kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False, auto_offset_reset="none"
    ) as consumer:
        consumer.assign([KafkaPythonPartition(*log) for log in logs])
        deadline = time.monotonic() + _TIMEOUT_S
        while len(found) < len(logs):
            assert time.monotonic() < deadline, sorted(set(logs) - set(found))
            for log, records in consumer.poll(timeout_ms=1000).items():
                found.setdefault((log.topic, log.partition), (records[0].offset, records[0].value))
    return found
