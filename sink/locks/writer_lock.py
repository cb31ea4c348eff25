"""One writer per store: an OS lock held for the life of the sink; fencing of a writer that lost it.

The lock is `flock` on `<store>/writer.lock`. The kernel releases it when the process ends, so a crash leaves no stale
lock. Taking it by force replaces the file; the earlier owner then holds a lock on a file without a name, and its next
check finds that.

The file holds its owner's signature, and an owner that ends well removes it: a signature without an owner means a
crash, and the logs need recovery. Until `begin` the signature is marked as `opening`: an owner that dies or is refused
by then has changed nothing. So the next owner knows that bytes past a committed end are not an unfinished
micro-batch, and that the ledger's last entry was committed.

A taking by force is recorded in it, too, from owner to owner, until one has given the logs new inodes: an earlier owner
that wakes up must not write into committed files. The signature that the taker finds decides, as for any owner, whether
it follows a crash: after a clean end bytes past a committed end are damage.

A check is not enough before a removal or rename by path, as the lock may be lost right after it: use `holding`
(`takeover_lock.py`).
"""

import contextlib
import fcntl
import json
import os
import socket
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sparklog.sink.locks.broker_lock import RootLocks
from sparklog.sink.locks.takeover_lock import TakeoverLock
from sparklog.storage_core.clock import wait_until
from sparklog.storage_core.errors import StorageError, StoreLockedError, WriterFencedError
from sparklog.storage_core.storage.local import storage_errors, sync_directory, write_all
from sparklog.storage_core.storage.open_regular import open_to_change, read_if_there
from sparklog.storage_core.storage.own_descriptor import OwnDescriptor

__all__ = ["WriterLock"]

_SIGNATURE_BYTES = 4096
_LONGEST_LOOK_S = 0.1
"""A reader of a signature locks the file for a moment."""
_WRITER = "another writer"
"""The owner of a lock that can be taken by force; owners of other locks never owe new inodes."""


