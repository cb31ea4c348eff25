"""Transactions that a broker wrote, over many small segments, as its consumers see them and as we read its files."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

import confluent_kafka
import pytest

from sparklog.storage_core.log.producers.transactions import Isolation
from sparklog.storage_core.log.read.log_reader import LogReader
from tests.kafka.broker import KafkaBroker, TopicSpec
from tests.kafka.consumed import read_with_confluent

pytestmark = pytest.mark.kafka

_TOPIC = "transactions.many-segments"
_TIMEOUT_S = 60.0
_ISOLATIONS: tuple[Isolation, ...] = get_args(Isolation)


@pytest.fixture(scope="module")
def directory(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The log of three producers' transactions and of plain records, copied from under the running broker."""
    config = {"retention.ms": -1, "internal.segment.bytes": 1500, "index.interval.bytes": 100}
    broker.create_topics(TopicSpec(name=_TOPIC, partitions=1, config=config))
    producers = [_producer(broker, name) for name in ("long", "short", "open")]
    plain = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    try:
        for turn in range(6):
            _write(producers, plain, turn)
        producers[2].begin_transaction()
        _send(producers[2], "left open")
        _send(plain, "behind the open one")
        source = broker.log_dir / f"{_TOPIC}-0"
        yield Path(shutil.copytree(source, tmp_path_factory.mktemp("copied") / source.name))
    finally:
        producers[2].abort_transaction(_TIMEOUT_S)


def _producer(broker: KafkaBroker, name: str) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": f"segments-{name}", "log_level": 3}
    )
    producer.init_transactions(_TIMEOUT_S)
    return producer


def _write(producers: list[confluent_kafka.Producer], plain: confluent_kafka.Producer, turn: int) -> None:
    """One long transaction over several segments, with short ones of another producer inside it."""
    long, short, other = producers
    long.begin_transaction()
    for number in range(4):
        _send(long, f"long {turn}")
        short.begin_transaction()
        _send(short, f"short {turn} {number}")
        _send(plain, f"plain {turn} {number}")
        _end(short, commits=number % 2 == 0)
    other.begin_transaction()
    _send(other, f"other {turn}")
    _end(long, commits=turn % 2 == 0)
    _end(other, commits=turn % 3 == 0)


def _send(producer: confluent_kafka.Producer, text: str) -> None:
    for number in range(5):
        producer.produce(_TOPIC, f"{text} {number}".encode() * 5, partition=0)
    left = producer.flush(_TIMEOUT_S)
    assert left == 0


def _end(producer: confluent_kafka.Producer, *, commits: bool) -> None:
    if commits:
        producer.commit_transaction(_TIMEOUT_S)
    else:
        producer.abort_transaction(_TIMEOUT_S)


@pytest.fixture(scope="module")
def seen(broker: KafkaBroker, directory: Path) -> Mapping[str, list[tuple[int, bytes | None]]]:
    """What a consumer of each isolation level gets from the broker."""
    return {
        isolation: [
            (each.offset, each.value)
            for each in read_with_confluent(broker.bootstrap, {_TOPIC: 1}, isolation)[_TOPIC, 0]
        ]
        for isolation in _ISOLATIONS
    }


def test_consumer_when_levels_differ_then_the_case_is_worth_it(
    seen: Mapping[str, list[tuple[int, bytes | None]]], directory: Path
) -> None:
    """The log has many segments, aborted transactions in several of them, and an open one."""
    assert len(list(directory.glob("*.log"))) > 8
    assert len(list(directory.glob("*.txnindex"))) > 3
    assert len(seen["read_committed"]) < len(seen["read_uncommitted"])
    assert seen["read_committed"][-1][0] < seen["read_uncommitted"][-1][0]


@pytest.mark.parametrize("removed", [(), ("*.txnindex",), ("*.txnindex", "*.snapshot", "*.index", "*.timeindex")])
@pytest.mark.parametrize("isolation", _ISOLATIONS)
def test_log_reader_when_broker_wrote_transactions_then_reads_what_its_consumer_reads(
    directory: Path,
    seen: Mapping[str, list[tuple[int, bytes | None]]],
    isolation: Isolation,
    removed: tuple[str, ...],
    tmp_path: Path,
) -> None:
    """Both isolation levels give the consumer's records, from every start, with indexes and without."""
    copy = Path(shutil.copytree(directory, tmp_path / directory.name))
    for path in [path for pattern in removed for path in copy.glob(pattern)]:
        path.unlink()
    reader = LogReader(copy)
    known = seen[isolation]

    for start in (0, known[len(known) // 3][0], known[-1][0]):
        batches = list(reader.read(start, isolation=isolation, chunk_bytes=400))
        offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
        values = [value for batch in batches for value in batch.column("value").to_pylist()]
        assert list(zip(offsets, values, strict=True)) == [each for each in known if each[0] >= start]


def test_last_stable_offset_when_transaction_is_open_then_the_end_that_a_consumer_is_told(
    broker: KafkaBroker, directory: Path, seen: Mapping[str, object]
) -> None:
    """The last stable offset is the end of a read_committed consumer's log."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "lso", "isolation.level": "read_committed"}
    )
    try:
        _, end = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(_TOPIC, 0), timeout=_TIMEOUT_S)
    finally:
        consumer.close()

    assert LogReader(directory).last_stable_offset == end
