"""Killed or stopped while it merges diverted rows, a writer leaves each of them there once."""

from collections import Counter
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from sink.quarantine import list_diverted, store_part
from sink.store import Store
from storage_core.operation_fault_points import QUARANTINE_FAULT_POINTS
from tests.kill.harness import exit_code, wait_until_stopped, wake
from tests.kill.quarantine_job import MICRO_BATCHES, start_diverting
from tests.sink_store import contents, open_events

pytestmark = pytest.mark.kill

_SCHEMA = pa.schema([("value", pa.binary())])
"""Given, for a folder whose files are all hidden has none."""

_STEPS = (
    *QUARANTINE_FAULT_POINTS,
    *("quarantine.hidden:2", "quarantine.hidden:32", "quarantine.hidden:33", "quarantine.hidden:40"),
    *("quarantine.merged:2", "quarantine.shown:2", "quarantine.removed:2", "commit.quarantined:33"),
)


def _rows(store: Path) -> Counter[str]:
    """Return what any reader of Parquet folders sees: names that begin with `_` are none of its business."""
    found = ds.dataset(store / "quarantine", format="parquet", schema=_SCHEMA).to_table(columns=["value"])
    return Counter(value.decode() for value in found.column("value").to_pylist())


def _expected(micro_batches: int) -> Counter[str]:
    return Counter(f"{number}/{row}" for number in range(micro_batches) for row in range(2))


@pytest.mark.parametrize("step", _STEPS)
def test_merger_when_killed_at_a_step_then_no_row_is_twice_and_the_next_opening_has_each_once(
    context: ForkServerContext, memory_path: Path, step: str
) -> None:
    """Also before the next opening no row is twice; one that is hidden comes back with it."""
    store = memory_path / "store"
    assert exit_code(start_diverting(context, store, SPARKLOG_FAULT_POINT=step)) == -9
    assert max(_rows(store).values(), default=1) == 1

    assert exit_code(start_diverting(context, store)) == 0

    assert _rows(store) == _expected(MICRO_BATCHES)
    query = store_part(store / "quarantine", Store.find(store)) / "query-query"
    assert [path.name for path in query.iterdir() if path.name.startswith("_")] == []
    assert len(list_diverted(query)) < MICRO_BATCHES // 2


@pytest.mark.parametrize("step", QUARANTINE_FAULT_POINTS)
def test_merger_when_stopped_and_replaced_by_force_then_changes_nothing_of_its_successors(
    context: ForkServerContext, memory_path: Path, step: str
) -> None:
    """The one that wakes up neither hides nor shows nor removes what the other one has finished by then."""
    store = memory_path / "store"
    environment = {"SPARKLOG_FAULT_POINT": step, "SPARKLOG_FAULT_SIGNAL": "STOP"}
    old = start_diverting(context, store, **environment)
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
    assert _rows(store) == _expected(MICRO_BATCHES)


def test_opening_when_a_merger_was_killed_then_its_rows_are_there_before_anything_is_written(
    context: ForkServerContext, memory_path: Path
) -> None:
    """The opening finishes it."""
    store = memory_path / "store"
    assert exit_code(start_diverting(context, store, SPARKLOG_FAULT_POINT="quarantine.hidden:7")) == -9
    hidden = _expected(32) - _rows(store)
    assert len(hidden) == 14

    open_events(store, on_invalid="quarantine").close()

    assert _rows(store) == _expected(32)