class WriterLock:
    """The right to write a store.

    Attributes:
        token: 8 hex digits that no other owner has; names this writer's unpublished files.
        follows_crash: whether the previous owner crashed after `begin`.
        owes_renewal: whether this or an earlier owner took the store by force, and not all logs have new inodes since:
            the former writer may still write into the files they have.
        roots: the locks of the store's log directories, which end with this one.
    """

    def __init__(
        self,
        path: Path,
        descriptor: OwnDescriptor,
        token: str,
        *,
        follows_crash: bool,
        owes_renewal: bool,
        can_be_taken: bool = True,
    ) -> None:
        self._path = path
        self._descriptor = descriptor
        self._takeover = TakeoverLock(path.parent) if can_be_taken else None
        self.token = token
        self._signature = b""
        self._is_opening = not follows_crash
        self.follows_crash = follows_crash
        self.owes_renewal = owes_renewal
        self.roots = RootLocks()

    @classmethod
    def acquire(cls, path: Path, holder: str = _WRITER) -> "WriterLock":
        """Take the lock, without waiting; call `begin` before any change.

        Args:
            holder: kind of its owner, for the message.

        Raises:
            StoreLockedError: another process holds it; the message names it.
        """
        with storage_errors(path):
            while True:
                descriptor = OwnDescriptor(partial(open_to_change, path, os.O_RDWR | os.O_CREAT))
                try:
                    _lock_alone(descriptor)
                    signature = os.pread(descriptor.fileno(), _SIGNATURE_BYTES, 0)
                    lock = cls(
                        path,
                        descriptor,
                        uuid.uuid4().hex[:8],
                        follows_crash=_is_crash(signature),
                        owes_renewal=holder == _WRITER and _has_mark(signature, "forced", unreadable=True),
                        can_be_taken=holder == _WRITER,
                    )
                    if lock._is_current():
                        lock._sign()
                        sync_directory(path.parent)  # a power cut must not remove the file's name
                        return lock
                except BlockingIOError:
                    owner = os.pread(descriptor.fileno(), _SIGNATURE_BYTES, 0).decode(errors="replace").strip()
                    descriptor.close()
                    remedy = ", or take the lock by force if it can't be stopped" if holder == _WRITER else ""
                    raise StoreLockedError(
                        f"{holder} holds the store: lock={path} owner={owner or 'unknown'}; stop it{remedy}"
                    ) from None
                except BaseException:
                    descriptor.close()
                    raise
                descriptor.close()

    @staticmethod
    def owner_crashed(path: Path) -> bool:
        """Whether a lock's last owner died after `begin`, and no process has taken it since."""
        return _is_crash(_left_signature(path))

    @staticmethod
    def has_begun(path: Path) -> bool:
        """Whether a lock's last owner, alive or dead, called `begin` and has not ended well."""
        with storage_errors(path):
            return _is_crash(read_if_there(path) or b"")

    @staticmethod
    def is_held(path: Path) -> bool:
        """Whether a process holds and has signed a lock."""
        with storage_errors(path):
            is_signed = path.exists() and path.stat().st_size > 0
        return is_signed and not _left_signature(path)

    @staticmethod
    def ended_well(path: Path) -> bool:
        """Whether a lock is free, and its last owner ended well or before `begin`; false if it was never taken."""
        with storage_errors(path):
            signature = read_if_there(path)
        if not signature:
            return signature is not None
        return not _is_crash(signature) and _left_signature(path) == signature

    @classmethod
    def take_by_force(cls, path: Path) -> "WriterLock":
        """Take the lock from its owner: replace the file by one that this process has locked.

        Raises:
            StoreLockedError: the owner did not finish a removal or a rename within seconds; nothing was changed.
        """
        token = uuid.uuid4().hex[:8]
        mine = path.with_name(f"{path.name}.{token}")
        with storage_errors(path):
            descriptor = OwnDescriptor(partial(open_to_change, mine, os.O_RDWR | os.O_CREAT | os.O_EXCL))
            lock = cls(path, descriptor, token, follows_crash=True, owes_renewal=True)
            try:
                _lock_alone(descriptor)
                lock._replace(mine)
                sync_directory(path.parent)
            except BaseException:
                mine.unlink(missing_ok=True)
                lock.release()
                raise
        return lock

    @property
    def name(self) -> str:
        """File name of the lock."""
        return self._path.name

    def check(self) -> None:
        """Check that this writer still owns the store.

        Raises:
            WriterFencedError: it does not, or this process was forked from the owner.
        """
        self._require_own_process()
        with storage_errors(self._path):
            is_current, is_signed = self._is_current(), self._is_signed()
        if not is_current:
            raise WriterFencedError(f"another writer took the store by force: lock={self._path}; this one has to stop")
        if not is_signed:  # an owner on a machine that the lock does not reach, or this owner signed off
            raise WriterFencedError(f"the lock has lost this owner's signature: lock={self._path}; it has to stop")

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Check, and block a taking by force until the context ends: for one removal or rename by path.

        The maintenance lock can't be taken by force, so for that one this only checks.

        Raises:
            WriterFencedError: this writer does not own the store any more.
        """
        self._require_own_process()
        with self._takeover.shared() if self._takeover else contextlib.nullcontext():
            self.check()
            yield

    def begin(self) -> None:
        """Record and sync that this owner now changes ledger or logs: after its crash the next owner recovers them.

        Raises:
            WriterFencedError: this writer does not own the store any more.
        """
        if self._is_opening:
            with self.holding(), storage_errors(self._path):  # a taker by force must not read half a signature
                self._is_opening = False
                self._sign()

    def note_renewed(self) -> None:
        """Record that all logs have new inodes; ledger rows of offline logs record their own debt."""
        if self.owes_renewal:
            self.owes_renewal = False
            with storage_errors(self._path):
                self._sign()

    def sign_off(self) -> None:
        """Remove the signature after a clean end, unless new inodes are still owed.

        The signature of another owner stays: one on a machine that the lock does not reach, or the parent of this
        forked process.
        """
        if self._descriptor.is_open and not self.owes_renewal:
            with storage_errors(self._path):
                if self._is_signed():
                    os.ftruncate(self._descriptor.fileno(), 0)

    def release(self) -> None:
        """Release the lock; before `begin` the signature goes, too."""
        if self._is_opening:
            with contextlib.suppress(StorageError):  # the mark `opening` in it rules out a crash
                self.sign_off()
        self.roots.close()
        self._descriptor.close()
        if self._takeover:
            self._takeover.close()

    def _require_own_process(self) -> None:
        if not self._descriptor.is_open:
            raise WriterFencedError(
                f"this process does not hold the lock, it released it or was forked from its owner: lock={self._path}"
            )

    def _replace(self, mine: Path) -> None:
        """Replace the former owner's file by this one's, while that owner removes and renames nothing."""
        takeover = TakeoverLock(self._path.parent)
        try:
            with takeover.alone() as is_held:
                if not is_held:
                    raise StoreLockedError(_describe_busy_owner(self._path))
                self.follows_crash = _is_crash(read_if_there(self._path) or b"")
                self._is_opening = not self.follows_crash
                self._sign()
                mine.replace(self._path)
        finally:
            takeover.close()

    def _is_current(self) -> bool:
        try:
            named = os.stat(self._path)
        except FileNotFoundError:
            return False
        mine = os.fstat(self._descriptor.fileno())
        return (named.st_dev, named.st_ino) == (mine.st_dev, mine.st_ino)

    def _is_signed(self) -> bool:
        return os.pread(self._descriptor.fileno(), _SIGNATURE_BYTES, 0) == self._signature

    def _sign(self) -> None:
        owner: dict[str, object] = {
            "host": socket.gethostname(),
            "pid": os.getpid(),  # two containers may have the same one, and the same host name
            "since_ms": time.time_ns() // 1_000_000,
            "token": self.token,
        }
        owner |= {"forced": True} if self.owes_renewal else {}
        owner |= {"opening": True} if self._is_opening else {}
        signature = json.dumps(owner).encode() + b"\n"
        descriptor = self._descriptor.fileno()
        write_all(descriptor, signature, 0)
        os.ftruncate(descriptor, len(signature))
        os.fsync(descriptor)  # a power cut must not make this owner look like one that ended well
        self._signature = signature


def _is_crash(signature: bytes) -> bool:
    """Whether an owner with this signature may have left partial changes; true for an unreadable signature."""
    return bool(signature) and not _has_mark(signature, "opening", unreadable=False)


def _has_mark(signature: bytes, mark: str, *, unreadable: bool) -> bool:
    """Whether a signature has a mark; `unreadable` is the answer for an unreadable one."""
    if not signature:
        return False
    try:
        return bool(json.loads(signature.partition(b"\n")[0]).get(mark, False))
    except (ValueError, AttributeError):
        return unreadable


def _lock_alone(descriptor: OwnDescriptor) -> None:
    """Take the lock of an open file.

    Raises:
        BlockingIOError: an owner has it, for longer than a reader of the signature.
    """

    def is_locked() -> bool:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    if not wait_until(is_locked, _LONGEST_LOOK_S, _LONGEST_LOOK_S / 20):
        raise BlockingIOError


def _left_signature(path: Path) -> bytes:
    """Return the signature of a dead owner; empty without one, or if a process has the lock."""
    with storage_errors(path):
        if not path.exists():
            return b""
        descriptor = OwnDescriptor(partial(open_to_change, path, os.O_RDONLY))
        try:
            if not os.pread(descriptor.fileno(), _SIGNATURE_BYTES, 0):
                return b""  # without taking the lock, which might refuse a new owner
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return os.pread(descriptor.fileno(), _SIGNATURE_BYTES, 0)
        except BlockingIOError:
            return b""
        finally:
            descriptor.close()


def _describe_busy_owner(path: Path) -> str:
    owner = (read_if_there(path) or b"").decode(errors="replace").strip()
    try:
        one = json.loads(owner)
        remedy = f"kill -9 {int(one['pid'])} on {one['host']}"
    except (ValueError, TypeError, KeyError):
        remedy = "kill -9"
    return (
        f"the writer that has the store stopped in the middle of removing or renaming a file: lock={path}"
        f" owner={owner or 'unknown'}; end that process ({remedy}) and try again"
    )
