"""A truncation that is killed at any step never happened, or is finished by the next opening for writing."""

import shutil
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sparklog.pipeline.brokers.truncate import execute_truncation
from sparklog.pipeline.checks.verify_logs import verify
from sparklog.pipeline.places.store_view import open_logs
from sparklog.pipeline.verbs.repair import RepairOptions, execute_repair
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.lost_ranges import LostRange, LostRangeTable
from sparklog.sink.opening.access import keep_maintenance_out, maintaining
from sparklog.sink.operations.raise_offsets import raise_log_starts
from sparklog.sink.operations.truncate_logs import truncate_fully_and_start_at
from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import StoreLockedError
from sparklog.storage_core.inspect.verify.findings import Finding
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.ledger_rows import unfinished
from tests.build.sink_store import in_process, open_store, read_log, rows
from tests.build.truncated import truncate_to
from tests.kill.directory_job import finish

pytestmark = pytest.mark.kill

_ACROSS, _GAP, _START, _BATCHES = (TopicPartition(topic, 0) for topic in ("across", "gap", "start", "batches"))
_TOPICS: dict[str, dict[str, object]] = {
    "across": {"segment.bytes": 600, "batch.size": 200},
    "gap": {"batch.size": 100_000},
    "start": {"batch.size": 100_000},
    "batches": {"segment.bytes": 600, "batch.size": 200},
}
_DISK = "disk"
_BEFORE = ("checkpoint.replaced", "commit.data")


@dataclass(frozen=True)
class _Ends:
    """Where a log starts and ends, and which of its offsets are known to be lost."""

    start: int
    end: int
    lost: frozenset[tuple[int, int | None]] = frozenset()


_UNTOUCHED = {
    _ACROSS: _Ends(0, 100, frozenset({(70, 75)})),
    _GAP: _Ends(0, 60),
    _START: _Ends(100, 150),
    _BATCHES: _Ends(0, 100),
}
_TRUNCATED = {
    _ACROSS: _Ends(0, 50, frozenset({(44, 49)})),
    _GAP: _Ends(0, 40),
    _START: _Ends(100, 120, frozenset({(100, 119)})),
    _BATCHES: _Ends(20, 20),
}


def _truncate_across(store: Path) -> None:
    truncate_to(store, _ACROSS, 50, SystemClock())


def _truncate_into_a_gap(store: Path) -> None:
    truncate_to(store, _GAP, 40, SystemClock())


def _truncate_behind_the_start(store: Path) -> None:
    truncate_to(store, _START, 120, SystemClock())


def _empty(store: Path) -> None:
    truncate_fully_and_start_at(store, _BATCHES, 20, SystemClock())


_CASES = {
    _ACROSS: _truncate_across,
    _GAP: _truncate_into_a_gap,
    _START: _truncate_behind_the_start,
    _BATCHES: _empty,
}


def _open(store: Path) -> StoreWriter:
    return open_store(store, _TOPICS, offsets="preserved", log_dirs=(_DISK,))


def _open_and_close(store: Path) -> None:
    _open(store).close()


