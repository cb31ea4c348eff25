"""Finishes interrupted cleanings before any other change of the logs.

A reader finds a replaced segment under either name. Retention and truncation would miss a segment without its final
name. A run that ended well may leave one, too: a lost lease, a disk error or the death of a task stops a cleaning
between two renames. So every owner of the maintenance lock checks every log.
"""

import logging

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.store.log_dirs import check_log_dirs, states_online
from sparklog.sink.store.map_logs import map_logs
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.cleaner.swap import finish_swaps, has_swaps
from sparklog.storage_core.errors import LogStorageError, WriterFencedError
from sparklog.storage_core.storage.owned_names import Owner
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["finish_cleaning", "finish_cleanings"]

logger = logging.getLogger(__name__)


def finish_cleaning(store: Store, state: LogState, owner: Owner) -> None:
    """Finish or undo the replacement of segments in one log.

    Raises:
        CorruptFileError: a replacement is damaged; nothing was changed.
        StoreLockedError: a task still holds the log.
        StorageError: the disk refused; the next call continues.
        WriterFencedError: another run owns the store.
    """
    directory = store.log_path(state)
    if has_swaps(directory, state.active_base_offset):
        finish_swaps(directory, state.active_base_offset, owner)
        logger.info("Finished a replacement of segments path=%s", directory)


def finish_cleanings(store: Store, lock: WriterLock) -> None:
    """Finish or undo the replacement of segments in every log that is not offline; the maintenance lock is held.

    A log where that fails is skipped with a warning: a task of a dead run may still hold it, a disk may refuse, or the
    replacement is damaged, which `verify` reports and `repair` mends.

    Raises:
        LedgerDamagedError: the ledger can't be trusted.
        WriterFencedError: the lock was taken by force.
    """
    states = Ledger.open(store.ledger_path).states()
    online = list(states_online(states, check_log_dirs(store, states.values())).items())

    map_logs(lambda each: _try_to_finish(store, *each, lock), online)


def _try_to_finish(store: Store, log: TopicPartition, state: LogState, lock: WriterLock) -> None:
    try:
        finish_cleaning(store, state, lock)
    except WriterFencedError:
        raise
    except LogStorageError as error:
        logger.warning("A replacement of segments is left unfinished log=%s (%s)", log, error)
