"""Killed at a named step and started again, a job leaves exactly its input."""

from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sparklog.storage_core.fault_points import FAULT_POINTS
from tests.kill.harness import finish_direct
from tests.kill.records import problems_of, read_input

pytestmark = pytest.mark.kill

_UNDO = ("undo.deleted", "undo.cut")
_FIRST = [point for point in FAULT_POINTS if point not in _UNDO]
_LATER = (
    "stage.started:3",
    "stage.written:4",
    "stage.reported:5",
    "place.planned:2",
    "place.planned:3",
    "place.created:2",
    "place.created:9",
    "place.copied:2",
    "place.copied:9",
    "place.indexed:2",
    "place.indexed:9",
    "place.published:2",
    "place.published:9",
    "place.synced:2",
    "place.synced:3",
    "commit.quarantined:2",
    "commit.written:2",  # the first one is that of the new topics
    "commit.written:3",
    "commit.synced:2",
    "commit.synced:3",
    "clean.derived:2",
    "clean.staging:3",
)


@pytest.mark.parametrize("step", [*_FIRST, *_LATER])
def test_job_when_killed_at_a_step_then_its_second_run_completes_the_log(
    context: ForkServerContext, folder: Path, step: str
) -> None:
    """Whatever step is the last one, the next start undoes or completes it, and no record is lost or there twice."""
    assert finish_direct(context, folder, SPARKLOG_FAULT_POINT=step) == -9

    assert finish_direct(context, folder) == 0

    assert problems_of(folder / "store", read_input(folder / "input")) == []


@pytest.mark.parametrize("step", [f"{name}:{visit}" for name in _UNDO for visit in (1, 2, 4)])
def test_job_when_killed_while_it_undoes_a_kill_then_its_third_run_completes_the_log(
    context: ForkServerContext, folder: Path, step: str
) -> None:
    """Undoing can itself be undone: a start that dies half way leaves the next one enough to see."""
    assert finish_direct(context, folder, SPARKLOG_FAULT_POINT="place.synced:2") == -9
    assert finish_direct(context, folder, SPARKLOG_FAULT_POINT=step) == -9

    assert finish_direct(context, folder) == 0

    assert problems_of(folder / "store", read_input(folder / "input")) == []


def test_job_when_killed_again_and_again_then_still_gets_there(context: ForkServerContext, folder: Path) -> None:
    """Every run may die at another step: the log grows by what was committed and by nothing else."""
    steps = ("place.published:3", "commit.written:1", "place.copied:2", "clean.staging:1", "commit.quarantined:1")
    for step in steps:
        assert finish_direct(context, folder, SPARKLOG_FAULT_POINT=step) == -9

    assert finish_direct(context, folder) == 0

    assert problems_of(folder / "store", read_input(folder / "input")) == []
