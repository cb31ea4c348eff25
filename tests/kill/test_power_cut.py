"""The power goes at a named step: whatever was not yet on the disk is lost, and the next start makes the log whole."""

from collections.abc import Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sink.ledger import Ledger
from storage_core.fault_points import FAULT_POINTS
from tests.kill.harness import finish_direct, start_direct, wait_until_stopped
from tests.kill.loop_disk import LoopDisk
from tests.kill.records import problems_of, read_input, write_input

pytestmark = pytest.mark.kill

_STEPS = [point for point in FAULT_POINTS if not point.startswith("undo.")]
_LATER = (
    "place.copied:9",
    "place.published:9",
    "place.synced:2",
    "commit.written:3",
    "commit.synced:3",
    "clean.staging:3",
)
_PROMISED = ("commit.synced", "clean.")
"""From here on Spark may have been told that the micro-batch counts."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    """A disk with the job's input."""
    disk = LoopDisk(tmp_path)
    problem = disk.make()
    if problem is not None:
        pytest.skip(problem)
    write_input(disk.folder / "input")
    disk.settle()
    yield disk
    disk.remove()


@pytest.mark.parametrize("step", [*_STEPS, *_LATER])
def test_job_when_the_power_goes_at_a_step_then_its_next_run_completes_the_log(
    context: ForkServerContext, disk: LoopDisk, step: str
) -> None:
    """No commit that Spark was told of is lost, nor a byte that it names; what came back confuses nobody."""
    job = start_direct(context, disk.folder, SPARKLOG_FAULT_POINT=step, SPARKLOG_FAULT_SIGNAL="STOP")
    wait_until_stopped(job)
    ledger = disk.folder / "store" / "ledger"
    promised = Ledger.open(ledger).transaction_version("job") if step.startswith(_PROMISED) else None
    disk.cut_power()
    job.kill()
    job.join()
    disk.plug_in()

    if promised is not None:
        assert Ledger.open_for_writing(ledger).transaction_version("job") == promised
    assert finish_direct(context, disk.folder) == 0, (disk.folder / "error.txt").read_text()

    assert problems_of(disk.folder / "store", read_input(disk.folder / "input")) == []
