"""The power goes while a broker's root is loaded: the next loading leaves what an undisturbed one does."""

import shutil
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sparklog.pipeline.verbs.recover import RecoverOptions, execute_recovery
from sparklog.storage_core.operation_fault_points import LOAD_FAULT_POINTS
from tests.build.loaded_log import NOW_MS
from tests.build.manual_clock import ManualClock
from tests.kill import test_load_steps as loading
from tests.kill.load_job import load_and_close
from tests.kill.loop_disk import LoopDisk
from tests.kill.power_job import cases, cut_at

pytestmark = pytest.mark.kill

damaged = loading.damaged
undisturbed = loading.undisturbed

_SHORT = ("load.replaced:2", "recover.cut:2", "load.renamed:2", "split.swapped", "recover.deleted")
_OTHERS = [
    *(point for point in LOAD_FAULT_POINTS if point not in _SHORT),
    *(
        "load.dropped:3",
        "load.replaced:5",
        "load.renamed:4",
        "recover.cut:5",
        "recover.indexed:4",
        "recover.snapshot:5",
    ),
]


def _load(root: Path) -> None:
    execute_recovery([root], RecoverOptions(index_interval_bytes=200, jobs=1), ManualClock(NOW_MS))


@pytest.mark.parametrize(("disk", "step"), cases(_SHORT, _OTHERS), indirect=["disk"])
def test_load_when_the_power_goes_at_a_step_then_the_second_one_ends_alike(
    context: ForkServerContext, disk: LoopDisk, damaged: Path, undisturbed: dict[str, object], step: str
) -> None:
    """Old segments that come back beside their replacements, or tails that were cut, make no difference."""
    root = Path(shutil.copytree(damaged, disk.folder / "logs"))
    disk.settle()
    cut_at(context, disk, step, _load, root)

    load_and_close(root)
    disk.cut_power()
    disk.plug_in()

    assert loading._left(root) == undisturbed
