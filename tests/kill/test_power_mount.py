"""The power goes while a broker's folder gets a store's logs: each of them is as it was, or whole."""

from multiprocessing.context import ForkServerContext

import pytest

from tests.kill.loop_disk import LoopDisk
from tests.kill.mount_job import find_problems, is_mounted, run_mount, write_places
from tests.kill.power_job import cases, cut_at, finish

pytestmark = pytest.mark.kill


@pytest.mark.parametrize(
    ("disk", "step"),
    cases(
        ["mount.emptied", "mount.renamed"],
        ["mount.copied", "mount.placed", "mount.unclean", "mount.starts", "mount.renamed:2", "mount.finished"],
    ),
    indirect=["disk"],
)
def test_mount_into_when_the_power_goes_at_a_step_then_each_log_is_as_before_or_whole_and_a_second_one_finishes(
    context: ForkServerContext, disk: LoopDisk, step: str
) -> None:
    """A log has its name only after all of its bytes; what the second run reports stays."""
    store = write_places(disk.folder)
    disk.settle()

    cut_at(context, disk, step, run_mount, store)

    assert find_problems(store) == []
    finish(context, disk.folder, run_mount, store)
    disk.cut_power()
    disk.plug_in()
    assert is_mounted(store)
