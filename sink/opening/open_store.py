"""Opening a store for writing: one list of steps, in one order, for the writer, maintenance, operations and repair.

Until `WriterLock.begin` no step changes what the ledger or a log says: an opening that is refused by then leaves the
store as it was found. After it, a crash makes the next opening look at every log closely.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.lost_ranges import LostRangeTable
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.opening.clean_end import refuse_surplus
from sparklog.sink.opening.finish_truncation import finish_truncations
from sparklog.sink.opening.open_log_dirs import LogDirs, open_log_dirs, take_log_dirs
from sparklog.sink.opening.undo import cut_back_torn, find_torn_online, renew, renew_returned, settle_cuts
from sparklog.sink.opening.unflushed import check_unflushed, flush_logs
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["OpenedStore", "Opening", "open_store"]


@dataclass(frozen=True, slots=True)
class OpenedStore:
    """A store that is open for writing.

    Attributes:
        store: its folder.
        ledger: open for writing.
        log_dirs: which can be used.
        torn: logs that had anything above their committed ends, and were cut back.
    """

    store: Store
    ledger: Ledger
    log_dirs: LogDirs
    torn: Sequence[TopicPartition]


def _plan_nothing(_opened: OpenedStore) -> Callable[[], None]:
    return lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What differs from one opening to another.

    Attributes:
        lock: the writer lock.
        follows_crash: whether the last owner of the writer lock or of the maintenance lock crashed: maintenance commits
            to the ledger, too.
        is_mended: whether this owner has mended logs, and kept what lay above their committed ends: they are looked at
            as behind a crash.
        beside: other locks that were taken for this opening alone.
        plan: checks what the caller is going to add, before anything is changed; returns what adds it.
        keep_maintenance_out: is entered to finish a truncation, which needs both locks.
    """

    lock: WriterLock
    follows_crash: bool
    is_mended: bool = False
    beside: tuple[WriterLock, ...] = ()
    plan: Callable[[OpenedStore], Callable[[], None]] = _plan_nothing
    keep_maintenance_out: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext


def open_store(store: Store, opening: Opening) -> OpenedStore:
    """Open a store whose writer lock the caller holds.

    Raises:
        LedgerDamagedError: the ledger can't be trusted.
        LogDirOfflineError: no log directory can be used.
        CorruptFileError, UnflushedRecordsLostError: committed bytes are gone.
        WriterFencedError: another writer owns the store.
    """
    lock = opening.lock
    looks_closely = lock.follows_crash or opening.is_mended
    # The ledger is the truth for every later step. A torn newest entry would stop each of them; the commit that fences
    # comes before `begin`, so a taker by force may leave one that no crash tells of.
    may_be_torn = opening.follows_crash or lock.owes_renewal
    ledger = Ledger.open_for_writing(store.ledger_path, lock, follows_crash=may_be_torn)
    # Before the first look at a log: bytes that a broker or another copy of the store writes meanwhile are not ours.
    offline = take_log_dirs(store, ledger, lock)
    # Before the first commit and the first rename. A ledger that was restored from an older copy lets logs end lower
    # than they do, and a later step would cut off committed records. Of the two locks the writer's decides: a
    # maintenance run that crashed leaves nothing above a committed end.
    if not looks_closely:
        refuse_surplus(store, ledger, offline)
    # Before deletions and moves are finished: the former writer could still commit records to a log that is moved.
    if lock.owes_renewal:
        ledger.fence()
    # Before logs are looked at: a moved log may not have its name yet, and its committed bytes would seem gone.
    log_dirs = open_log_dirs(store, ledger, lock, offline)
    # Before `begin`: both only read, and a store that is refused here would otherwise be marked as crashed.
    check_unflushed(ledger, store.log_path, log_dirs.offline)
    torn = find_torn_online(log_dirs, ledger.states(), follows_crash=looks_closely)
    # Before anything is added: on a full disk staged files may take the room that new logs need.
    store.sweep_staging(lock)
    opened = OpenedStore(store, ledger, log_dirs, torn)
    add = opening.plan(opened)
    # From here on ledger and logs change. A crash without this mark would leave bytes above committed ends that the
    # next opening has to take for damage.
    for each in (lock, *opening.beside):
        each.begin()
    # Before the lock forgets that it was taken by force: logs that can't be renewed now say so themselves.
    log_dirs.note_offline()
    # Before the states are taken: logs that are added here are among those that are renewed and synced below.
    add()
    states = ledger.states()
    # Before the first append, which would otherwise follow uncommitted bytes. After a taking by force a cut is not
    # enough: the former writer still has the files open, so each log gets new ones.
    if lock.owes_renewal:
        renew(log_dirs, states, lock)
    else:
        cut_back_torn(log_dirs, states, torn, lock)
    # Also where there was nothing left to cut: the crashed writer may have cut and not synced. A power failure would
    # bring index entries back that point to places which other records have by then.
    if looks_closely:
        settle_cuts(log_dirs, states)
    # After the cuts: this forgets which directories were offline, and a crash in between would leave their logs uncut.
    # It also commits which deletions and moves are done. No commit comes before `begin`: one that a power failure tore
    # would look like damage after a clean end.
    renew_returned(log_dirs, states, lock)
    # Before truncations, which add to the lost ranges: a commit on a torn entry fails.
    if opening.follows_crash:
        LostRangeTable(store.root / "control" / "lost_ranges").drop_torn(lock)
    # Before the logs are synced: a truncation fills a log up, and moves its end.
    finish_truncations(store, ledger, lock, log_dirs.offline, opening.keep_maintenance_out)
    # Last: what is above a recovery point after this was appended by this owner.
    flush_logs(ledger, store.log_path, lock, log_dirs.offline)
    return opened