def _append(store: Path, batch_id: int, log: TopicPartition, offsets: range) -> None:
    frame = rows(topic=[log.topic] * len(offsets), offset=list(offsets), value=[f"{n:05}" for n in offsets])
    with closing(_open(store)) as writer:
        writer.append("q", batch_id, in_process(frame))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store whose logs lie on a disk: small batches, a gap, a start inside a batch, a loss that is known."""
    store = tmp_path_factory.mktemp("written") / "store"
    appended = (
        (_ACROSS, 0, 100),
        (_GAP, 0, 10),
        (_GAP, 50, 60),
        (_START, 0, 40),
        (_START, 40, 150),
        (_BATCHES, 0, 100),
    )
    for batch_id, (log, first, last) in enumerate(appended):
        _append(store, batch_id, log, range(first, last))
    with maintaining(store) as maintained:
        raise_log_starts(maintained.store, {_START: 100}, SystemClock())
    known = {"topic": "across", "partition": 0, "file": "f", "reason": "r", "found_ms": 1}
    _lost_table(store).add([LostRange(first_offset=70, last_offset=75, **known)])  # type: ignore[arg-type]
    return store


@pytest.fixture
def store(written: Path, memory_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(written, memory_path / "store"))


def _lost_table(store: Path) -> LostRangeTable:
    return LostRangeTable(store / "control" / "lost_ranges")


def _ends(store: Path, log: TopicPartition) -> _Ends:
    state = Ledger.open(store / "ledger").states()[log]
    lost = [each for each in _lost_table(store).read() if each.topic == log.topic]
    return _Ends(
        state.log_start_offset, state.log_end_offset, frozenset((each.first_offset, each.last_offset) for each in lost)
    )


def _assert_sound(store: Path) -> None:
    found: list[Finding] = []
    verify(open_logs(store), found.append, deep=True)
    wrong = [each for each in found if each.kind not in ("known", "nothing")]
    assert [str(each) for each in wrong if (each.kind, each.log) != ("gap", str(_GAP))] == []
    assert unfinished(store) == []


def _assert_goes_on(store: Path, log: TopicPartition, batch_id: int = 90) -> None:
    """The next record gets the offset at which the log ends; the log's offsets rise."""
    end = _ends(store, log).end
    _append(store, batch_id, log, range(end, end + 3))
    _assert_sound(store)
    offsets = [each.offset for each in read_log(store / _DISK / str(log))]
    assert offsets[-3:] == [end, end + 1, end + 2]
    assert offsets == sorted(set(offsets))


_STEPS = [
    ("checkpoint.replaced", _ACROSS),
    ("commit.data", _ACROSS),
    ("commit.written", _ACROSS),
    *(("truncate.committed", log) for log in _CASES),
    ("undo.deleted", _ACROSS),
    ("undo.cut", _START),
    *((step, log) for step in ("truncate.filled", "truncate.epochs") for log in _CASES),
    ("commit.data:2", _GAP),
    ("commit.synced:2", _GAP),
    *(("truncate.finished", log) for log in _CASES),
]


@pytest.mark.parametrize(("step", "log"), _STEPS, ids=str)
def test_truncation_when_killed_at_a_step_then_it_never_happened_or_the_next_opening_finishes_it(
    context: ForkServerContext, store: Path, step: str, log: TopicPartition
) -> None:
    """Start, end and known losses are those of before or those of after; never a mixture."""
    assert finish(context, _CASES[log], store, SPARKLOG_FAULT_POINT=step) == -9

    assert finish(context, _open_and_close, store) == 0

    assert _ends(store, log) == (_UNTOUCHED if step in _BEFORE else _TRUNCATED)[log]
    _assert_sound(store)
    if log == _BATCHES:
        assert [each.name for each in (store / _DISK / "batches-0").glob("*.log")] == [f"{20:020}.log"]
    _assert_goes_on(store, log)


_LOAD = {_ACROSS: 50, _GAP: 40, _START: 120, _BATCHES: 0}


def _take_a_load_back(store: Path) -> None:
    execute_truncation(store, lambda _ledger: _LOAD, SystemClock())


_LOAD_STEPS = [
    *_BEFORE,
    "commit.written",
    "commit.synced",
    "truncate.committed",
    *(f"{step}:{visit}" for step in ("undo.deleted", "undo.cut") for visit in (1, 2)),
    *(f"{step}:{visit}" for step in ("truncate.filled", "truncate.epochs") for visit in (1, 2, 4)),
    "commit.written:2",
    "truncate.finished",
]


