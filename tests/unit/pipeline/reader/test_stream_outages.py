"""Streams and frames over a store of which a disk is gone: an outage is no loss."""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from sparklog.pipeline.reader.data_source import KafkaLogSource
from sparklog.pipeline.reader.options import parse_options
from sparklog.pipeline.reader.stream_reader import KafkaLogStreamReader
from sparklog.storage_core.errors import LogDirOfflineError, StorageError
from tests.build.retained_store import COUNT, write_aged

_START, _END = {"aged": {"0": 0, "1": 0}}, {"aged": {"0": COUNT, "1": 0}}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with offsets 0 to 200 in one of two logs."""
    return write_aged(tmp_path / "store")


@contextmanager
def _offline(store: Path) -> Iterator[None]:
    gone = (store / "logs").rename(store.parent / "gone")
    yield
    gone.rename(store / "logs")


@contextmanager
def _unmounted(store: Path) -> Iterator[None]:
    with _offline(store):
        (store / "logs").mkdir()
        yield
        (store / "logs").rmdir()


def _reader(path: Path, **options: str) -> KafkaLogStreamReader:
    options = {"path": str(path), "startingOffsets": "earliest", "failOnDataLoss": "false", **options}
    return KafkaLogStreamReader(parse_options(options, "stream"))


def _offsets(reader: KafkaLogStreamReader, start: dict, end: dict) -> list[int]:  # type: ignore[type-arg]
    rows = [batch for task in reader.partitions(start, end) for batch in reader.read(task)]
    return [offset for batch in rows for offset in batch.column("offset").to_pylist()]


@pytest.mark.parametrize("outage", [_offline, _unmounted])
def test_stream_when_a_disk_goes_offline_before_a_planned_range_is_read_then_it_fails_and_comes_back_for_it(
    store: Path, outage: Callable[[Path], AbstractContextManager[None]]
) -> None:
    """A micro-batch that Spark has noted down is read whole or not at all, whatever data loss is to do."""
    reader = _reader(store)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert (start, end) == (_START, _END)

    with outage(store), pytest.raises(LogDirOfflineError, match=r"log directory is offline: .* log=aged-0"):
        _reader(store).partitions(start, end)

    assert _offsets(reader, start, end) == list(range(COUNT))


@pytest.mark.parametrize("outage", [_offline, _unmounted])
def test_task_when_its_disk_goes_offline_after_planning_then_it_fails(
    store: Path, outage: Callable[[Path], AbstractContextManager[None]]
) -> None:
    """A directory that can't be listed says nothing about its records: none is left out."""
    reader = _reader(store)
    tasks = reader.partitions(_START, _END)

    with outage(store), pytest.raises(StorageError, match="No such file or directory"):
        [list(reader.read(task)) for task in tasks]

    assert sum(batch.num_rows for task in tasks for batch in reader.read(task)) == COUNT


def test_stream_when_a_log_is_offline_then_it_waits_there_and_reads_on_later(store: Path) -> None:
    """While nothing can be read of a log no micro-batch passes over it, not even one with an end."""
    reader = _reader(store)
    kept = {"aged": {"0": 30, "1": 0}}

    with _offline(store):
        assert reader.latestOffset(kept, ReadAllAvailable()) == kept
        assert reader.partitions(kept, kept) == []
        reader.prepareForTriggerAvailableNow()
        assert reader.latestOffset(kept, ReadAllAvailable()) == kept

    after = _reader(store).latestOffset(kept, ReadAllAvailable())
    assert after == _END
    assert _offsets(reader, kept, after) == list(range(30, COUNT))


def test_stream_when_a_log_is_found_while_it_is_offline_then_it_is_taken_in_once_it_is_back(store: Path) -> None:
    """A log that nobody could read yet gets no offset, so that none of its records counts as read."""
    known = {"aged": {"1": 0}}
    reader = _reader(store)

    with _offline(store):
        assert reader.latestOffset(known, ReadAllAvailable()) == known

    assert _reader(store).latestOffset(known, ReadAllAvailable()) == _END


@pytest.mark.parametrize(
    ("starting", "start"),
    [
        (json.dumps({"aged": {"0": 150, "1": 0}}), 150),
        ("latest", COUNT),
        (json.dumps({"aged": {"0": -1, "1": -2}}), COUNT),
        ("earliest", 0),
    ],
)
def test_stream_when_it_starts_while_a_log_is_offline_then_it_starts_where_it_was_told(
    store: Path, starting: str, start: int
) -> None:
    """The ledger knows where a log starts and ends; only what can be read of it is nothing."""
    with _offline(store):
        reader = _reader(store, startingOffsets=starting)
        begin = reader.initialOffset()
        kept = reader.latestOffset(begin, ReadAllAvailable())
        assert kept == reader.latestOffset(kept, ReadAllAvailable()) == begin == {"aged": {"0": start, "1": 0}}

    after = _reader(store).latestOffset(kept, ReadAllAvailable())
    assert _offsets(_reader(store), kept, after) == list(range(start, COUNT))


def test_stream_when_a_time_has_to_be_looked_up_in_an_offline_log_then_it_does_not_start(store: Path) -> None:
    """Only the log itself knows its times."""
    options = {"path": str(store), "startingTimestamp": "1700000000000", "failOnDataLoss": "false"}
    reader = KafkaLogStreamReader(parse_options(options, "stream"))

    with _offline(store), pytest.raises(LogDirOfflineError):
        reader.initialOffset()


def test_frame_when_a_log_is_offline_then_the_others_are_read(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A frame may leave out what can't be read, and says so."""
    source = KafkaLogSource({"path": str(store), "failOnDataLoss": "false"})
    reader = source.reader(source.schema())

    with _offline(store), caplog.at_level(logging.WARNING):
        rows = [batch for task in reader.partitions() for batch in reader.read(task)]

    assert rows == []
    assert "a log directory is offline, skipping the log" in caplog.text
