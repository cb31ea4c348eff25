"""A writer is suspended where the kernel is about to remove or rename for it; its successor's records stay.

What is stopped is the call of the kernel: these tests show a loss also where the code has no named step.
"""

import contextlib
import os
import signal
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

import sparklog.sink.place.placer
from sparklog.storage_core.errors import StoreLockedError
from tests.kill.fenced_job import ended, fail_once, open_job, pause_at_call, problems, write_batches
from tests.kill.harness import exit_code, wait_until_stopped, wake

pytestmark = pytest.mark.kill


def _leave(folder: Path, step: str) -> None:
    """Write, and die at a step."""
    os.environ["SPARKLOG_FAULT_POINT"] = step
    ended(folder, lambda: write_batches(open_job(folder / "store")))


def _cut_back(folder: Path) -> None:
    """A disk that refuses a sync makes the writer undo a micro-batch that has begun new segments."""

    def work() -> None:
        writer = open_job(folder / "store")
        write_batches(writer, 1)
        fail_once(sparklog.sink.place.placer, "sync_files")
        pause_at_call(lambda name, path: name == "unlink" and "events-" in path and path.endswith(".log"))
        write_batches(writer)

    ended(folder, work)


def _make_topics(folder: Path) -> None:
    pause_at_call(lambda _, path: path.endswith("logs/events-0"))
    ended(folder, lambda: write_batches(open_job(folder / "store")))


def _make_store(folder: Path) -> None:
    pause_at_call(lambda _, path: path.endswith("store/ledger"))
    ended(folder, lambda: write_batches(open_job(folder / "store")))


def _divert(folder: Path) -> None:
    pause_at_call(lambda _, path: path.endswith(("quarantine/job/2", "query-job/2")))
    ended(folder, lambda: write_batches(open_job(folder / "store")))


def _close(folder: Path) -> None:
    def work() -> None:
        writer = open_job(folder / "store")
        write_batches(writer)
        pause_at_call(lambda _, path: path.endswith("store/staging"))
        writer.close()

    ended(folder, work)


_CASES = [
    (_cut_back, None),
    (_make_topics, "open.directories"),
    (_make_store, None),
    (_divert, None),
    (_close, None),
]


@pytest.mark.parametrize("is_killed", [False, True], ids=["woken", "killed"])
@pytest.mark.parametrize(("work", "left_at"), _CASES, ids=[work.__name__.strip("_") for work, _ in _CASES])
def test_writer_when_suspended_before_a_removal_then_its_successor_loses_nothing(
    context: ForkServerContext,
    memory_path: Path,
    work: Callable[[Path], None],
    left_at: str | None,
    is_killed: bool,
) -> None:
    """Taking the store by force is refused until it is woken or killed; then every acknowledged record stays."""
    if left_at:
        killed = context.Process(target=_leave, args=(memory_path, left_at))
        killed.start()
        assert exit_code(killed) == -signal.SIGKILL
    first = context.Process(target=work, args=(memory_path,))
    first.start()
    try:
        wait_until_stopped(first)
        second = None
        with contextlib.suppress(StoreLockedError):
            second = open_job(memory_path / "store", by_force=True)
        if second is None:
            os.kill(first.pid or 0, signal.SIGKILL if is_killed else signal.SIGCONT)
            second = _take(memory_path / "store")
        write_batches(second)
        with contextlib.suppress(ProcessLookupError):
            wake(first)
        first.join(60)
    finally:
        first.kill()
    second.close()

    assert problems(memory_path / "store") == []


def _take(store: Path):  # type: ignore[no-untyped-def]
    """Take a store whose owner is on its way, between two of its removals."""
    while True:
        with contextlib.suppress(StoreLockedError):
            return open_job(store, by_force=True)
