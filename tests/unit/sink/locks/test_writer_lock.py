"""One writer per store, and how a lost lock is noticed."""

import fcntl
import os
import threading
from pathlib import Path

import pytest

from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.storage_core.errors import StorageError, StoreLockedError, WriterFencedError


def test_acquire_when_held_then_refused_and_the_holder_stays(tmp_path: Path) -> None:
    """Also by the same process; the message names host and process."""
    holder = WriterLock.acquire(tmp_path / "lock")

    with pytest.raises(
        StoreLockedError,
        match=rf'owner={{"host": ".+", "pid": {os.getpid()}, "since_ms": \d+, "token": "\w{{8}}", "opening": true}}',
    ):
        WriterLock.acquire(tmp_path / "lock")

    holder.check()
    holder.release()


def test_acquire_when_released_then_taken_at_once(tmp_path: Path) -> None:
    """Tokens differ from owner to owner."""
    first = WriterLock.acquire(tmp_path / "lock")
    first.release()
    second = WriterLock.acquire(tmp_path / "lock")

    second.check()
    assert second.token != first.token
    second.release()


@pytest.mark.parametrize("signs_off", [True, False])
def test_acquire_tells_whether_the_owner_before_ended_well(tmp_path: Path, signs_off: bool) -> None:
    """A signature that is still there is that of an owner that died."""
    first = WriterLock.acquire(tmp_path / "lock")
    first.begin()
    if signs_off:
        first.sign_off()
    first.release()
    second = WriterLock.acquire(tmp_path / "lock")

    assert not first.follows_crash
    assert second.follows_crash is not signs_off
    second.release()


@pytest.mark.parametrize("is_killed", [False, True])
def test_acquire_when_the_owner_before_had_not_begun_then_it_was_no_crash(tmp_path: Path, is_killed: bool) -> None:
    """Whoever is refused, or dies, before he changed anything leaves the lock as he found it."""
    path = tmp_path / "lock"
    first = WriterLock.acquire(path)
    signature = path.read_bytes()
    first.release()
    assert path.read_bytes() == b""
    if is_killed:
        path.write_bytes(signature)

    assert (WriterLock.owner_crashed(path), WriterLock.is_held(path), WriterLock.ended_well(path)) == (
        False,
        False,
        True,
    )
    second = WriterLock.acquire(path)
    assert not second.follows_crash
    assert (WriterLock.is_held(path), WriterLock.ended_well(path)) == (True, False)
    second.begin()
    second.release()
    assert (WriterLock.owner_crashed(path), WriterLock.is_held(path), WriterLock.ended_well(path)) == (
        True,
        False,
        False,
    )


def test_acquire_when_an_owner_died_and_the_next_one_did_not_begin_then_it_follows_a_crash_still(
    tmp_path: Path,
) -> None:
    """What the first one left half done is still there."""
    path = tmp_path / "lock"
    path.write_bytes(b'{"pid": 1}\n')
    for _ in range(2):
        lock = WriterLock.acquire(path)
        assert lock.follows_crash
        lock.release()


def test_begin_when_another_owner_has_taken_the_store_then_fenced(tmp_path: Path) -> None:
    """Its signature is not this owner's to replace."""
    lock = WriterLock.acquire(tmp_path / "lock")
    taker = WriterLock.take_by_force(tmp_path / "lock")
    signature = (tmp_path / "lock").read_bytes()

    with pytest.raises(WriterFencedError):
        lock.begin()
    lock.release()
    assert (tmp_path / "lock").read_bytes() == signature
    taker.release()


def test_take_by_force_when_held_then_the_holder_is_fenced(tmp_path: Path) -> None:
    """It still holds a lock, but on a file that has lost its name."""
    holder = WriterLock.acquire(tmp_path / "lock")
    taker = WriterLock.take_by_force(tmp_path / "lock")

    taker.check()
    with pytest.raises(WriterFencedError, match=f"took the store by force: lock={tmp_path}/lock"):
        holder.check()
    with pytest.raises(StoreLockedError):
        WriterLock.acquire(tmp_path / "lock")
    holder.release()
    taker.check()
    assert sorted(os.listdir(tmp_path)) == ["lock", "takeover.lock"]
    taker.release()


def test_take_by_force_when_taken_twice_then_the_last_one_owns_it(tmp_path: Path) -> None:
    """Each taker fences the one before."""
    first, second = (WriterLock.take_by_force(tmp_path / "lock") for _ in range(2))

    second.check()
    with pytest.raises(WriterFencedError):
        first.check()
    first.release()
    second.release()


@pytest.mark.parametrize("begins", [True, False])
def test_take_by_force_when_the_owner_before_had_not_begun_then_it_follows_no_crash(
    tmp_path: Path, begins: bool
) -> None:
    """Whether that one lives or ended well: nothing of its work is above a committed end."""
    path = tmp_path / "lock"
    holder = WriterLock.acquire(path)
    if begins:
        holder.begin()

    WriterLock.take_by_force(path).release()

    lock = WriterLock.acquire(path)
    assert (lock.follows_crash, lock.owes_renewal) == (begins, True)
    if not begins:
        with pytest.raises(WriterFencedError):
            holder.begin()
    lock.release()
    holder.release()


def test_acquire_when_somebody_looks_at_the_signature_then_waits_for_that(tmp_path: Path) -> None:
    """A reader must not keep a sink from starting."""
    path = tmp_path / "lock"
    path.write_bytes(b'{"pid": 1, "opening": true}\n')
    with path.open("rb") as looker:
        fcntl.flock(looker, fcntl.LOCK_SH)
        timer = threading.Timer(0.02, fcntl.flock, (looker, fcntl.LOCK_UN))
        timer.start()
        WriterLock.acquire(path).release()
        timer.join()


