"""Truncation of a store's logs: what is left, and what reads as if the rest had never been."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparklog.pipeline.checks.verify_logs import verify
from sparklog.pipeline.places.store_view import open_logs
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.lost_ranges import LostRange, LostRangeTable
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.opening.access import maintaining, writing
from sparklog.sink.operations.raise_offsets import raise_log_starts
from sparklog.sink.operations.truncate_logs import truncate_fully_and_start_at
from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.cleaner.hold_log import held_alone
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import OffsetOutOfRangeError, StoreLockedError, UnknownTopicError, WriterFencedError
from sparklog.storage_core.inspect.verify.findings import Finding
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.ledger_rows import unfinished
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import Stored, in_process, log_directories, open_store, read_store, rows
from tests.build.truncated import truncate_to

_LOG = TopicPartition("t", 0)
_TOPIC = {"segment.bytes": 600, "batch.size": 200, "index.interval.bytes": 100}
_COUNT = 100


def _open(path: Path, **options: Any) -> StoreWriter:
    return open_store(path, {"t": _TOPIC}, topic="t", **options)


def _rows(first: int, last: int) -> pa.RecordBatch:
    return rows(value=[f"{n:05}" for n in range(first, last)], timestamp=list(range(1000 + first, 1000 + last)))


@pytest.fixture
def path(memory_path: Path) -> Path:
    """A store with one log of a hundred records in several segments."""
    sink = _open(memory_path)
    sink.append("q", 0, in_process(_rows(0, _COUNT)))
    sink.close()
    return memory_path


def _state(path: Path) -> LogState:
    return Ledger.open(path / "ledger").states()[_LOG]


def _records(path: Path) -> list[Stored]:
    return read_store(path)["t-0"]


def _assert_sound(path: Path) -> None:
    found: list[Finding] = []
    verify(open_logs(path), found.append, deep=True)
    assert [str(each) for each in found if each.kind not in ("known", "nothing")] == []


@pytest.mark.parametrize("offset", range(0, _COUNT, 7))
def test_truncate_to_when_anywhere_then_what_is_before_stays_and_the_next_record_gets_that_offset(
    path: Path, offset: int
) -> None:
    """Whole batches stay; a batch that reaches across goes, and its offsets below are known to be lost."""
    before = _records(path)

    assert truncate_to(path, _LOG, offset, ManualClock(7))

    kept = _records(path)
    assert kept == before[: len(kept)]
    assert offset - 20 < len(kept) <= offset
    state = _state(path)
    assert state.log_start_offset == (0 if kept else offset)
    assert (state.log_end_offset, state.recovery_point) == (offset, offset)
    assert state.max_timestamp_ms == (kept[-1].timestamp if kept else -1)
    lost = LostRangeTable(path / "control" / "lost_ranges").read()
    assert [(each.first_offset, each.last_offset) for each in lost] == (
        [(len(kept), offset - 1)] if 0 < len(kept) < offset else []
    )
    _assert_sound(path)
    sink = _open(path)
    sink.append("q", 1, in_process(_rows(500, 520)))
    sink.close()
    assert [(each.offset, each.value) for each in _records(path)[len(kept) :]] == [
        (offset + n, f"{500 + n:05}".encode()) for n in range(20)
    ]
    _assert_sound(path)


@pytest.mark.parametrize("offset", [_COUNT, _COUNT + 5])
def test_truncate_to_when_at_the_end_or_above_then_nothing_changes(path: Path, offset: int) -> None:
    """There is nothing to drop, and a log does not grow by it."""
    before, version = _records(path), Ledger.open(path / "ledger").version

    assert not truncate_to(path, _LOG, offset, ManualClock())

    assert _records(path) == before
    assert Ledger.open(path / "ledger").version == version


@pytest.mark.parametrize("offset", [0, 30, _COUNT, 5000])
def test_truncate_fully_when_started_again_then_the_log_is_empty_and_starts_there(path: Path, offset: int) -> None:
    """Above or below where it was: old segments are gone, the next record gets the offset."""
    truncate_fully_and_start_at(path, _LOG, offset, ManualClock())

    state = _state(path)
    assert (state.log_start_offset, state.log_end_offset, state.max_timestamp_ms) == (offset, offset, -1)
    assert _records(path) == []
    assert [each.name for each in log_directories(path)["t-0"].glob("*.log")] == [f"{offset:020}.log"]
    _assert_sound(path)
    sink = _open(path)
    sink.append("q", 1, in_process(_rows(0, 3)))
    sink.close()
    assert [each.offset for each in _records(path)] == [offset, offset + 1, offset + 2]
    _assert_sound(path)


def test_truncate_to_when_below_the_first_segment_then_the_log_starts_there(path: Path) -> None:
    """A mirror that began at 1000 and is to go back to 400 has nothing that it could keep."""
    truncate_fully_and_start_at(path, _LOG, 1000, ManualClock())

    assert truncate_to(path, _LOG, 400, ManualClock()) is True

    assert (_state(path).log_start_offset, _state(path).log_end_offset) == (400, 400)
    _assert_sound(path)


def _leave_swap(path: Path) -> Path:
    """Take the name of the second segment away, as a cleaning does that stops in the middle; return its `.log`."""
    log = sorted(log_directories(path)["t-0"].glob("*.log"))[1]
    log.rename(f"{log}.swap")
    return log


@pytest.mark.parametrize("truncate", [truncate_to, truncate_fully_and_start_at])
def test_truncate_when_a_cleaning_stopped_half_way_then_its_segment_counts(
    path: Path, truncate: Callable[[Path, TopicPartition, int, Clock], object]
) -> None:
    """It would come back behind the cut once it has its name."""
    before, base = _records(path), int(_leave_swap(path).stem)

    truncate(path, _LOG, base + 10, ManualClock())

    kept = before[: len(_records(path))]
    assert _records(path) == kept
    assert len(kept) in ((0,) if truncate is truncate_fully_and_start_at else range(base, base + 11))
    assert list(log_directories(path)["t-0"].glob("*.swap")) == []
    _assert_sound(path)


@pytest.mark.parametrize("truncate", [truncate_to, truncate_fully_and_start_at])
def test_truncate_when_a_task_still_holds_the_log_then_refused_and_nothing_changes(
    path: Path,
    truncate: Callable[[Path, TopicPartition, int, Clock], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it has on its way can't be finished, and must not be passed over."""
    monkeypatch.setattr("sparklog.storage_core.cleaner.hold_log._PATIENCE_S", 0.0)
    log, version = _leave_swap(path), Ledger.open(path / "ledger").version

    with held_alone(log.parent), pytest.raises(StoreLockedError, match="still at work on this log"):
        truncate(path, _LOG, int(log.stem) + 10, ManualClock())

    assert Ledger.open(path / "ledger").version == version
    assert unfinished(path) == []


