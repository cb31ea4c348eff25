"""Opens a store for commands without a sink: beside a running sink, or in its place.

Two lock files hold their owner's signature. The owner of `writer.lock` changes ends, active segments and the set of
logs; the owner of `maintenance.lock` raises log starts and removes closed segments, also beside a sink. A signature
that remains in either shows that its owner crashed: the next opening recovers the store.
"""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.locks.broker_lock import refuse_brokers
from sparklog.sink.locks.signed_off_version import sign_off_version
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.opening.finish_cleanings import finish_cleanings
from sparklog.sink.opening.open_store import Opening, open_store
from sparklog.sink.store.log_dirs import find_unreadable
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import LedgerDamagedError, LogStorageError, StoreLockedError, WriterFencedError

__all__ = [
    "MAINTENANCE_LOCK",
    "WRITER_LOCK",
    "MaintainedStore",
    "WrittenStore",
    "both_locks",
    "enter_writer",
    "keep_maintenance_out",
    "maintaining",
    "writing",
]

logger = logging.getLogger(__name__)

WRITER_LOCK = "writer.lock"
MAINTENANCE_LOCK = "maintenance.lock"
_MAINTENANCE = "another maintenance run"


@dataclass(frozen=True, slots=True)
class MaintainedStore:
    """A store whose closed segments may be removed, beside a running sink."""

    store: Store
    lock: WriterLock

    @contextlib.contextmanager
    def try_writer(self) -> Iterator["WrittenStore | None"]:
        """Take the writer lock, too, and yield the store for writing; None while a sink holds the lock.

        Raises:
            LedgerDamagedError: the ledger can't be trusted.
            CorruptFileError: committed bytes are gone.
        """
        try:
            lock = WriterLock.acquire(self.store.root / WRITER_LOCK)
        except StoreLockedError:
            yield None
            return
        with _released(lock):
            try:
                written = _take_over(self.store, lock, follows_crash=lock.follows_crash or self.lock.follows_crash)
            except LedgerDamagedError:  # after other errors the run may continue without the writer lock
                if not self.lock.follows_crash:
                    self.lock.sign_off()  # no partial write of ours: the next opening must keep the newest entry
                raise
            yield written
            sign_off_version(self.store.ledger_path, lock, written.ledger.version)
            lock.sign_off()


@dataclass(frozen=True, slots=True)
class WrittenStore:
    """A store whose two locks the caller holds."""

    store: Store
    ledger: Ledger
    lock: WriterLock


def enter_writer(maintained: MaintainedStore, held: contextlib.ExitStack) -> WrittenStore | None:
    """Return a store open for writing until the stack ends; None while a sink has it, or if its opening fails.

    What needs no writer lock, as retention of closed segments, continues without it.

    Raises:
        WriterFencedError: the store was taken by force.
        LedgerDamagedError: the ledger can't be trusted.
    """
    try:
        return held.enter_context(maintained.try_writer())
    except (WriterFencedError, LedgerDamagedError):
        raise
    except LogStorageError as error:
        logger.warning("The store can't be opened for writing: %s", error)
        return None


@contextlib.contextmanager
def maintaining(root: Path) -> Iterator[MaintainedStore]:
    """Hold the maintenance lock of a store, and finish interrupted cleanings.

    If a sink or a maintenance run crashed and no sink runs, its torn last commit is dropped first.

    Raises:
        InvalidConfigError: no store is there, or another copy of the store has a log directory.
        StoreLockedError: another maintenance run holds it, the message names it; or a broker has a log directory.
        LedgerDamagedError: the ledger can't be trusted.
    """
    store = Store.find(root)
    with _released(WriterLock.acquire(root / MAINTENANCE_LOCK, holder=_MAINTENANCE)) as lock:
        maintained = MaintainedStore(store, lock)
        if lock.follows_crash or WriterLock.owner_crashed(root / WRITER_LOCK):
            _recover(maintained)
        _refuse_others_roots(store)
        lock.begin()
        finish_cleanings(store, lock)
        yield maintained
        version = Ledger.open_beside_writer(store.ledger_path).version  # durable, whichever writer committed it
        sign_off_version(store.ledger_path, lock, version)
        lock.sign_off()


def _refuse_others_roots(store: Store) -> None:
    """Refuse log directories that another copy of the store has, or a broker."""
    states = Ledger.open(store.ledger_path).states().values()
    names = {state.log_dir for state in states} - set(find_unreadable(store, states))
    store.refuse_claimed(names)
    refuse_brokers(store.log_dir(name) for name in names)


def _recover(maintained: MaintainedStore) -> None:
    """Recover from a crash; a log where that fails only warns.

    The writer lock then keeps its signature, so that the next opening recovers, too.
    """
    try:
        with maintained.try_writer():
            pass
    except (WriterFencedError, LedgerDamagedError, StoreLockedError):
        raise
    except LogStorageError as error:
        logger.warning("Recovery from a crash can't be finished yet: %s", error)


@contextlib.contextmanager
def both_locks(root: Path) -> Iterator[tuple[WriterLock, WriterLock]]:
    """Hold the writer lock and the maintenance lock of a store.

    A caller that changes ledger or logs first calls `begin` of both, and `sign_off` of both after success.

    Raises:
        StoreLockedError: a sink or a maintenance run holds one; the message names it.
    """
    with (
        _released(WriterLock.acquire(root / WRITER_LOCK)) as lock,
        _released(WriterLock.acquire(root / MAINTENANCE_LOCK, holder=_MAINTENANCE)) as maintenance,
    ):
        lock.check()  # the maintenance lock now prevents a taking by force
        yield lock, maintenance


@contextlib.contextmanager
def writing(root: Path) -> Iterator[WrittenStore]:
    """Hold both locks of a store that is open for writing, recovered from a crash, its cleanings finished.

    No process can take the store by force meanwhile, so files may be renamed and removed.

    Raises:
        InvalidConfigError: no store is there.
        StoreLockedError: a sink or a maintenance run holds a lock; the message names it.
        LedgerDamagedError: the ledger can't be trusted.
        CorruptFileError, UnflushedRecordsLostError: committed bytes are gone.
    """
    store = Store.find(root)
    with both_locks(root) as (lock, maintenance):
        follows_crash = lock.follows_crash or maintenance.follows_crash
        written = _take_over(store, lock, maintenance, follows_crash=follows_crash)
        finish_cleanings(store, maintenance)
        yield written
        sign_off_version(store.ledger_path, lock, written.ledger.version)
        maintenance.sign_off()
        lock.sign_off()


@contextlib.contextmanager
def keep_maintenance_out(root: Path) -> Iterator[None]:
    """Hold the maintenance lock, too; if its last owner crashed, its mark stays for the next opening.

    Raises:
        StoreLockedError: a maintenance run or an owner of both locks holds it; the message names it.
    """
    with _released(WriterLock.acquire(root / MAINTENANCE_LOCK, holder=_MAINTENANCE)):
        yield


def _take_over(store: Store, lock: WriterLock, *beside: WriterLock, follows_crash: bool) -> WrittenStore:
    """Open a store for writing; args as in `Opening`."""
    opened = open_store(store, Opening(lock=lock, follows_crash=follows_crash, beside=beside))
    return WrittenStore(store, opened.ledger, lock)


@contextlib.contextmanager
def _released(lock: WriterLock) -> Iterator[WriterLock]:
    """Release a lock at the end; its signature stays unless its owner signs off."""
    try:
        yield lock
    finally:
        lock.release()