@pytest.mark.parametrize("step", _LOAD_STEPS)
def test_truncation_of_a_load_when_killed_at_a_step_then_all_logs_end_at_the_cut_or_none(
    context: ForkServerContext, store: Path, step: str
) -> None:
    """One commit takes a load back on all logs; the next opening carries it out on each."""
    assert finish(context, _take_a_load_back, store, SPARKLOG_FAULT_POINT=step) == -9

    assert finish(context, _open_and_close, store) == 0

    found = {log: _ends(store, log) for log in _LOAD}
    emptied = {_BATCHES: _Ends(0, 0)}
    assert found == (_UNTOUCHED if step in _BEFORE else _TRUNCATED | emptied)
    epochs = {state.leader_epoch for state in Ledger.open(store / "ledger").states().values()}
    assert epochs == ({0} if step in _BEFORE else {1})
    _assert_sound(store)
    for batch_id, log in enumerate(_LOAD, 90):
        _assert_goes_on(store, log, batch_id)


@pytest.mark.parametrize("step", ["truncate.filled", "truncate.finished"])
@pytest.mark.parametrize("log", _CASES, ids=str)
def test_truncation_when_the_opening_that_finishes_it_is_killed_too_then_the_third_one_finishes(
    context: ForkServerContext, store: Path, log: TopicPartition, step: str
) -> None:
    """Each step can be done again: nothing is written down twice."""
    assert finish(context, _CASES[log], store, SPARKLOG_FAULT_POINT="truncate.committed") == -9
    assert finish(context, _open_and_close, store, SPARKLOG_FAULT_POINT=step) == -9

    assert finish(context, _open_and_close, store) == 0

    assert _ends(store, log) == _TRUNCATED[log]
    assert len(_lost_table(store).read()) == len({each.place for each in _lost_table(store).read()})
    _assert_goes_on(store, log)


@pytest.mark.parametrize("log", [_ACROSS, _BATCHES], ids=str)
def test_truncation_when_its_disk_is_offline_meanwhile_then_finished_once_it_is_back(
    context: ForkServerContext, store: Path, log: TopicPartition
) -> None:
    """A store that is closed well in between does not forget what it owes the disk."""
    _append_elsewhere(store, 80)
    assert finish(context, _CASES[log], store, SPARKLOG_FAULT_POINT="truncate.committed") == -9
    (store / _DISK).rename(store / "unplugged")
    _append_elsewhere(store, 81)
    _append_elsewhere(store, 82)
    assert _ends(store, log) != _UNTOUCHED[log]
    (store / "unplugged").rename(store / _DISK)

    _open_and_close(store)

    assert _ends(store, log) == _TRUNCATED[log]
    _assert_goes_on(store, log)


def _append_elsewhere(store: Path, batch_id: int) -> None:
    topics: dict[str, dict[str, object]] = {"elsewhere": {}}
    with closing(open_store(store, topics, topic="elsewhere", log_dirs=("logs", _DISK))) as writer:
        writer.append("q", batch_id, in_process(rows(value=["x"])))


@pytest.mark.parametrize("log", _CASES, ids=str)
def test_truncation_when_killed_and_the_store_is_repaired_then_the_repair_finishes_it(
    context: ForkServerContext, store: Path, log: TopicPartition
) -> None:
    """A repair is an opening, too, and takes nothing that was cut off for a loss."""
    assert finish(context, _CASES[log], store, SPARKLOG_FAULT_POINT="truncate.committed") == -9

    execute_repair(store, RepairOptions(), SystemClock(), lambda _step: None)

    assert _ends(store, log) == _TRUNCATED[log]
    _open_and_close(store)
    assert _ends(store, log) == _TRUNCATED[log]


def test_truncation_when_a_maintenance_runs_then_a_sink_that_has_to_finish_it_waits(
    context: ForkServerContext, store: Path
) -> None:
    """A truncation needs both locks, also its end: a cleaner could bring back what is cut off."""
    assert finish(context, _truncate_across, store, SPARKLOG_FAULT_POINT="truncate.committed") == -9
    with keep_maintenance_out(store):
        with pytest.raises(StoreLockedError, match="another maintenance run"):
            _open(store)
        assert len(unfinished(store)) == 1

    _open_and_close(store)

    assert _ends(store, _ACROSS) == _TRUNCATED[_ACROSS]
