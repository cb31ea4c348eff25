"""Jobs whose power is cut: whatever a store lets one do, in a process that stops itself at a named step."""

import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sparklog.sink.ledger.ledger import Ledger
from tests.build.sink_store import in_process, numbers, open_store
from tests.kill.harness import exit_code, wait_until_stopped
from tests.kill.loop_disk import FILESYSTEMS, LoopDisk

__all__ = ["IS_LONG", "append_numbers", "cases", "cut_at", "finish", "mounted", "recovery_points", "run_job"]

IS_LONG = bool(os.environ.get("SPARKLOG_KILL_ROUNDS") or os.environ.get("SPARKLOG_SOAK"))
"""Whether every step is taken on every file system, and not only on one of them."""


def cases(steps: Sequence[str], others: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return file systems and steps: in the short form `steps` on one of them in turns, else all steps on each."""
    if IS_LONG:
        return [(filesystem, step) for step in (*steps, *others) for filesystem in FILESYSTEMS]
    return [(FILESYSTEMS[number % len(FILESYSTEMS)], step) for number, step in enumerate(steps)]


def mounted(root: Path, filesystem: str) -> LoopDisk:
    """Return a new disk, or skip the test and say why."""
    disk = LoopDisk(root, filesystem)
    problem = disk.make()
    if problem is not None:
        disk.remove()
        pytest.skip(f"no power cut on {filesystem}: {problem}")
    return disk


def cut_at(
    context: ForkServerContext, disk: LoopDisk, step: str, job: Callable[..., object], *arguments: object
) -> None:
    """Run a job until it stops itself at a step, cut the power there, and mount the disk again."""
    environment = {"SPARKLOG_FAULT_POINT": step, "SPARKLOG_FAULT_SIGNAL": "STOP"}
    process = context.Process(target=run_job, args=(disk.folder, environment, job, arguments))
    process.start()
    try:
        wait_until_stopped(process)
        disk.cut_power()
    finally:
        process.kill()
        process.join()
    disk.plug_in()


def finish(context: ForkServerContext, folder: Path, job: Callable[..., object], *arguments: object) -> None:
    """Run a job in a process of its own until it ends well."""
    process = context.Process(target=run_job, args=(folder, {}, job, arguments))
    process.start()
    error = folder / "error.txt"
    assert exit_code(process) == 0, error.read_text() if error.exists() else "killed"


def append_numbers(
    store: Path, topics: Mapping[str, Mapping[str, object]], micro_batches: int, each: int, first: int = 0
) -> None:
    """Append the numbers from 0 on to the topic `t`, so many in each micro-batch; those known already are replayed."""
    writer = open_store(store, topics, topic="t")
    for number in range(first, micro_batches):
        writer.append("q", number, in_process(numbers(number * each, (number + 1) * each) if each else ()))
    writer.close()


def recovery_points(store: Path) -> dict[str, tuple[int, int]]:
    """Return recovery point and end of each log."""
    states = Ledger.open(store / "ledger").states()
    return {str(log): (state.recovery_point, state.log_end_offset) for log, state in states.items()}


def run_job(
    folder: Path, environment: dict[str, str], job: Callable[..., object], arguments: tuple[object, ...]
) -> None:
    """Run a job in this process, a fresh one, and end it; what a failure said is in `error.txt`."""
    os.environ.update(environment)
    (folder / "error.txt").unlink(missing_ok=True)
    try:
        job(*arguments)
    except BaseException:
        (folder / "error.txt").write_text(traceback.format_exc())
        os._exit(3)
    os._exit(0)
