"""A child that the program forks has none of its locks."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.opening.access import maintaining
from sparklog.storage_core.cleaner.hold_log import held_alone
from sparklog.storage_core.errors import WriterFencedError
from sparklog.storage_core.storage.new_folder import new_folder
from tests.build.sink_store import in_process, numbers, open_events, stored_numbers
from tests.programs.own_process import ROOT

_OWNER = """
import os, sys
from pathlib import Path
from sparklog.sink.opening.access import maintaining
from sparklog.storage_core.cleaner.hold_log import held_alone
from sparklog.storage_core.storage.new_folder import new_folder
from tests.build.sink_store import in_process, numbers, open_events

store = Path(sys.argv[1])
sink = open_events(store)
sink.append("q", 0, in_process(numbers(0, 100)))
with maintaining(store), held_alone(store / "logs" / "events-0"), new_folder(store.parent / "new"):
    if os.fork() == 0:
        print("forked", flush=True)
        sys.stdin.read()
        os._exit(0)
    os.wait()
"""


@contextmanager
def _orphan(store: Path) -> Iterator[None]:
    """Run a child whose parent held every lock of a store and was killed."""
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(store)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with owner:
        assert owner.stdout is not None
        assert owner.stdin is not None
        try:
            assert owner.stdout.readline() == b"forked\n"
        finally:
            owner.send_signal(signal.SIGKILL)
        owner.wait()
        yield
        owner.stdin.close()  # ends the child
        assert owner.stdout.read() == b""


def test_store_when_its_owner_died_and_a_forked_child_lives_then_opens(memory_path: Path) -> None:
    """Neither lock of the store, nor that of a log or an unfinished folder, is the child's."""
    with _orphan(memory_path):
        sink = open_events(memory_path)
        sink.append("q", 1, in_process(numbers(100, 200)))
        with maintaining(memory_path), held_alone(memory_path / "logs" / "events-0"):
            pass
        with new_folder(memory_path.parent / "new"):
            pass
        sink.close()

    assert stored_numbers(memory_path) == list(range(200))


def test_lock_when_the_process_forks_then_the_child_has_lost_it_and_the_parent_has_it(tmp_path: Path) -> None:
    """What the child does with it neither signs off nor unlocks."""
    lock = WriterLock.acquire(tmp_path / "lock")

    def in_child() -> None:
        with pytest.raises(WriterFencedError, match=f"forked from its owner: lock={tmp_path}/lock"):
            lock.check()
        lock.sign_off()
        lock.release()

    assert _status_of_child(in_child) == 0
    lock.check()
    assert WriterLock.is_held(tmp_path / "lock")
    lock.release()


def _status_of_child(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]
