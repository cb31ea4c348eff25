"""Killed at a named step and started again, a job leaves exactly its input."""

import os
import tempfile
from collections.abc import Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from storage_core.fault_points import FAULT_POINTS
from tests.kill.harness import SparkJob, finish_direct, fork_server
from tests.kill.records import problems_of, read_input, write_input

pytestmark = pytest.mark.kill

_UNDO = ("undo.deleted", "undo.cut")
_STEPS = [point for point in FAULT_POINTS if point not in _UNDO]
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
_IS_LONG = bool(os.environ.get("SPARKLOG_KILL_ROUNDS"))
_SPARK_STEPS = _STEPS if _IS_LONG else ("stage.written:2", "commit.written:2")


@pytest.fixture(scope="module")
def context() -> ForkServerContext:
    return fork_server()


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The job's folder, in memory where that is possible: a killed process leaves what it wrote with or without fsync."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        memory = tmp_path_factory.mktemp("kill")
    with tempfile.TemporaryDirectory(prefix="sparklog-kill-", dir=memory) as path:
        write_input(Path(path) / "input")
        yield Path(path)


@pytest.mark.parametrize("point", [*_STEPS, *_LATER])
def test_job_when_killed_at_a_step_then_its_second_run_completes_the_log(
    context: ForkServerContext, folder: Path, point: str
) -> None:
    """Whatever step is the last one, the next start undoes or completes it, and no record is lost or there twice."""
    assert finish_direct(context, folder, SPARKLOG_FAULT_POINT=point) == -9

    assert finish_direct(context, folder) == 0, (folder / "error.txt").read_text()

    assert problems_of(folder / "store", read_input(folder / "input")) == []