def test_acquire_when_it_was_taken_by_force_before_then_new_inodes_are_owed_until_somebody_has_given_them(
    tmp_path: Path,
) -> None:
    """Neither the end of the taker nor of those behind it makes that forgotten, nor a sign-off."""
    holder = WriterLock.acquire(tmp_path / "lock")
    holder.begin()
    WriterLock.take_by_force(tmp_path / "lock").release()
    holder.release()
    for _ in range(2):
        lock = WriterLock.acquire(tmp_path / "lock")
        assert lock.owes_renewal
        lock.sign_off()
        lock.release()

    lock = WriterLock.acquire(tmp_path / "lock")
    lock.note_renewed()
    lock.release()

    lock = WriterLock.acquire(tmp_path / "lock")
    assert (lock.follows_crash, lock.owes_renewal) == (True, False)
    lock.release()


@pytest.mark.parametrize(("signature", "is_owed"), [(b"", False), (b"\0" * 9, True), (b"7\n", True)])
def test_acquire_when_the_signature_cannot_be_read_then_new_inodes_are_owed(
    tmp_path: Path, signature: bytes, is_owed: bool
) -> None:
    """It may have said that the store was taken by force."""
    (tmp_path / "lock").write_bytes(signature)

    lock = WriterLock.acquire(tmp_path / "lock")

    assert lock.owes_renewal is is_owed
    lock.release()


@pytest.mark.parametrize("signature", [b"\0" * 9, b'{"pid": 1, "forced": true}\n'])
def test_acquire_when_no_writer_holds_it_then_none_is_owed_and_it_can_be_given_up(
    tmp_path: Path, signature: bytes
) -> None:
    """Logs get new inodes from writers alone: another lock would keep its signature for ever, and fence nobody."""
    (tmp_path / "lock").write_bytes(signature)

    lock = WriterLock.acquire(tmp_path / "lock", holder="another maintenance run")
    assert (lock.follows_crash, lock.owes_renewal) == (True, False)
    lock.sign_off()

    with pytest.raises(WriterFencedError):
        lock.check()
    lock.release()
    assert (tmp_path / "lock").read_bytes() == b""


def test_lock_when_another_owner_has_signed_it_then_fenced_and_the_signature_stays(tmp_path: Path) -> None:
    """Where a lock does not reach another machine, what it signs is all that tells: it is not this owner's to erase."""
    lock = WriterLock.acquire(tmp_path / "lock")
    (tmp_path / "lock").write_text("another one")

    with pytest.raises(WriterFencedError, match=f"the lock has lost this owner's signature: lock={tmp_path}/lock"):
        lock.check()
    lock.sign_off()
    assert (tmp_path / "lock").read_text() == "another one"
    lock.release()


def test_lock_when_an_owner_of_the_same_process_id_and_time_has_signed_it_then_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As two containers with one host name have them: the token tells their owners apart."""
    monkeypatch.setattr("time.time_ns", lambda: 1_763_816_400_000_000_000)
    lock, other = WriterLock.acquire(tmp_path / "lock"), WriterLock.acquire(tmp_path / "other")
    signature = (tmp_path / "other").read_bytes()
    (tmp_path / "lock").write_bytes(signature)

    with pytest.raises(WriterFencedError, match="has lost this owner's signature"):
        lock.check()
    lock.sign_off()
    assert (tmp_path / "lock").read_bytes() == signature
    lock.release()
    other.release()


def test_check_when_signed_off_then_fenced(tmp_path: Path) -> None:
    """A run that gave itself up changes nothing more."""
    lock = WriterLock.acquire(tmp_path / "lock")
    lock.check()
    lock.sign_off()

    with pytest.raises(WriterFencedError):
        lock.check()
    lock.release()


def test_check_when_the_file_is_gone_then_fenced(tmp_path: Path) -> None:
    """Somebody removed the lock: nobody can tell who owns the store."""
    lock = WriterLock.acquire(tmp_path / "lock")
    (tmp_path / "lock").unlink()

    with pytest.raises(WriterFencedError):
        lock.check()
    lock.release()


def test_acquire_when_the_folder_is_gone_then_storage_error(tmp_path: Path) -> None:
    """The message names the path."""
    with pytest.raises(StorageError, match=r"No such file or directory: path=.*/gone/lock"):
        WriterLock.acquire(tmp_path / "gone" / "lock")
    with pytest.raises(StorageError, match=r"No such file or directory: path=.*/gone/lock"):
        WriterLock.take_by_force(tmp_path / "gone" / "lock")


def test_take_by_force_when_the_holder_removes_a_file_then_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused after a while, and names the process to end; once the file is gone it succeeds at once."""
    monkeypatch.setattr("sparklog.sink.locks.takeover_lock._WAIT_S", 0.02)
    holder = WriterLock.acquire(tmp_path / "lock")

    with holder.holding():
        with holder.holding():
            pass
        with pytest.raises(StoreLockedError, match=rf"in the middle of removing .* \(kill -9 {os.getpid()} on "):
            WriterLock.take_by_force(tmp_path / "lock")
        assert sorted(os.listdir(tmp_path)) == ["lock", "takeover.lock"]
        holder.check()
    taker = WriterLock.take_by_force(tmp_path / "lock")

    with taker.holding(), pytest.raises(WriterFencedError, match="took the store by force"), holder.holding():
        pytest.fail("it does not own the store any more")
    holder.release()
    taker.release()
