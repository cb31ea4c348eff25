"""What opening a store for a sink does, in its order: checks first, then what a crash left, then new topics.

Until `WriterLock.begin` nothing of ledger or logs has been changed: whoever is refused by then leaves the store as it
was found. What settings get wrong is refused before that.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from sparklog.sink.config import SinkConfig
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.lost_ranges import LostRangeTable
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.opening.access import MAINTENANCE_LOCK, keep_maintenance_out
from sparklog.sink.opening.clean_end import refuse_surplus
from sparklog.sink.opening.finish_truncation import finish_truncations
from sparklog.sink.opening.open_log_dirs import LogDirs, open_log_dirs, take_log_dirs
from sparklog.sink.opening.undo import find_torn_online, renew, renew_returned, settle_cuts
from sparklog.sink.opening.unflushed import check_unflushed, flush_logs
from sparklog.sink.place.placer import Placer
from sparklog.sink.quarantine.diverted_rows import Quarantine
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import keep_topic_configs
from sparklog.sink.store.topics import create_topics, plan_topics
from sparklog.sink.topic_settings import log_limits
from sparklog.storage_core.clock import Clock

__all__ = ["OpenStore", "open_store"]


@dataclass(frozen=True, slots=True)
class OpenStore:
    """A store that a writer has opened.

    Attributes:
        store: its folder.
        ledger: open for writing; it names the topics of the settings.
        log_dirs: which can be used.
        placer: of logs that are as the ledger says; those on disks that are offline it leaves alone.
        quarantine: of diverted rows.
    """

    store: Store
    ledger: Ledger
    log_dirs: LogDirs
    placer: Placer
    quarantine: Quarantine

    def leave_offline(self) -> None:
        """Let the placer leave the logs alone whose directories are offline by now."""
        names = self.log_dirs.offline
        rows = [self.ledger.rows[log] for log, state in self.ledger.states().items() if state.log_dir in names]
        self.placer.leave(np.array(rows, np.int64))


def open_store(config: SinkConfig, clock: Clock, lock: WriterLock) -> OpenStore:
    """Open a store, making it and its topics if they are not there.

    Args:
        config: the sink's settings.
        clock: tells append times.
        lock: the writer lock.

    Raises:
        InvalidConfigError: the settings do not fit the store.
        LedgerDamagedError: the ledger can't be trusted.
        CorruptFileError, UnflushedRecordsLostError: committed bytes are gone.
    """
    by_force = lock.owes_renewal  # of this writer, or of one that died behind it
    store = Store.find_or_create(config.store, config.log_dirs, lock)
    follows_crash = lock.follows_crash or WriterLock.was_left(config.store / MAINTENANCE_LOCK)
    ledger = Ledger.open_for_writing(store.ledger_path, lock, follows_crash=follows_crash)
    offline = take_log_dirs(store, ledger, lock)
    if not lock.follows_crash:  # a maintenance that died leaves nothing above a committed end
        refuse_surplus(store, ledger, offline)
    if by_force:
        ledger.fence()  # from here on the earlier writer can't commit
    log_dirs = open_log_dirs(store, ledger, lock, offline)
    check_unflushed(ledger, store.log_path, log_dirs.offline)
    torn = find_torn_online(log_dirs, ledger.states(), follows_crash=lock.follows_crash)
    store.sweep_staging(lock)
    usable = log_dirs.prepare(config.log_dirs, ledger.states())
    quarantine = Quarantine(config.quarantine, store, lock)
    quarantine.open()
    added = plan_topics(store, ledger, config, usable, clock.now_ms())
    lock.begin()
    create_topics(store, ledger, added, usable, with_segment=config.offsets == "assigned", owner=lock)
    preserved = config.topics if config.offsets == "preserved" else ()
    keep_topic_configs(store, {name: topic.log for name, topic in config.topics.items()}, lock, preserved)
    states = ledger.states()
    directories = [store.log_path(state) for state in states.values()]
    placer = Placer(ledger, lock, clock, directories, log_limits(config, ledger), config.offsets == "preserved")
    opened = OpenStore(store, ledger, log_dirs, placer, quarantine)
    if by_force:
        renew(log_dirs, states, lock)
    else:
        placer.undo(np.array([ledger.rows[log] for log in torn], np.int64))
    if lock.follows_crash:
        settle_cuts(log_dirs, states)
    renew_returned(log_dirs, states, lock)
    opened.leave_offline()
    if follows_crash:
        LostRangeTable(config.store / "control" / "lost_ranges").drop_torn(lock)
    finish_truncations(store, ledger, lock, log_dirs.offline, partial(keep_maintenance_out, config.store))
    flush_logs(ledger, store.log_path, lock, log_dirs.offline)
    return opened
