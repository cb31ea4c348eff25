"""`sparklog read` beside retention: without an offset to start at it goes on as a consumer from the earliest offset."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.pipeline.places.store_view import LogView, open_logs
from sparklog.pipeline.verbs.read import read_records
from sparklog.storage_core.errors import OffsetOutOfRangeError
from tests.build.retained_store import COUNT, LOG, START_MS, aged_rows, delete_records, names, write_aged
from tests.build.sink_store import in_process, open_store

_Read = Iterator[tuple[LogView, pa.RecordBatch]]


@pytest.fixture
def store(memory_path: Path) -> Path:
    """A store with a log of several segments, of offsets 0 to 199."""
    return write_aged(memory_path / "store")


def _reading(store: Path, start_offset: int | None = None, start_time: int | None = None) -> _Read:
    view = open_logs(store)
    return read_records(view, [each for each in view.logs if each.log == LOG], start_offset, start_time, None)


def _grow_and_delete(store: Path, new_start: int) -> None:
    """Add 50 records, and let the log start at an offset."""
    topics = {LOG.topic: {"partitions": 2, "segment.bytes": 600, "file.delete.delay.ms": 0}}
    with closing(open_store(store, topics, topic=LOG.topic)) as writer:
        writer.append("q", 10, in_process(aged_rows(COUNT, COUNT + 50)))
    delete_records(store, new_start)


def _offsets(found: Iterable[tuple[LogView, pa.RecordBatch]]) -> list[int]:
    return [offset for _, batch in found for offset in batch.column("offset").to_pylist()]


def test_read_when_retention_overtakes_before_the_first_record_then_begins_at_the_new_start(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a consumer with `auto.offset.reset=earliest`; one line says which offsets were deleted."""
    found = _reading(store)
    delete_records(store, 150)

    assert _offsets(found) == list(range(150, COUNT))
    assert [(each.levelno, each.getMessage()) for each in caplog.records] == [
        (logging.WARNING, "Records were deleted before they were read: log=aged-0 offsets=0..149; continuing at 150")
    ]


@pytest.mark.parametrize("start_time", [None, START_MS + 1000])
def test_read_when_retention_overtakes_in_the_middle_then_goes_on_at_the_new_start(
    store: Path, caplog: pytest.LogCaptureFixture, start_time: int | None
) -> None:
    """No record is given twice, and each that is left is given."""
    found = _reading(store, start_time=start_time)
    before = _offsets([next(found)])
    delete_records(store, 150)

    after = _offsets(found)

    assert after == list(range(150, COUNT))
    assert f"log=aged-0 offsets={before[-1] + 1}..149" in caplog.text


def test_read_when_all_that_was_to_be_read_is_deleted_then_begins_at_the_new_start(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The new start may be above the end that the log had when reading began."""
    found = _reading(store)
    _grow_and_delete(store, COUNT + 30)

    assert _offsets(found) == list(range(COUNT + 30, COUNT + 50))
    assert f"log=aged-0 offsets=0..{COUNT + 29}" in caplog.text


@pytest.mark.parametrize("new_start", [150, COUNT + 10])
def test_read_when_records_are_deleted_before_a_time_is_looked_up_then_begins_at_the_new_start(
    store: Path, caplog: pytest.LogCaptureFixture, new_start: int
) -> None:
    """A record that is gone, and may have been the first one at that time, is not passed over in silence."""
    found = _reading(store, start_time=START_MS + 1000)
    _grow_and_delete(store, new_start)

    assert _offsets(found) == list(range(new_start, COUNT + 50))
    assert f"log=aged-0 offsets=0..{new_start - 1}; continuing at {new_start}" in caplog.text


@pytest.mark.parametrize("second", [180, COUNT + 20, COUNT + 1000])
def test_read_when_records_are_deleted_that_are_earlier_than_the_time_then_no_word_of_them(
    store: Path, caplog: pytest.LogCaptureFixture, second: int
) -> None:
    """Nobody wanted them: the first record that is left is earlier, too."""
    found = _reading(store, start_time=START_MS + 1000 * second)
    _grow_and_delete(store, 150 if second < COUNT else COUNT + 10)

    assert _offsets(found) == list(range(second, COUNT + 50))
    assert caplog.text == ""


def test_read_when_all_records_of_a_time_are_deleted_then_one_line_says_so(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An empty log gives nothing, but what was in it may have been as late."""
    found = _reading(store, start_time=START_MS + 1000)
    delete_records(store, COUNT)

    assert _offsets(found) == []
    assert f"offsets=0..{COUNT - 1}" in caplog.text


def test_read_when_an_offset_was_given_and_retention_overtakes_then_refused(store: Path) -> None:
    """Whoever names an offset wants that record."""
    found = _reading(store, 0)
    delete_records(store, 150)

    with pytest.raises(OffsetOutOfRangeError, match="offset 0 is gone"):
        _offsets(found)


def test_read_when_segments_are_gone_that_were_not_deleted_then_refused(store: Path) -> None:
    """The ledger says that the records should be there: that is damage."""
    found = _reading(store)
    (store / "logs" / "aged-0" / names(store)[0]).unlink()

    with pytest.raises(OffsetOutOfRangeError, match="offset 0 is gone"):
        _offsets(found)
