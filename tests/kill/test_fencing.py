"""A writer that is stopped, loses the store to another one, and wakes up."""

from contextlib import ExitStack
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import pytest

from sparklog.storage_core.errors import StoreLockedError
from tests.build.sink_store import contents, log_directories, open_store
from tests.kill.harness import exit_code, finish_direct, start_direct, wait_until_stopped, wake
from tests.kill.records import TOPICS, problems_of, read_input

pytestmark = pytest.mark.kill

_STEPS = (
    "open.directories",
    "stage.started:3",
    "stage.written:3",
    "stage.reported:4",
    "place.planned",
    "place.planned:2",
    "place.created:2",
    "place.created:9",
    "place.copied",
    "place.copied:2",
    "place.copied:9",
    "place.indexed:3",
    "place.published:2",
    "place.published:9",
    "place.synced:2",
    "commit.quarantined:2",
    "commit.written:2",
    "commit.synced:3",
    "clean.derived",
)
_MEETINGS = (
    # where the old writer stopped, and where the new one is when the old one wakes up
    ("stage.written:3", "stage.written:1"),
    ("place.copied:2", "stage.reported:1"),
    ("place.published:2", "place.copied:2"),
    ("place.indexed:9", "place.synced:1"),
    ("place.synced:2", "commit.quarantined:1"),
    ("commit.quarantined:2", "commit.synced:2"),
    ("commit.written:2", "place.planned:1"),
)


class _Stopped:
    """A job that has stopped itself at a step; it does not outlive the test."""

    def __init__(self, context: ForkServerContext, folder: Path, step: str, *, take_lock_by_force: bool = False):
        environment = {"SPARKLOG_FAULT_POINT": step, "SPARKLOG_FAULT_SIGNAL": "STOP"}
        self.process: ForkServerProcess = start_direct(
            context, folder, take_lock_by_force=take_lock_by_force, **environment
        )
        try:
            wait_until_stopped(self.process)
        except BaseException:
            self.process.kill()
            raise

    def __enter__(self) -> "_Stopped":
        return self

    def __exit__(self, *_: object) -> None:
        if not self.process._closed:  # type: ignore[attr-defined]
            self.process.kill()

    def wake(self) -> int:
        wake(self.process)
        return exit_code(self.process)


def _logs(store: Path) -> dict[str, dict[str, bytes]]:
    return {name: contents(directory) for name, directory in log_directories(store).items()}


@pytest.mark.parametrize("step", _STEPS)
def test_stopped_writer_when_the_store_was_taken_by_force_then_ends_without_harm(
    context: ForkServerContext, folder: Path, step: str
) -> None:
    """It commits nothing, changes no byte of a log, and says that it was replaced; the new writer's work is whole."""
    with _Stopped(context, folder, step) as old:
        assert finish_direct(context, folder, take_lock_by_force=True) == 0
        before = _logs(folder / "store")

        assert old.wake() == 1

    assert (folder / "error.txt").read_text().startswith("WriterFencedError: another writer")
    assert _logs(folder / "store") == before
    assert problems_of(folder / "store", read_input(folder / "input")) == []


@pytest.mark.parametrize(("old_step", "new_step"), _MEETINGS)
def test_stopped_writer_when_it_wakes_beside_the_new_one_then_the_new_one_completes_the_log(
    context: ForkServerContext, folder: Path, old_step: str, new_step: str
) -> None:
    """Both are in the middle of the same micro-batch: neither staged, nor placed, nor diverted rows get mixed up."""
    with ExitStack() as stack:
        old = stack.enter_context(_Stopped(context, folder, old_step))
        new = stack.enter_context(_Stopped(context, folder, new_step, take_lock_by_force=True))
        assert old.wake() == 1
        assert (folder / "error.txt").read_text().startswith("WriterFencedError: another writer")
        assert new.wake() == 0

    assert problems_of(folder / "store", read_input(folder / "input")) == []


def test_second_writer_when_the_store_is_locked_then_is_refused_at_once_and_changes_nothing(
    context: ForkServerContext, folder: Path
) -> None:
    """The message names who holds the lock."""
    with _Stopped(context, folder, "place.copied:2") as holder:
        before = contents(folder / "store")

        with pytest.raises(StoreLockedError, match=f'"pid": {holder.process.pid}'):
            open_store(folder / "store", TOPICS)

        assert contents(folder / "store") == before
        assert holder.wake() == 0
    assert problems_of(folder / "store", read_input(folder / "input")) == []
