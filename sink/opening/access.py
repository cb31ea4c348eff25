"""Access to a store for those who change it without a sink: beside a running one, or in its place.

Two locks, both files that hold their owner's signature: `writer.lock` for whoever changes ends, active segments or the
set of logs, `maintenance.lock` for whoever raises log starts and removes closed segments. The second may work beside a
sink. A signature that is left in either says that its owner died, and the next opening of the store looks closely.
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
        """Give the writer's part of the store too, or None while a sink holds it.

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
            except LedgerDamagedError:  # behind other errors it may go on without the writer
                if not self.lock.follows_crash:
                    self.lock.sign_off()  # what it has done is whole: the next opening must not drop the newest entry
                raise
            yield written
            sign_off_version(self.store.ledger_path, lock, written.ledger.version)
            lock.sign_off()


@dataclass(frozen=True, slots=True)
class WrittenStore:
    """A store that nobody else writes or maintains."""

    store: Store
    ledger: Ledger
    lock: WriterLock


@contextlib.contextmanager
def maintaining(root: Path) -> Iterator[MaintainedStore]:
    """Hold the maintenance lock of a store.

    Where a sink or a maintenance died and no sink runs, its last commit may be torn, and is dropped first. What
    cleanings have left half way is finished, in each log where that can be done.

    Raises:
        InvalidConfigError: no store is there.
        InvalidConfigError: another copy of the store has a log directory.
        StoreLockedError: another maintenance runs, the message says who; or a broker has a log directory.
        LedgerDamagedError: the ledger can't be trusted.
    """
    store = Store.find(root)
    with _released(WriterLock.acquire(root / MAINTENANCE_LOCK, holder=_MAINTENANCE)) as lock:
        maintained = MaintainedStore(store, lock)
        if lock.follows_crash or WriterLock.was_left(root / WRITER_LOCK):
            _look_closely(maintained)
        _refuse_others_roots(store)
        lock.begin()
        finish_cleanings(store, lock)
        yield maintained
        version = Ledger.open_beside_writer(store.ledger_path).version  # durable, whichever writer committed it
        sign_off_version(store.ledger_path, lock, version)
        lock.sign_off()


def _refuse_others_roots(store: Store) -> None:
    """Keep a maintenance from log directories that another copy of the store has, or a broker."""
    states = Ledger.open(store.ledger_path).states().values()
    names = {state.log_dir for state in states} - set(find_unreadable(store, states))
    store.refuse_claimed(names)
    refuse_brokers(store.log_dir(name) for name in names)


def _look_closely(maintained: MaintainedStore) -> None:
    """Finish what a dead owner left; a log that is in no state to be written keeps nobody from the others.

    The writer lock then keeps its signature, so that the next opening looks closely, too.
    """
    try:
        with maintained.try_writer():
            pass
    except (WriterFencedError, LedgerDamagedError, StoreLockedError):
        raise
    except LogStorageError as error:
        logger.warning("What a dead owner left can't be finished yet: %s", error)


@contextlib.contextmanager
def both_locks(root: Path) -> Iterator[tuple[WriterLock, WriterLock]]:
    """Hold the writer lock and the maintenance lock of a store.

    Who changes ledger or logs begins with both before, and signs off from both when he is done well.

    Raises:
        StoreLockedError: a sink or a maintenance runs; the message says who.
    """
    with (
        _released(WriterLock.acquire(root / WRITER_LOCK)) as lock,
        _released(WriterLock.acquire(root / MAINTENANCE_LOCK, holder=_MAINTENANCE)) as maintenance,
    ):
        lock.check()  # from here on no process takes it by force
        yield lock, maintenance


@contextlib.contextmanager
def writing(root: Path) -> Iterator[WrittenStore]:
    """Hold both locks of a store, its ledger opened for writing, what a crash left undone, cleanings finished.

    Nobody can take the store by force meanwhile: its files are renamed and removed here, not only added to.

    Raises:
        InvalidConfigError: no store is there.
        StoreLockedError: a sink or a maintenance runs; the message says who.
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
    """Hold the maintenance lock for what the writer alone can't do; what its last owner left is said on.

    Raises:
        StoreLockedError: a maintenance runs, or whoever has both locks; the message says who.
    """
    with _released(WriterLock.acquire(root / MAINTENANCE_LOCK, holder=_MAINTENANCE)):
        yield


def _take_over(store: Store, lock: WriterLock, *beside: WriterLock, follows_crash: bool) -> WrittenStore:
    """Open a store for writing.

    Args:
        store: to open.
        lock: the writer lock.
        beside: other locks that were taken for this alone.
        follows_crash: whether the ledger's last entry may be torn; a maintenance may have left it so.
    """
    opened = open_store(store, Opening(lock=lock, follows_crash=follows_crash, beside=beside))
    return WrittenStore(store, opened.ledger, lock)


@contextlib.contextmanager
def _released(lock: WriterLock) -> Iterator[WriterLock]:
    """Give a lock back at the end; its signature stays unless its owner signs off."""
    try:
        yield lock
    finally:
        lock.release()
