"""A Kafka topic with gaps, mirrored through the Kafka source with its offsets preserved."""

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.kafka.broker import KafkaBroker, TopicSpec
from tests.kafka.consumed import CREATE_TIME, Consumed, Log, read_with_confluent, read_with_kafka_python
from tests.kafka.foreign import ForeignTopic, foreign_topics, mount
from tests.kafka.judge import judge_directory
from tests.kafka.mirrored import stream_mirror
from tests.kafka.ours import read_log
from tests.kafka.produced import ProducedRecord, produce_in_transactions, produce_with_confluent

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

_TRANSACTIONS, _COMPACTED, _APPEND_TIME = "gaps.transactions", "gaps.compacted", "gaps.append-time"
_SOURCES = dict.fromkeys((_TRANSACTIONS, _COMPACTED, _APPEND_TIME), 2)
_START_MS = 1_700_000_000_000
_KEYS = 7

_Logs = Mapping[Log, list[Consumed]]


@pytest.fixture(scope="module")
def source(broker: KafkaBroker) -> _Logs:
    """Topics with gaps: transaction markers and aborted records in two, what compaction removed in the third."""
    compaction = {
        "cleanup.policy": "compact",
        "internal.segment.bytes": 3000,
        "min.cleanable.dirty.ratio": 0.01,
        "retention.ms": -1,
    }
    broker.create_topics(
        TopicSpec(name=_TRANSACTIONS, partitions=2, config={"retention.ms": -1}),
        TopicSpec(name=_COMPACTED, partitions=2, config=compaction),
        TopicSpec(name=_APPEND_TIME, partitions=2, config={"message.timestamp.type": "LogAppendTime"}),
    )
    for turn in range(4):
        for topic in (_TRANSACTIONS, _APPEND_TIME):
            committed, aborted = _records(topic, turn, 15), _records(topic, turn, 9)
            produce_in_transactions(broker.bootstrap, [(committed, "commit"), (aborted, "abort")])
        produce_with_confluent(broker.bootstrap, _records(_TRANSACTIONS, turn, 5))
        produce_with_confluent(broker.bootstrap, _records(_COMPACTED, turn, 80))
    _await_compaction(broker)
    return read_with_confluent(broker.bootstrap, _SOURCES, isolation="read_committed")


@pytest.fixture(scope="module")
def mirror(broker: KafkaBroker, source: _Logs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of a store that mirrors the topics, in several micro-batches."""
    folder = tmp_path_factory.mktemp("mirror")
    topics = {
        name: {"partitions": partitions, "segment.bytes": 2000, "batch.size": 600, "compression.type": "zstd"}
        for name, partitions in _SOURCES.items()
    }
    return stream_mirror(folder, broker.bootstrap, topics, maxOffsetsPerTrigger=300)


def test_source_when_it_is_read_then_has_gaps(source: _Logs) -> None:
    """The source is worth mirroring: offsets jump at markers, aborted and compacted records, in every log."""
    for log, records in source.items():
        assert len(records) > 20, log
        assert records[-1].offset - records[0].offset >= len(records) + 3, log


def test_log_reader_when_a_topic_was_mirrored_then_reads_the_same_records(source: _Logs, mirror: Path) -> None:
    """Our reader finds the offsets, timestamps, keys, values and headers that the source's consumer saw."""
    found = {(topic, number): read_log(mirror / f"{topic}-{number}") for topic, number in source}

    assert found == {log: _as_mirrored(records) for log, records in source.items()}


def test_broker_when_it_serves_the_mirror_then_clients_read_the_same_records(
    broker: KafkaBroker, source: _Logs, mirror: Path
) -> None:
    """A broker that opens the mirror hands out what the source handed out."""
    topics = [ForeignTopic(name=f"mirror.{each.name}", directories=each.directories) for each in foreign_topics(mirror)]
    mount(broker, topics)
    expected = {(f"mirror.{topic}", number): _as_mirrored(records) for (topic, number), records in source.items()}
    counts = {f"mirror.{topic}": partitions for topic, partitions in _SOURCES.items()}

    assert read_with_confluent(broker.bootstrap, counts) == expected
    assert read_with_kafka_python(broker.bootstrap, counts) == expected


def test_dump_log_when_a_topic_was_mirrored_then_finds_nothing_but_gaps(broker: KafkaBroker, mirror: Path) -> None:
    """Batches and indexes of a log with gaps are sound."""
    verdict = judge_directory(mirror, broker.toolbox, gaps_allowed=True)

    assert verdict.findings == []
    assert verdict.gaps


def _as_mirrored(records: list[Consumed]) -> list[Consumed]:
    """Return records as a mirror holds them: the times of a LogAppendTime topic stay, as times that a producer gave."""
    return [each._replace(timestamp_type=CREATE_TIME) for each in records]


def _records(topic: str, turn: int, count: int) -> list[ProducedRecord]:
    """Return records for both partitions; times go back now and then."""
    return [
        ProducedRecord(
            topic,
            number % 2,
            _START_MS + turn * 100_000 + number * 1000 - (number % 5) * 3000,
            (f"lone {turn} {number}" if number % 13 == 0 else f"key {number // 2 % _KEYS}").encode(),
            None if number % 29 == 28 else f"turn {turn} number {number}".encode(),
            ((), (("trace", f"{number}".encode()),), (("trace", None), ("trace", b"\xff")))[number % 3],
        )
        for number in range(2 * count)
    ]


def _await_compaction(broker: KafkaBroker) -> None:
    """Wait until the log cleaner has left fewer than half of the records, then for it to come to rest."""
    deadline = time.monotonic() + 60
    counts = [10**9]
    while len(counts) < 3 or counts[-1] > 400 or len(set(counts[-3:])) > 1:
        assert time.monotonic() < deadline, f"the cleaner left {counts[-1]} records"
        time.sleep(0.3)
        logs = read_with_confluent(broker.bootstrap, {_COMPACTED: 2})
        counts.append(sum(map(len, logs.values())))
