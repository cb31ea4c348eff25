"""Killed at a named step and started again, a cleaning leaves what an undisturbed one does."""

import shutil
from contextlib import closing
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.opening.access import MAINTENANCE_LOCK, MaintainedStore
from sparklog.sink.opening.finish_cleanings import finish_cleanings
from sparklog.sink.operations.clean_logs import clean_logs, plan_cleanings
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.operation_fault_points import CLEANER_FAULT_POINTS
from tests.build.compacted_store import (
    BUDGET,
    LOG,
    NOW_MS,
    SETTINGS,
    clean,
    expected_offsets,
    keyed_rows,
    offsets,
    write_keyed,
)
from tests.build.manual_clock import ManualClock
from tests.build.retained_store import state_of
from tests.build.sink_store import in_process, open_store
from tests.kill.cleaner_job import finish_cleaning, start_cleaning
from tests.kill.harness import exit_code, wait_until_stopped, wake
from tests.sparklog_command import Sparklog

pytestmark = pytest.mark.kill

_TWO_GROUPS = {"segment.bytes": 900}
_STEPS = [
    "clean.announced",
    *(f"{step}:{visit}" for step in CLEANER_FAULT_POINTS[1:-1] for visit in (1, 2)),
    "clean.checkpoint",
]


@pytest.mark.parametrize("step", _STEPS)
def test_cleaning_when_killed_at_a_step_then_whole_and_the_second_one_completes_it(
    context: ForkServerContext, memory_path: Path, sparklog: Sparklog, step: str
) -> None:
    """At each moment the log has the last record of each key; the second run leaves what one run does."""
    store = _write(memory_path / "store")
    undisturbed = Path(shutil.copytree(store, memory_path / "undisturbed"))
    clean(undisturbed)

    assert finish_cleaning(context, store, SPARKLOG_FAULT_POINT=step) == -9
    assert set(expected_offsets(_cleaned_below(store), 300)) <= set(offsets(store))
    assert finish_cleaning(context, store) == 0

    assert offsets(store) == offsets(undisturbed)
    assert _on_their_way(store) == []
    assert sparklog("verify", store).code == 0, sparklog("verify", store).out


def test_cleaning_when_killed_after_its_announcement_then_marked_and_nothing_is_lost(
    context: ForkServerContext, memory_path: Path
) -> None:
    """The mark is durable before the first record goes; a mark without a cleaning does no harm."""
    store = _write(memory_path / "store")
    before = offsets(store)

    assert finish_cleaning(context, store, SPARKLOG_FAULT_POINT="clean.announced") == -9

    assert state_of(store, LOG).compacted_offset == _cleaned_below(store)
    assert offsets(store) == before


@pytest.mark.parametrize(
    ("killed_at", "step"),
    [("clean.cleaned", "load.dropped"), ("clean.swap", "load.replaced"), ("clean.deleted", "load.renamed")],
)
def test_cleaning_when_finishing_is_killed_too_then_the_third_one_completes_it(
    context: ForkServerContext, memory_path: Path, sparklog: Sparklog, killed_at: str, step: str
) -> None:
    """What finishes or undoes a cleaning may be killed as well."""
    store = _write(memory_path / "store")
    with closing(open_store(store, {LOG.topic: {**SETTINGS, "segment.bytes": 1 << 20}}, topic=LOG.topic)):
        pass  # from now on all closed segments become one
    undisturbed = Path(shutil.copytree(store, memory_path / "undisturbed"))
    clean(undisturbed)

    assert finish_cleaning(context, store, SPARKLOG_FAULT_POINT=killed_at) == -9
    assert finish_cleaning(context, store, SPARKLOG_FAULT_POINT=step) == -9
    assert set(expected_offsets(_cleaned_below(store), 300)) <= set(offsets(store))
    assert finish_cleaning(context, store) == 0

    assert offsets(store) == offsets(undisturbed)
    assert _on_their_way(store) == []
    assert sparklog("verify", store).code == 0


