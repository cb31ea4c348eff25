"""Killed or stopped while it merges diverted rows, a writer leaves each of them there once."""

from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sparklog.sink.quarantine.claims import store_part
from sparklog.sink.quarantine.diverted_rows import list_diverted
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.operation_fault_points import QUARANTINE_FAULT_POINTS
from tests.build.sink_store import contents, open_events
from tests.kill.harness import exit_code, wait_until_stopped, wake
from tests.kill.quarantine_job import MICRO_BATCHES, expected_rows, rows_of, start_diverting

pytestmark = pytest.mark.kill

_STEPS = (
    *QUARANTINE_FAULT_POINTS,
    *("quarantine.hidden:2", "quarantine.hidden:32", "quarantine.hidden:33", "quarantine.hidden:40"),
    *("quarantine.merged:2", "quarantine.shown:2", "quarantine.removed:2", "commit.quarantined:33"),
)


@pytest.mark.parametrize("step", _STEPS)
def test_merger_when_killed_at_a_step_then_no_row_is_twice_and_the_next_opening_has_each_once(
    context: ForkServerContext, memory_path: Path, step: str
) -> None:
    """Also before the next opening no row is twice; one that is hidden comes back with it."""
    store = memory_path / "store"
    assert exit_code(start_diverting(context, store, SPARKLOG_FAULT_POINT=step)) == -9
    assert max(rows_of(store).values(), default=1) == 1

    assert exit_code(start_diverting(context, store)) == 0

    assert rows_of(store) == expected_rows()
    query = store_part(store / "quarantine", Store.find(store)) / "query-query"
    assert [path.name for path in query.iterdir() if path.name.startswith("_")] == []
    assert len(list_diverted(query)) < MICRO_BATCHES // 2


@pytest.mark.parametrize("step", QUARANTINE_FAULT_POINTS)
def test_merger_when_stopped_and_replaced_by_force_then_changes_nothing_of_its_successors(
    context: ForkServerContext, memory_path: Path, step: str
) -> None:
    """The one that wakes up neither hides nor shows nor removes what the other one has finished by then."""
    store = memory_path / "store"
    old = start_diverting(context, store, SPARKLOG_FAULT_POINT=step, SPARKLOG_FAULT_SIGNAL="STOP")
    try:
        wait_until_stopped(old)
        assert exit_code(start_diverting(context, store, take_lock_by_force=True)) == 0
        before = contents(store / "quarantine")
        wake(old)
        assert exit_code(old) == 3
    finally:
        if not old._closed:  # type: ignore[attr-defined]
            old.kill()

    assert "WriterFencedError" in (memory_path / "store-error.txt").read_text()
    assert contents(store / "quarantine") == before
    assert rows_of(store) == expected_rows()


def test_opening_when_a_merger_was_killed_then_its_rows_are_there_before_anything_is_written(
    context: ForkServerContext, memory_path: Path
) -> None:
    """The opening finishes it."""
    store = memory_path / "store"
    assert exit_code(start_diverting(context, store, SPARKLOG_FAULT_POINT="quarantine.hidden:7")) == -9
    hidden = expected_rows(32) - rows_of(store)
    assert len(hidden) == 14

    open_events(store, on_invalid="quarantine").close()

    assert rows_of(store) == expected_rows(32)
