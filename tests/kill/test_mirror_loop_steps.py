"""Killed anywhere, a mirror goes on at the ends that the ledger has: every record is there, once."""

from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sparklog.storage_core.fault_points import CHECKPOINT_FAULT_POINTS, FAULT_POINTS, GROUP_FAULT_POINTS
from tests.kill.mirror_loop_job import finish_loop, problems_of_loop, wrong_groups
from tests.kill.power_job import IS_LONG

pytestmark = pytest.mark.kill

_NOT_REACHED = ("undo.deleted", "undo.cut", "commit.quarantined")
_STEPS = [
    point for point in (*FAULT_POINTS, *GROUP_FAULT_POINTS, *CHECKPOINT_FAULT_POINTS) if point not in _NOT_REACHED
]
_LATER = (
    "stage.written:2",
    "place.published:2",
    "place.synced:2",
    "commit.data:3",
    "commit.synced:3",
    "clean.staging:2",
    "groups.written:2",
)


@pytest.mark.parametrize("step", [*_STEPS, *(_LATER if IS_LONG else _LATER[-2:])])
def test_mirror_loop_when_killed_at_a_step_then_its_next_run_has_the_sources_logs(
    context: ForkServerContext, memory_path: Path, step: str
) -> None:
    """Also where the first run has committed some micro-batches. Groups have offsets of a committed one, or none."""
    store = memory_path / "store"
    assert finish_loop(context, store, SPARKLOG_FAULT_POINT=step) == -9

    assert wrong_groups(store) == []
    assert finish_loop(context, store) == 0, (memory_path / "error.txt").read_text()

    assert problems_of_loop(store) == []
