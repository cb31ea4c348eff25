"""Micro-batches over a store, without Spark: what it would ask, in its order."""

import logging
import os
import pickle
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from sparklog.pipeline.reader.options import parse_options
from sparklog.pipeline.reader.stream_reader import KafkaLogStreamReader
from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.errors import OffsetOutOfRangeError
from tests.build.manual_clock import ManualClock
from tests.build.retained_store import COUNT, delete_records, write_aged
from tests.build.sink_store import in_process, open_store, rows
from tests.build.written_log import Batch, write_log

_TOPICS: dict[str, dict[str, object]] = {"t": {"partitions": 2}, "u": {"partitions": 1}}


class _Store:
    """A store that grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._batch = 0
        self._writer = self._open(_TOPICS)

    def write(self, topic: str, partition: int, count: int) -> None:
        values = [b"v"] * count
        self._writer.append(
            "q", self._batch, in_process(rows(topic=[topic] * count, partition=[partition] * count, value=values))
        )
        self._batch += 1

    def add_topic(self, name: str) -> None:
        self._writer.close()
        self._writer = self._open({**_TOPICS, name: {"partitions": 1}})

    def close(self) -> None:
        self._writer.close()

    def _open(self, topics: dict[str, dict[str, object]]) -> StoreWriter:
        return open_store(self.path, topics)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[_Store]:
    """A store with 100 records in t-0 and none elsewhere."""
    with closing(_Store(tmp_path / "store")) as store:
        store.write("t", 0, 100)
        yield store


def _reader(path: Path, clock: ManualClock | None = None, **options: str) -> KafkaLogStreamReader:
    options = {"path": str(path), "startingOffsets": "earliest", **options}
    return KafkaLogStreamReader(parse_options(options, "stream"), clock)


def _read(reader: KafkaLogStreamReader, start: dict, end: dict) -> dict[str, list[int]]:  # type: ignore[type-arg]
    found: dict[str, list[int]] = {}
    for task in reader.partitions(start, end):
        for batch in pickle.loads(pickle.dumps(reader)).read(pickle.loads(pickle.dumps(task))):
            for topic, partition, offset in zip(
                *(batch.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True
            ):
                found.setdefault(f"{topic}-{partition}", []).append(offset)
    return found


def test_stream_when_it_follows_a_store_then_each_record_comes_once(store: _Store) -> None:
    """Micro-batches continue where the one before ended; where nothing is new the end is the start."""
    reader = _reader(store.path)
    start = reader.initialOffset()
    assert start == {"t": {"0": 0, "1": 0}, "u": {"0": 0}}

    first = reader.latestOffset(start, ReadAllAvailable())
    assert first == {"t": {"0": 100, "1": 0}, "u": {"0": 0}}
    assert _read(reader, start, first) == {"t-0": list(range(100))}
    assert reader.latestOffset(first, ReadAllAvailable()) == first
    assert reader.partitions(first, first) == []

    store.write("t", 0, 5)
    store.write("u", 0, 3)
    second = reader.latestOffset(first, ReadAllAvailable())
    assert _read(reader, first, second) == {"t-0": list(range(100, 105)), "u-0": [0, 1, 2]}
    assert reader.reportLatestOffset() == second


def test_stream_when_it_starts_at_the_end_then_its_first_micro_batch_is_empty_and_keeps_the_start(
    store: _Store,
) -> None:
    """What is written between two attempts of the first micro-batch is not lost."""
    reader = _reader(store.path, startingOffsets="latest")
    start = reader.initialOffset()
    store.write("t", 0, 7)

    kept = reader.latestOffset(start, ReadAllAvailable())
    assert kept == start
    assert reader.latestOffset(kept, ReadAllAvailable())["t"]["0"] == 107

    store.write("t", 0, 1)
    again = _reader(store.path, startingOffsets="latest")
    assert again.initialOffset()["t"]["0"] == 108
    assert again.partitions(again.initialOffset(), kept) == []
    end = again.latestOffset(kept, ReadAllAvailable())
    assert _read(again, kept, end) == {"t-0": list(range(100, 108))}


def test_stream_when_a_limit_is_set_then_logs_share_it(store: _Store) -> None:
    """`maxOffsetsPerTrigger` is in proportion to what each log has; without a limit from Spark it does not count."""
    store.write("u", 0, 300)
    reader = _reader(store.path, maxOffsetsPerTrigger="40")
    start = reader.initialOffset()

    assert reader.getDefaultReadLimit() == ReadMaxRows(40)
    assert reader.latestOffset(start, ReadMaxRows(40)) == {"t": {"0": 10, "1": 0}, "u": {"0": 30}}
    assert reader.latestOffset(start, ReadAllAvailable()) == {"t": {"0": 100, "1": 0}, "u": {"0": 300}}


def test_stream_when_little_is_new_then_it_waits_but_not_for_ever(store: _Store) -> None:
    """`minOffsetsPerTrigger` puts a micro-batch off until `maxTriggerDelay` is over."""
    clock = ManualClock(10**12)
    reader = _reader(store.path, clock, minOffsetsPerTrigger="50", maxTriggerDelay="10s")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(50)
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first["t"]["0"] == 100

    store.write("t", 0, 49)
    assert reader.latestOffset(first, limit) == first
    store.write("t", 0, 1)
    second = reader.latestOffset(first, limit)
    assert second["t"]["0"] == 150
    store.write("t", 0, 1)
    assert reader.latestOffset(second, limit) == second
    clock.advance(10_000)
    assert reader.latestOffset(second, limit)["t"]["0"] == 151


def test_stream_when_the_wall_clock_is_set_back_then_waits_no_longer(store: _Store) -> None:
    """`maxTriggerDelay` counts what passed."""
    clock = ManualClock(10**12)
    reader = _reader(store.path, clock, minOffsetsPerTrigger="50", maxTriggerDelay="10s")
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    store.write("t", 0, 1)
    clock.set_wall(3_600_000)
    assert reader.latestOffset(first, limit) == first
    clock.set_wall(-7_200_000)
    clock.advance(10_000)

    assert reader.latestOffset(first, limit)["t"]["0"] == 101


def test_stream_when_only_what_is_available_is_wanted_then_it_ends_there(store: _Store) -> None:
    """Records and topics that come later are not for this run, and too few of them are no reason to wait."""
    reader = _reader(store.path, maxOffsetsPerTrigger="60", minOffsetsPerTrigger="50")
    reader.prepareForTriggerAvailableNow()
    store.write("t", 0, 10)
    store.add_topic("v")
    store.write("v", 0, 1)
    limit = reader.getDefaultReadLimit()

    ends = [reader.initialOffset()]
    while len(ends) < 2 or ends[-1] != ends[-2]:
        ends.append(reader.latestOffset(ends[-1], limit))

    assert [each["t"]["0"] for each in ends] == [0, 60, 100, 100]


def test_stream_when_a_topic_is_found_later_then_it_is_read_from_its_first_record(store: _Store) -> None:
    """A pattern takes new topics in, from their start; a start at the end of the logs is for a new query only."""
    reader = _reader(store.path, subscribePattern="[tv]", startingOffsets="latest")
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    store.add_topic("v")
    store.write("v", 0, 4)

    end = reader.latestOffset(start, ReadMaxRows(1000))

    assert end == {"t": {"0": 100, "1": 0}, "v": {"0": 4}}
    assert _read(reader, start, end) == {"v-0": [0, 1, 2, 3]}


def test_stream_when_a_log_is_gone_then_it_is_a_loss(store: _Store, caplog: pytest.LogCaptureFixture) -> None:
    """A topic that a checkpoint names and nobody has any more fails the query, or is left behind."""
    start, end = {"t": {"0": 0, "1": 0}, "gone": {"0": 7}}, {"t": {"0": 100, "1": 0}}

    with pytest.raises(OffsetOutOfRangeError, match=r"a log is missing: log=gone-0 offset=7 \(failOnDataLoss=false"):
        _reader(store.path).partitions(start, end)
    with caplog.at_level(logging.WARNING):
        assert _read(_reader(store.path, failOnDataLoss="false"), start, end) == {"t-0": list(range(100))}
    assert "a log is missing: log=gone-0" in caplog.text


@pytest.mark.parametrize(
    ("start", "end", "what", "left"),
    [
        (50, 120, "records are missing: log=t-0 offset=50 start=100", range(100, 120)),
        (100, 999, "the end of a log is missing: log=t-0 wanted_end=999 end=120", range(100, 120)),
        (115, 110, "a log ends below the offsets that were read: log=t-0 read=115 end=110", range(0)),
        (0, 120, "records are missing: log=t-0 offset=0 start=100", range(100, 120)),
    ],
    ids=["retention", "end", "went back", "retention before the first read"],
)
def test_stream_when_records_are_gone_then_it_is_a_loss(
    tmp_path: Path, start: int, end: int, what: str, left: range
) -> None:
    """What was to be read and is not there fails the query, or is passed over."""
    write_log(tmp_path / "t-0", [[Batch([0] * 20)]], start_offset=100)
    begin, until = {"t": {"0": start}}, {"t": {"0": end}}

    with pytest.raises(OffsetOutOfRangeError, match=what):
        _reader(tmp_path).partitions(begin, until)
    found = _read(_reader(tmp_path, failOnDataLoss="false"), begin, until)
    assert found.get("t-0", []) == list(left)


def test_stream_when_an_empty_log_gets_a_later_first_offset_then_nothing_was_lost(tmp_path: Path) -> None:
    """A mirror's log starts at its first record's offset; a limit does not count what never was."""
    with closing(open_store(tmp_path, {"m": {"partitions": 1}}, offsets="preserved")) as writer:
        reader = _reader(tmp_path, maxOffsetsPerTrigger="10")
        start = reader.initialOffset()
        writer.append(
            "q",
            0,
            in_process(rows(topic=["m"] * 30, partition=[0] * 30, offset=list(range(5000, 5030)), value=["v"] * 30)),
        )

        end = reader.latestOffset(start, ReadMaxRows(10))

        assert (start, end) == ({"m": {"0": 0}}, {"m": {"0": 5010}})
        assert _read(reader, start, end) == {"m-0": list(range(5000, 5010))}


def test_stream_when_asked_often_then_it_sees_each_commit(store: _Store) -> None:
    """A ledger that did not change is not read again, one that did always is."""
    reader = _reader(store.path)
    offset = reader.initialOffset()
    for number in range(30):
        store.write("t", 0, 1)
        offset = reader.latestOffset(offset, ReadAllAvailable())
        assert offset["t"]["0"] == 101 + number


@contextmanager
def _unreadable(path: Path) -> Iterator[None]:
    """A file that the system refuses to open, whoever asks."""
    kept = path.rename(path.with_suffix(".kept"))
    os.mknod(path, stat.S_IFSOCK | 0o600)
    yield
    kept.replace(path)


@contextmanager
def _torn(path: Path) -> Iterator[None]:
    """A file that ends inside a batch."""
    data = path.read_bytes()
    path.write_bytes(data[:300])
    yield
    path.write_bytes(data)


@contextmanager
def _half_copied(path: Path) -> Iterator[None]:
    """A file whose second half is not what it will be."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + b"\1" * (len(data) - len(data) // 2))
    yield
    path.write_bytes(data)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("damage", [_unreadable, _torn, _half_copied])