@pytest.mark.parametrize("step", CLEANER_FAULT_POINTS)
def test_sink_when_a_cleaning_was_killed_then_goes_on_at_the_end(
    context: ForkServerContext, memory_path: Path, step: str
) -> None:
    """A sink that opens the store next appends where the log ended, and loses no live key."""
    store = _write(memory_path / "store")
    assert finish_cleaning(context, store, SPARKLOG_FAULT_POINT=step) == -9
    active = _cleaned_below(store)

    with closing(open_store(store, {LOG.topic: {**SETTINGS, **_TWO_GROUPS}}, topic=LOG.topic)) as writer:
        writer.append("q", 99, in_process(keyed_rows(300, 320)))

    assert set(expected_offsets(active, 320)) <= set(offsets(store))
    assert finish_cleaning(context, store) == 0
    assert offsets(store) == expected_offsets(_cleaned_below(store), 320)


@pytest.mark.parametrize("step", CLEANER_FAULT_POINTS)
def test_reader_when_it_reads_what_a_killed_cleaning_left_then_each_record_at_most_once(
    context: ForkServerContext, memory_path: Path, step: str
) -> None:
    """Offsets rise, and nothing is lost, whether the reader came before or after."""
    store = _write(memory_path / "store")
    directory = store / "logs" / LOG.directory_name
    early = LogReader(directory, log_start_offset=0, log_end_offset=300, last_stable_offset=300)
    batches = early.read(0, chunk_bytes=256)
    first = next(batches).column("offset").to_pylist()
    assert finish_cleaning(context, store, SPARKLOG_FAULT_POINT=step) == -9

    read = [*first, *(offset for batch in batches for offset in batch.column("offset").to_pylist())]
    for found in (read, offsets(store)):
        assert found == sorted(set(found))
        assert set(expected_offsets(_cleaned_below(store), 300)) <= set(found)


@pytest.mark.parametrize("step", ["clean.cleaned", "clean.swap", "clean.deleted", "clean.renamed"])
def test_cleaner_when_it_was_suspended_and_lost_the_store_then_the_log_waits_and_it_swaps_nothing_any_more(
    context: ForkServerContext, memory_path: Path, sparklog: Sparklog, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one takes the lock by force and is refused the log; the first wakes up, and leaves every name alone."""
    monkeypatch.setattr("sparklog.storage_core.cleaner.hold_log._PATIENCE_S", 0.0)
    store = _write(memory_path / "store")
    process = start_cleaning(context, store, SPARKLOG_FAULT_POINT=step, SPARKLOG_FAULT_SIGNAL="STOP")
    wait_until_stopped(process)
    before = _names(store)
    lock = WriterLock.take_by_force(store / MAINTENANCE_LOCK)
    clock, maintained = ManualClock(NOW_MS), MaintainedStore(Store.find(store), lock)
    plans = plan_cleanings(maintained.store, {}, clock)
    refused = list(clean_logs(maintained, plans, BUDGET, clock))
    assert [row.outcome for row in refused] == ["failed"] * len(refused)
    assert all("still at work on this log" in row.reason for row in refused)
    assert _names(store) == before
    wake(process)

    assert exit_code(process) == 3
    assert "by force" in store.with_name(f"{store.name}-error.txt").read_text()
    assert _names(store) == before
    finish_cleanings(maintained.store, lock)
    rows = list(clean_logs(maintained, plan_cleanings(maintained.store, {}, clock), BUDGET, clock))
    assert [row.outcome for row in rows] == ["cleaned"]
    assert offsets(store) == expected_offsets(_cleaned_below(store), 300)
    lock.sign_off()
    lock.release()
    assert sparklog("verify", store).code == 0


def _names(store: Path) -> set[str]:
    """Return the names in the log that count: what somebody gave up and nobody swapped may go."""
    names = {path.name for path in (store / "logs" / LOG.directory_name).iterdir()}
    return {name for name in names if not name.endswith(".cleaned")}


def _write(store: Path) -> Path:
    return write_keyed(store, _TWO_GROUPS, count=300)


def _cleaned_below(store: Path) -> int:
    return state_of(store, LOG).active_base_offset


def _on_their_way(store: Path) -> list[str]:
    """Return replacements that are neither finished nor undone; a segment's files are all there or none of them is."""
    directory = store / "logs" / LOG.directory_name
    found = {path.name.split(".", 1)[0]: set[str]() for path in directory.glob("0*")}
    for path in directory.glob("0*"):
        found[path.name.split(".", 1)[0]].add(path.name.split(".", 1)[1])
    left = [str(path.name) for path in directory.iterdir() if path.suffix in (".cleaned", ".swap")]
    in_part = [base for base, kinds in found.items() if 0 < len(kinds & {"log", "index", "timeindex"}) < 3]
    return [*left, *in_part]
