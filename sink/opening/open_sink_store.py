"""Opens a store for a sink: makes the store and its topics if they do not exist, and a placer of logs.

Wrong settings are refused before ledger or logs change; the steps are those of every opening.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from sparklog.sink.config import SinkConfig
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.opening.access import MAINTENANCE_LOCK, keep_maintenance_out
from sparklog.sink.opening.open_log_dirs import LogDirs
from sparklog.sink.opening.open_store import OpenedStore, Opening, open_store
from sparklog.sink.past.write_cuts import write_due_cut
from sparklog.sink.place.placer import Placer
from sparklog.sink.quarantine.diverted_rows import Quarantine
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import keep_topic_configs
from sparklog.sink.store.topics import create_topics, plan_topics
from sparklog.sink.topic_settings import log_limits
from sparklog.storage_core.clock import Clock

__all__ = ["SinkStore", "open_sink_store"]


@dataclass(frozen=True, slots=True)
class SinkStore:
    """A store that a sink has opened.

    Attributes:
        ledger: open for writing; it names the topics of the settings.
        log_dirs: usable and offline ones.
        placer: of logs that end where the ledger says; it skips those on offline disks.
        quarantine: of diverted rows.
    """

    store: Store
    ledger: Ledger
    log_dirs: LogDirs
    placer: Placer
    quarantine: Quarantine

    def skip_offline(self) -> None:
        """Make the placer skip logs whose directories are offline."""
        names = self.log_dirs.offline
        rows = [self.ledger.rows[log] for log, state in self.ledger.states().items() if state.log_dir in names]
        self.placer.skip(np.array(rows, np.int64))


def open_sink_store(config: SinkConfig, clock: Clock, lock: WriterLock) -> SinkStore:
    """Open a store, making it and its topics if they do not exist.

    Raises:
        InvalidConfigError: the settings do not fit the store.
        LedgerDamagedError: the ledger can't be trusted.
        CorruptFileError, UnflushedRecordsLostError: committed bytes are gone.
    """
    store = Store.find_or_create(config.store, config.log_dirs, lock)
    quarantine = Quarantine(config.quarantine, store, lock)

    def plan(opened: OpenedStore) -> Callable[[], None]:
        usable = opened.log_dirs.prepare(config.log_dirs, opened.ledger.states())
        quarantine.open()
        added = plan_topics(store, opened.ledger, config, usable, clock.now_ms())
        return partial(_add_topics, opened, config, lock, added, usable)

    opening = Opening(
        lock=lock,
        follows_crash=lock.follows_crash or WriterLock.has_begun(config.store / MAINTENANCE_LOCK),
        plan=plan,
        keep_maintenance_out=partial(keep_maintenance_out, config.store),
    )
    opened = open_store(store, opening)
    ledger = opened.ledger
    directories = [store.log_path(state) for state in ledger.all_states()]
    placer = Placer(ledger, lock, clock, directories, log_limits(config, ledger), config.offsets == "preserved")
    of_sink = SinkStore(store, ledger, opened.log_dirs, placer, quarantine)
    of_sink.skip_offline()
    return of_sink


def _add_topics(
    opened: OpenedStore, config: SinkConfig, lock: WriterLock, added: list[LogState], usable: list[str]
) -> None:
    if added:
        changed_ms = max(state.updated_ms for state in added)
        write_due_cut(opened.store.root, opened.ledger, lock, changed_ms, config.cuts)
    with_segment = config.offsets == "assigned"
    create_topics(opened.store, opened.ledger, added, usable, with_segment=with_segment, owner=lock)
    preserved = () if with_segment else config.topics
    settings = {name: topic.log for name, topic in config.topics.items()}
    settings |= {name: topic.settings for name, topic in config.mirrored.items()}
    others = {name: topic.others for name, topic in config.mirrored.items()}
    keep_topic_configs(opened.store, settings, lock, preserved, others)
