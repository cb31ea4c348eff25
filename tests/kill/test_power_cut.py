"""The power goes at a named step: whatever was not yet on the disk is lost, and the next start makes the log whole."""

from collections.abc import Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sparklog.sink.ledger.ledger import Ledger
from sparklog.storage_core.fault_points import CHECKPOINT_FAULT_POINTS, FAULT_POINTS, LEDGER_FAULT_POINTS
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.kill.harness import finish_direct, start_direct, wait_until_stopped
from tests.kill.loop_disk import LoopDisk
from tests.kill.power_job import append_numbers, cases, cut_at, finish, mounted, recovery_points
from tests.kill.records import problems_of, read_input, write_input

pytestmark = pytest.mark.kill

_UNDO = ("undo.deleted", "undo.cut")
_STEPS = [*(point for point in FAULT_POINTS if point not in _UNDO), "place.synced:2", *CHECKPOINT_FAULT_POINTS]
_LATER = (
    "place.copied:9",
    "place.published:5",
    "commit.written:3",
    "commit.synced:3",
    "clean.staging:3",
    *(f"{point}:{visit}" for point in CHECKPOINT_FAULT_POINTS for visit in (3, 8)),
)
_PROMISED = ("commit.synced", "clean.")
"""From here on Spark may have been told that the micro-batch counts."""
_ROWS = 120
"""In a file: enough for several segments in each log and micro-batch."""

_HUNDRED = {"t": {"segment.bytes": 1 << 20}}
_TIDIED_COMMITS = 110


@pytest.fixture
def disk(request: pytest.FixtureRequest, memory_path: Path) -> Iterator[LoopDisk]:
    """A disk of the file system asked for, with the job's input."""
    disk = mounted(memory_path, request.param)
    write_input(disk.folder / "input", rows=_ROWS)
    disk.settle()
    yield disk
    disk.remove()


def _cut(context: ForkServerContext, disk: LoopDisk, step: str) -> None:
    job = start_direct(context, disk.folder, SPARKLOG_FAULT_POINT=step, SPARKLOG_FAULT_SIGNAL="STOP")
    wait_until_stopped(job)
    ledger = disk.folder / "store" / "ledger"
    promised = Ledger.open(ledger).transaction_version("job") if step.startswith(_PROMISED) else None
    disk.cut_power()
    job.kill()
    job.join()
    disk.plug_in()
    if promised is not None:
        assert Ledger.open_for_writing(ledger, UNSHARED).transaction_version("job") == promised


@pytest.mark.parametrize(("disk", "step"), cases(_STEPS, _LATER), indirect=["disk"])
def test_job_when_the_power_goes_at_a_step_then_its_next_run_completes_the_log(
    context: ForkServerContext, disk: LoopDisk, step: str
) -> None:
    """No commit that Spark was told of is lost, nor a byte that it names; what came back confuses nobody."""
    _cut(context, disk, step)

    assert finish_direct(context, disk.folder) == 0, (disk.folder / "error.txt").read_text()

    assert problems_of(disk.folder / "store", read_input(disk.folder / "input")) == []


@pytest.mark.parametrize(("disk", "step"), cases(_UNDO, [f"{point}:4" for point in _UNDO]), indirect=["disk"])
def test_job_when_the_power_goes_while_it_undoes_a_kill_then_its_next_run_completes_the_log(
    context: ForkServerContext, disk: LoopDisk, step: str
) -> None:
    """What was deleted or cut off comes back where that was not synced, and is undone once more."""
    assert finish_direct(context, disk.folder, SPARKLOG_FAULT_POINT="place.synced:2") == -9
    _cut(context, disk, step)

    assert finish_direct(context, disk.folder) == 0, (disk.folder / "error.txt").read_text()

    assert problems_of(disk.folder / "store", read_input(disk.folder / "input")) == []


@pytest.mark.parametrize(("disk", "step"), cases(LEDGER_FAULT_POINTS), indirect=["disk"])
def test_ledger_when_the_power_goes_while_it_is_tidied_then_knows_every_commit(
    context: ForkServerContext, disk: LoopDisk, step: str
) -> None:
    """A checkpoint is durable before the entries that it sums up go."""
    store = disk.folder / "s"
    cut_at(context, disk, step, append_numbers, store, _HUNDRED, _TIDIED_COMMITS, 1)
    ledger = Ledger.open_for_writing(store / "ledger", UNSHARED)
    committed = recovery_points(store)["t-0"][1]
    assert (ledger.version, ledger.transaction_version("q")) == (100, committed - 1)

    finish(context, disk.folder, append_numbers, store, _HUNDRED, _TIDIED_COMMITS, 1)

    assert recovery_points(store) == {"t-0": (_TIDIED_COMMITS, _TIDIED_COMMITS)}
