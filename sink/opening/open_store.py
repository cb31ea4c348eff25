"""Opens a store for writing, also a reopen after a crash: one list of steps for writer, maintenance and repair.

Before `WriterLock.begin` no step changes the ledger or the records of a log, so an opening that is refused there leaves
the store as it was. After it, a crash makes the next opening check every log.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparklog.sink.ledger.group_table import GroupTable
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.lost_ranges import LostRangeTable
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.opening.clean_end import refuse_surplus
from sparklog.sink.opening.finish_intents import expect_undone_no_more
from sparklog.sink.opening.finish_truncation import finish_truncations
from sparklog.sink.opening.open_log_dirs import LogDirs, open_log_dirs, take_log_dirs
from sparklog.sink.opening.undo import cut_back_torn, find_torn_online, renew, renew_returned, sync_cuts
from sparklog.sink.opening.unflushed import check_unflushed, flush_logs
from sparklog.sink.past.write_cuts import drop_torn_cuts
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["OpenedStore", "Opening", "open_store"]


@dataclass(frozen=True, slots=True)
class OpenedStore:
    """A store that is open for writing.

    Attributes:
        log_dirs: usable and offline ones.
        torn: logs that had bytes past their committed ends, and were cut back.
    """

    store: Store
    ledger: Ledger
    log_dirs: LogDirs
    torn: Sequence[TopicPartition]


def _plan_nothing(_opened: OpenedStore) -> Callable[[], None]:
    return lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Differences between openings.

    Attributes:
        follows_crash: whether the last owner of the writer lock or of the maintenance lock crashed: maintenance commits
            to the ledger, too.
        is_mended: whether this owner has repaired logs: they are checked as after a crash.
        beside: other locks that were taken only for this opening.
        plan: checks the caller's additions before any change; returns the function that makes them.
        keep_maintenance_out: entered to finish a truncation, or to undo an import, which needs both locks.
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
    is_recovery = lock.follows_crash or opening.is_mended
    # Every later step relies on the ledger, and fails on a torn newest entry. The commit that fences comes before
    # `begin`: a crashed taker by force may leave a torn entry without a crash mark.
    may_be_torn = opening.follows_crash or lock.owes_renewal
    ledger = Ledger.open_for_writing(store.ledger_path, lock, follows_crash=may_be_torn)
    # Before the first look at a log: bytes that a broker or another copy of the store writes meanwhile are not ours.
    offline = take_log_dirs(store, ledger, lock)
    # Before the first commit and the first rename. A ledger restored from an older copy ends below its logs, and a
    # later step would truncate committed records. Only the writer lock's mark decides: a maintenance run that crashed
    # leaves no bytes past a committed end.
    if not is_recovery:
        refuse_surplus(store, ledger, offline)
    # Before deletions and moves are finished: the former writer could still commit records to a log that is moved.
    if lock.owes_renewal:
        ledger.fence()
    # Before the rows of undone imports go, which name their logs.
    expect_undone_no_more(store, ledger, lock, opening.keep_maintenance_out)
    # Before logs are checked: a moved log may not have its name yet, and its committed bytes would seem gone.
    log_dirs = open_log_dirs(store, ledger, lock, offline)
    # Before `begin`: both only read, and a store refused here must not be marked as crashed.
    check_unflushed(ledger, store.log_path, log_dirs.offline)
    torn = find_torn_online(log_dirs, ledger.states(), follows_crash=is_recovery)
    # Before topics are added: on a full disk staged files may take the room that new logs need.
    store.sweep_staging(lock)
    opened = OpenedStore(store, ledger, log_dirs, torn)
    add = opening.plan(opened)
    # From here on ledger and logs change. After a crash without this mark the next opening would refuse bytes past
    # committed ends as damage.
    for each in (lock, *opening.beside):
        each.begin()
    # Before topics are added: the cut that is due comes first.
    if opening.follows_crash:
        drop_torn_cuts(store.root, lock)
    # Before the lock forgets that it was taken by force: rows of logs that can't be renewed now record it.
    log_dirs.note_offline()
    # Before the states are taken: logs added here are renewed and synced below.
    add()
    states = ledger.states()
    # Before the first append, which must not follow uncommitted bytes. After a taking by force a truncation is not
    # enough: the former writer still has the files open, so each log gets new ones.
    if lock.owes_renewal:
        renew(log_dirs, states, lock)
    else:
        cut_back_torn(log_dirs, states, torn, lock)
    # Also without a truncation here: the crashed writer may have truncated without a sync. A power failure would
    # bring back index entries, which then point into newer batches.
    if is_recovery:
        sync_cuts(log_dirs, states)
    # After the truncations: this clears the debts of offline logs, and a crash in between would leave them untruncated.
    # It also commits finished deletions and moves. No commit comes before `begin`: torn by a power failure it
    # would look like damage after a clean end.
    renew_returned(log_dirs, states, lock)
    # Before truncations, which add to the lost ranges: a commit after a torn entry fails.
    if opening.follows_crash:
        LostRangeTable(store.root / "control" / "lost_ranges").drop_torn(lock)
        GroupTable(store.root).drop_torn(lock)
    # Before the logs are synced: a truncation fills a log up, and moves its end.
    finish_truncations(store, ledger, lock, log_dirs.offline, opening.keep_maintenance_out)
    # Last: after this, records above a recovery point are this owner's.
    flush_logs(ledger, store.log_path, lock, log_dirs.offline)
    return opened