def test_stream_when_a_log_can_not_be_read_for_a_moment_then_nothing_comes_twice_or_is_missing(
    tmp_path: Path, damage: Callable[[Path], AbstractContextManager[None]], isolation: str
) -> None:
    """An end that is not certain takes no stream back, and a micro-batch that was planned is still read whole."""
    log = write_log(tmp_path / "t-0", [[Batch([0] * 10) for _ in range(4)] for _ in range(2)])
    options: dict[str, Any] = {"failOnDataLoss": "false", "kafka.isolation.level": isolation}
    reader = _reader(tmp_path, **options)
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadAllAvailable())
    assert first == {"t": {"0": 80}}

    with damage(log.batches[-1][0]):
        assert reader.latestOffset(first, ReadAllAvailable()) == first
        reader.prepareForTriggerAvailableNow()
        assert reader.latestOffset(first, ReadAllAvailable()) == first
        tasks = reader.partitions(start, first)

    assert reader.latestOffset(first, ReadAllAvailable()) == first
    rows = [batch for task in tasks for batch in reader.read(task)]
    assert [offset for batch in rows for offset in batch.column("offset").to_pylist()] == list(range(80))


def test_stream_when_a_log_certainly_ends_earlier_then_it_goes_back(tmp_path: Path) -> None:
    """A log that was cut, and can be read to its end, grows from there on."""
    log = write_log(tmp_path / "t-0", [[Batch([0] * 10) for _ in range(4)]])
    reader = _reader(tmp_path, failOnDataLoss="false")
    first = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    path, position, *_ = log.batches[-1]
    os.truncate(path, position)

    assert reader.latestOffset(first, ReadAllAvailable()) == {"t": {"0": 30}}


@pytest.mark.parametrize("read_before", [0, 30])
def test_stream_when_records_were_deleted_before_it_came_to_them_then_data_loss(
    tmp_path: Path, read_before: int
) -> None:
    """Retention beside a stream that stands below the new start is data loss, at offset 0 too."""
    store = write_aged(tmp_path / "store")
    reader, lenient = _reader(store), _reader(store, failOnDataLoss="false")
    start, end = {"aged": {"0": read_before, "1": 0}}, {"aged": {"0": COUNT, "1": 0}}
    assert _read(reader, start, end) == {"aged-0": list(range(read_before, COUNT))}

    delete_records(store, 50)

    with pytest.raises(OffsetOutOfRangeError, match="records are missing"):
        _read(reader, start, end)
    assert _read(lenient, start, end) == {"aged-0": list(range(50, COUNT))}
    assert _read(reader, {"aged": {"0": 50, "1": 0}}, end) == {"aged-0": list(range(50, COUNT))}
