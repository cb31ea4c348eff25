"""Killed or cut off anywhere, a mirror ends where its source does: no end is committed without its micro-batch."""

from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sparklog.sink.ledger.ledger import Ledger
from sparklog.storage_core.fault_points import CHECKPOINT_FAULT_POINTS, FAULT_POINTS
from tests.kill.loop_disk import LoopDisk
from tests.kill.mirror_job import QUERY, finish_mirror, mirror, planned_ends, problems_of_mirror
from tests.kill.power_job import IS_LONG, cases, cut_at, finish

pytestmark = pytest.mark.kill

_UNDO = ("undo.deleted", "undo.cut")
_STEPS = [point for point in (*FAULT_POINTS, *CHECKPOINT_FAULT_POINTS) if point not in _UNDO]
_LATER = (
    *("stage.reported:5", "place.planned:2", "place.created:2", "place.created:9", "place.copied:3", "place.copied:9"),
    *("place.indexed:3", "place.indexed:9", "place.published:2", "place.published:9", "place.synced:2"),
    *("commit.quarantined:2", "commit.data:3", "commit.written:2", "commit.written:3", "commit.synced:3"),
    *("clean.derived:2", "clean.staging:3", "checkpoint.replaced:9"),
)
_DURABLE = ("place.published:2", "place.synced", "place.synced:2", "commit.written:3", "commit.synced:3")
"""Where the power is cut: behind batches without records, on a new log and on one that holds an end already."""


@pytest.mark.parametrize("step", [*_STEPS, *(_LATER if IS_LONG else ())])
def test_mirror_when_killed_at_a_step_then_its_ends_belong_to_whole_micro_batches(
    context: ForkServerContext, memory_path: Path, step: str
) -> None:
    """Each log ends where the last committed micro-batch was planned to; the next run brings all records, once."""
    store = memory_path / "store"
    assert finish_mirror(context, store, SPARKLOG_FAULT_POINT=step) == -9
    assert _wrong_ends(store) == []

    assert finish_mirror(context, store) == 0, (memory_path / "error.txt").read_text()

    assert problems_of_mirror(store) == []


@pytest.mark.parametrize("step", [f"{name}:{visit}" for name in _UNDO for visit in (1, 2)])
def test_mirror_when_killed_while_it_undoes_a_kill_then_its_third_run_ends_where_the_source_does(
    context: ForkServerContext, memory_path: Path, step: str
) -> None:
    """The batch that holds an end is cut off like all others, also in two goes."""
    store = memory_path / "store"
    assert finish_mirror(context, store, SPARKLOG_FAULT_POINT="place.synced:2") == -9
    assert finish_mirror(context, store, SPARKLOG_FAULT_POINT=step) == -9
    assert _wrong_ends(store) == []

    assert finish_mirror(context, store) == 0, (memory_path / "error.txt").read_text()

    assert problems_of_mirror(store) == []


@pytest.mark.parametrize(("disk", "step"), cases(_DURABLE), indirect=["disk"])
def test_mirror_when_the_power_goes_at_a_step_then_its_next_run_ends_where_the_source_does(
    context: ForkServerContext, disk: LoopDisk, step: str
) -> None:
    """An end is on the disk before its commit is, and is no longer there without it once the store was opened."""
    store = disk.folder / "store"
    cut_at(context, disk, step, mirror, store)

    finish(context, disk.folder, mirror, store)

    assert problems_of_mirror(store) == []


def _wrong_ends(store: Path) -> list[str]:
    """Return which logs of a killed job end elsewhere than the last micro-batch that counts was planned to."""
    if not any((store / "ledger" / "_delta_log").glob("*.json")):
        return []
    ledger = Ledger.open(store / "ledger")
    committed = ledger.transaction_version(QUERY)
    ends = planned_ends(-1 if committed is None else committed)
    states = ledger.states().items()
    return [str(log) for log, state in states if state.log_end_offset != ends[log.topic, log.partition]]
