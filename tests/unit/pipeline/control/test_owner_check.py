"""Whether a run still owns its store, as executors see it."""

import pickle
from pathlib import Path

import pytest

from sparklog.pipeline.control.owner_check import OwnerCheck
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.opening.access import MAINTENANCE_LOCK
from sparklog.storage_core.errors import WriterFencedError


def test_check_when_the_owner_lives_then_it_returns(tmp_path: Path) -> None:
    """It travels by pickle, and needs no lock of its own."""
    lock = WriterLock.acquire(tmp_path / MAINTENANCE_LOCK)
    check = pickle.loads(pickle.dumps(OwnerCheck.of(tmp_path)))

    check.check()
    check.check()
    lock.release()


@pytest.mark.parametrize("end", ["signed-off", "died", "by-force", "gone"])
def test_check_when_the_store_is_another_ones_then_it_raises(tmp_path: Path, end: str) -> None:
    """However an ownership ends."""
    path = tmp_path / MAINTENANCE_LOCK
    lock = WriterLock.acquire(path)
    check, later = OwnerCheck.of(tmp_path), lock
    if end == "signed-off":
        lock.sign_off()
    elif end == "died":
        lock.release()
        path.write_bytes(b"{}\n" + path.read_bytes())  # the same process would sign alike within a millisecond
        later = WriterLock.acquire(path)
        path.write_bytes(b"{another}\n")
    elif end == "by-force":
        later = WriterLock.take_by_force(path)
    else:
        path.unlink()

    with pytest.raises(WriterFencedError, match="has lost the store"):
        check.check()
    if later is not lock:
        later.release()
    if end != "died":
        lock.release()
