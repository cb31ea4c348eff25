"""Checks and syncs committed records above recovery points: a power cut may have taken them from the page cache.

A flush policy may leave committed records in the page cache. Every opening for writing reads them: lost records are an
error, and nothing is appended after them. Whole ones are synced at once, so later only this writer's records lie above
a recovery point.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.storage_core.errors import UnflushedRecordsLostError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.log.files.committed_end import CommittedEnd
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.log.read.unflushed import first_lost_offset, unflushed_segments
from sparklog.storage_core.storage.local import storage_errors, sync_directories, sync_files
from sparklog.storage_core.storage.owned_names import Owner
from sparklog.storage_core.storage.write_back import drop_cached

__all__ = ["check_unflushed", "distrust_cache", "flush_logs"]

logger = logging.getLogger(__name__)

_THREADS = 4
_NAMED = 5
"""Logs that an error names; it counts the others."""


def check_unflushed(ledger: Ledger, directory_of: Callable[[LogState], Path], offline: Collection[str] = ()) -> None:
    """Check that every committed record above a recovery point can be read; changes nothing.

    Logs with a missing directory are skipped; `find_torn` reports them.

    Raises:
        UnflushedRecordsLostError: some can't.
    """
    states = [state for state in _unflushed(ledger, offline).values() if directory_of(state).is_dir()]
    if not states:
        return
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="unflushed") as pool:
        lost = list(pool.map(lambda state: first_lost_offset(directory_of(state), *_bounds(state)), states))
    problems = [
        f"log={state.topic}-{state.partition} offsets={first}..{state.log_end_offset - 1}"
        for state, first in zip(states, lost, strict=True)
        if first is not None
    ]
    if problems:
        more = f" and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
        raise UnflushedRecordsLostError(
            "committed records that the flush policy left in the page cache did not survive:"
            f" {'; '.join(problems[:_NAMED])}{more}: `sparklog repair STORE --execute` keeps the readable ones and"
            " records the others as lost; then writing continues above them"
        )
    logger.info("Committed records above the recovery point are whole logs=%d", len(states))


def flush_logs(
    ledger: Ledger,
    directory_of: Callable[[LogState], Path],
    owner: Owner,
    offline: Collection[str] = (),
) -> int:
    """Sync every log and raise its recovery point to its end; return the number of logs that needed it.

    Raises:
        StorageError: the disk refused; recovery points stay.
        WriterFencedError: another writer owns the store.
    """
    behind = {row: state for row, state in _unflushed(ledger, offline).items() if directory_of(state).is_dir()}
    if not behind:
        return 0
    segments = [
        segment for state in behind.values() for segment in unflushed_segments(directory_of(state), *_bounds(state))
    ]
    indexes = [path for each in segments for path in (each.index_path, each.time_index_path) if path.exists()]
    owner.check()
    with storage_errors("log directories"):
        sync_files([each.log_path for each in segments])
        sync_files(indexes)
        sync_directories([directory_of(state) for state in behind.values()])
    reach("flush.synced")
    points = np.array([state.log_end_offset for state in behind.values()], np.int64)
    ledger.raise_recovery_points(np.array(list(behind), np.int64), points, owner)
    return len(behind)


def distrust_cache(ledger: Ledger, directory_of: Callable[[LogState], Path]) -> bool:
    """Return whether a log has records above its recovery point, and drop them from the page cache.

    For a writer after a disk error: a later fsync may succeed without them, so no recovery point may rise before the
    disk was read.
    """
    behind = list(_unflushed(ledger, ()).values())
    drop_cached(directory_of(state) / segment_file_name(state.active_base_offset, LOG) for state in behind)
    return bool(behind)


def _unflushed(ledger: Ledger, offline: Collection[str]) -> Mapping[int, LogState]:
    rows = np.flatnonzero(ledger.column("recovery_point") < ledger.column("log_end_offset"))
    states = {row: ledger.state(row) for row in rows.tolist()}
    return {row: state for row, state in states.items() if state.log_dir not in offline}


def _bounds(state: LogState) -> tuple[int, CommittedEnd]:
    return state.recovery_point, state.committed_end
