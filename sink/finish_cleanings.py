"""Finishes what a maintenance run that died left of its cleanings, before another one looks at the logs.

Readers find a replaced segment under either name. Who plans what to delete or clean must not: for it a segment without
its name is none.
"""

import logging

from sink.ledger import Ledger
from sink.log_dirs import check_log_dirs, states_online
from sink.store import Store
from sink.writer_lock import WriterLock
from storage_core.cleaner.swap import finish_swaps, has_swaps
from storage_core.errors import CorruptFileError

__all__ = ["finish_cleanings"]

logger = logging.getLogger(__name__)


def finish_cleanings(store: Store, lock: WriterLock) -> None:
    """Finish or undo the replacement of segments in every log that is not offline; the maintenance lock is held.

    A log whose replacement is damaged is left as it is: a check of the store names it, and a repair mends it.

    Raises:
        StorageError: a disk refused; the next call goes on.
        WriterFencedError: the lock was taken by force.
    """
    states = Ledger.open(store.ledger_path).states()
    for log, state in states_online(states, check_log_dirs(store, states.values())).items():
        directory = store.log_path(state)
        if not has_swaps(directory, state.active_base_offset):
            continue
        try:
            finish_swaps(directory, state.active_base_offset, lock.check)
        except CorruptFileError as error:
            logger.warning("A replacement of segments is left unfinished log=%s (%s)", log, error)
        else:
            logger.info("Finished a replacement of segments log=%s", log)
