"""Killed at any step, a mount into a broker's folder leaves each log as it was or whole, and a second run finishes."""

import shutil
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sparklog.storage_core.operation_fault_points import MOUNT_FAULT_POINTS
from tests.build.sink_store import contents
from tests.kill.directory_job import finish
from tests.kill.mount_job import find_problems, is_mounted, run_mount, start_broker, write_places

pytestmark = pytest.mark.kill

_CHECKPOINTS = [f"checkpoint.{step}:{visit}" for step in ("written", "replaced") for visit in (1, 2)]
_NAMES = [f"names.held:{visit}" for visit in range(1, 9)]
_STEPS = [*MOUNT_FAULT_POINTS, "mount.copied:2", "mount.renamed:2", *_CHECKPOINTS, *_NAMES]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store and a broker's folder."""
    return write_places(tmp_path_factory.mktemp("written"))


@pytest.fixture
def store(written: Path, memory_path: Path) -> Path:
    """A copy of both."""
    shutil.copytree(written.parent, memory_path / "places")
    return memory_path / "places" / "store"


@pytest.mark.parametrize("has_started", [False, True])
@pytest.mark.parametrize("step", _STEPS)
def test_mount_into_when_killed_at_a_step_then_each_log_is_as_before_or_whole_and_a_second_one_finishes(
    context: ForkServerContext, store: Path, step: str, has_started: bool
) -> None:
    """Also if the broker has started in between, which removes what is set aside."""
    logs = contents(store / "logs")
    assert finish(context, run_mount, store, SPARKLOG_FAULT_POINT=step) == -9

    assert find_problems(store) == []
    if has_started:
        start_broker(store.parent / "target")
    assert finish(context, run_mount, store) == 0, (store.parent / "error.txt").read_text()

    assert is_mounted(store)
    assert contents(store / "logs") == logs
    assert finish(context, run_mount, store) == 0


@pytest.mark.parametrize("step", MOUNT_FAULT_POINTS)
@pytest.mark.parametrize("first", ["mount.placed", "mount.emptied", "mount.renamed"])
def test_mount_into_when_the_run_that_finishes_it_is_killed_too_then_the_third_one_finishes(
    context: ForkServerContext, store: Path, first: str, step: str
) -> None:
    """Finishing can itself be interrupted."""
    assert finish(context, run_mount, store, SPARKLOG_FAULT_POINT=first) == -9
    assert finish(context, run_mount, store, SPARKLOG_FAULT_POINT=step) == -9
    assert find_problems(store) == []

    assert finish(context, run_mount, store) == 0, (store.parent / "error.txt").read_text()

    assert is_mounted(store)
