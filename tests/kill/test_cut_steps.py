"""Killed, or cut from its power, while a cut is written: the next start has the same cuts as an undisturbed one."""

from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sparklog.storage_core.fault_points import CUT_FAULT_POINTS
from tests.build.cut_store import append_by_clock, cut_ends
from tests.build.sink_store import stored_numbers
from tests.kill.harness import exit_code
from tests.kill.loop_disk import LoopDisk
from tests.kill.power_job import cases, cut_at, finish, run_job

pytestmark = pytest.mark.kill

_MINUTES = [10, 50, 70, 130, 135, 190, 260, 270, 330]
_KEEP = "2h"
_ENDS = {180: 50, 240: 60, 300: 80}


def _append(store: Path) -> None:
    append_by_clock(store, _MINUTES, keep=_KEEP)


def _problems(store: Path) -> list[str]:
    """Return what is wrong with a store whose job has come to its end."""
    found = cut_ends(store), stored_numbers(store)
    return [] if found == (_ENDS, [*range(10 * len(_MINUTES))]) else [str(found)]


@pytest.mark.parametrize("step", [*CUT_FAULT_POINTS, "cut.written:2", "cut.written:4", "commit.data:5"])
def test_sink_when_killed_while_it_writes_a_cut_then_its_next_run_has_the_cuts_of_an_undisturbed_one(
    context: ForkServerContext, memory_path: Path, step: str
) -> None:
    """A cut is made of rows that do not change before the commit after it, so it can be written again."""
    store = memory_path / "s"
    process = context.Process(target=run_job, args=(memory_path, {"SPARKLOG_FAULT_POINT": step}, _append, (store,)))
    process.start()
    assert exit_code(process) == -9

    finish(context, memory_path, _append, store)

    assert _problems(store) == []


@pytest.mark.parametrize(
    ("disk", "step"), cases([*CUT_FAULT_POINTS, "commit.data:5"], ["cut.written:2", "cut.written:4"]), indirect=["disk"]
)
def test_cuts_when_the_power_goes_then_the_table_opens_and_gets_the_same_cuts(
    context: ForkServerContext, disk: LoopDisk, step: str
) -> None:
    """An entry that was torn is dropped by the next opening; the commit after it writes the cut again."""
    store = disk.folder / "s"
    cut_at(context, disk, step, _append, store)

    finish(context, disk.folder, _append, store)

    assert _problems(store) == []
