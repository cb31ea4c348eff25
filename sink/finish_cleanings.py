"""Finishes what a maintenance run that died left of its cleanings, before another one looks at the logs.

Readers find a replaced segment under either name. Who plans what to delete or clean must not: for it a segment without
its name is none.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from sink.ledger import Ledger
from sink.ledger_rows import LogState
from sink.log_dirs import check_log_dirs, states_online
from sink.store import Store
from sink.writer_lock import WriterLock
from storage_core.cleaner.swap import finish_swaps, has_swaps
from storage_core.errors import LogStorageError, WriterFencedError

__all__ = ["finish_cleanings"]

logger = logging.getLogger(__name__)


def finish_cleanings(store: Store, lock: WriterLock) -> None:
    """Finish or undo the replacement of segments in every log that is not offline; the maintenance lock is held.

    A log where that fails is left as it is, and keeps nobody from the others: a task of a dead run may still hold it, a
    disk may refuse, or the replacement is damaged, which a check of the store names and a repair mends.

    Raises:
        LedgerDamagedError: the ledger can't be trusted.
        WriterFencedError: the lock was taken by force.
    """
    states = Ledger.open(store.ledger_path).states()
    for log, state in states_online(states, check_log_dirs(store, states.values())).items():
        try:
            _finish(store.log_path(state), state, lock.check)
        except WriterFencedError:
            raise
        except LogStorageError as error:
            logger.warning("A replacement of segments is left unfinished log=%s (%s)", log, error)


def _finish(directory: Path, state: LogState, check_owner: Callable[[], None]) -> None:
    if has_swaps(directory, state.active_base_offset):
        finish_swaps(directory, state.active_base_offset, check_owner)
        logger.info("Finished a replacement of segments path=%s", directory)