def test_truncate_to_when_losses_are_known_behind_then_they_are_forgotten(path: Path) -> None:
    """Other records will have these offsets, and their loss must not be excused; what is before the cut stays known."""
    table = LostRangeTable(path / "control" / "lost_ranges")
    known = {"topic": "t", "file": "f", "reason": "r", "found_ms": 1}
    table.add(
        [
            LostRange(partition=0, first_offset=2, last_offset=3, **known),  # type: ignore[arg-type]
            LostRange(partition=0, first_offset=40, last_offset=60, **known),  # type: ignore[arg-type]
            LostRange(partition=0, first_offset=80, last_offset=90, **known),  # type: ignore[arg-type]
            LostRange(partition=1, first_offset=80, last_offset=90, **known),  # type: ignore[arg-type]
        ]
    )
    kept_end = len(_records(path))
    truncate_to(path, _LOG, 50, ManualClock())

    left = {(each.partition, each.first_offset, each.last_offset) for each in table.read() if each.reason == "r"}
    assert left == {(0, 2, 3), (0, 40, 49), (1, 80, 90)}
    assert len(_records(path)) < kept_end


def test_truncate_to_when_it_does_not_fit_then_refused_and_nothing_changes(path: Path) -> None:
    """A negative offset, an unknown log, a store that somebody else writes."""
    with pytest.raises(OffsetOutOfRangeError, match="offset=-1"):
        truncate_to(path, _LOG, -1, ManualClock())
    with pytest.raises(UnknownTopicError, match="t-9"):
        truncate_fully_and_start_at(path, TopicPartition("t", 9), 0, ManualClock())
    sink = _open(path)
    with pytest.raises(StoreLockedError):
        truncate_to(path, _LOG, 5, ManualClock())
    sink.close()
    assert len(_records(path)) == _COUNT


@pytest.mark.parametrize(
    ("start", "offset", "expected"),
    [(100, 120, (100, [(100, 119)])), (130, 120, (120, [])), (20, 120, (20, [(40, 119)])), (100, 150, None)],
)
def test_truncate_to_when_the_log_starts_inside_then_it_starts_no_earlier(
    memory_path: Path, start: int, offset: int, expected: tuple[int, list[tuple[int, int]]] | None
) -> None:
    """Deleted records do not come back, and are not lost: only from the log's start on something can be."""
    with closing(open_store(memory_path, {"t": {"batch.size": 100_000}}, topic="t")) as sink:
        sink.append("q", 0, in_process(_rows(0, 40)))
        sink.append("q", 1, in_process(_rows(40, 150)))
    with maintaining(memory_path) as maintained:
        raise_log_starts(maintained.store, {_LOG: start}, ManualClock())

    assert truncate_to(memory_path, _LOG, offset, ManualClock(7)) == (expected is not None)

    state, lost = _state(memory_path), LostRangeTable(memory_path / "control" / "lost_ranges").read()
    if expected is not None:
        found = (state.log_start_offset, [(each.first_offset, each.last_offset) for each in lost])
        assert (state.log_end_offset, found) == (offset, expected)
    _assert_sound(memory_path)


def test_store_when_it_is_truncated_then_nobody_takes_it_by_force(path: Path) -> None:
    """Files are renamed and removed there: were the truncation to wake up late, it would hit a new owner's."""
    before = _records(path)
    with writing(path), pytest.raises(StoreLockedError, match=r"maintenance\.lock"):
        _open(path, take_lock_by_force=True)

    _open(path, take_lock_by_force=True).close()
    assert _records(path) == before


def test_writing_when_the_store_is_taken_between_both_locks_then_fenced_and_nothing_changes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes to the second lock late must not go on with a first one that is lost."""
    takers = []
    acquire = WriterLock.acquire

    def acquire_and_lose(lock_path: Path, **options: str) -> WriterLock:
        lock = acquire(lock_path, **options)
        if lock_path.name == "writer.lock":
            takers.append(WriterLock.take_by_force(lock_path))
        return lock

    version = Ledger.open(path / "ledger").version
    monkeypatch.setattr(WriterLock, "acquire", acquire_and_lose)

    with pytest.raises(WriterFencedError):
        truncate_to(path, _LOG, 50, ManualClock())

    assert Ledger.open(path / "ledger").version == version
    assert unfinished(path) == []
    takers[0].release()


def test_store_when_taken_by_force_then_what_a_maintenance_left_is_still_said(path: Path) -> None:
    """The lock is held for a moment only, and is no sign that somebody has looked after what its last owner left."""
    (path / "maintenance.lock").write_text('{"pid": 1}')
    _open(path, take_lock_by_force=True).close()
    assert WriterLock.owner_crashed(path / "maintenance.lock")

    with maintaining(path):
        pass
    _open(path, take_lock_by_force=True).close()
    assert not WriterLock.owner_crashed(path / "maintenance.lock")
