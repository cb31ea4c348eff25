"""After a clean end, bytes past a log's committed end are damage, which an opening refuses and does not truncate.

A writer that ends well has cut back its uncommitted bytes, or ledger rows name the logs that it could not reach. So
either the bytes or the ledger come from elsewhere: a ledger restored from an older copy ends below its logs. Empty
files are skipped: they belong to segments that were begun and not written.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from sparklog.sink.ledger.ledger import Ledger, ledger_log
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.locks.signed_off_version import is_signed_off
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.store.log_dirs import find_unreadable
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import LedgerDamagedError
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.log.files.segments import list_segments
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["find_surplus", "refuse_surplus", "surplus_files"]

_LOCK = "writer.lock"


def refuse_surplus(store: Store, ledger: Ledger, offline: Collection[str]) -> None:
    """Refuse a store that is opened after a clean end and has bytes past a log's committed end.

    Args:
        store: the caller holds the locks of its log directories; another copy's bytes are no surplus.
        offline: log directories to skip.

    Raises:
        LedgerDamagedError: it has such bytes; nothing was changed.
    """
    if not is_signed_off(store.ledger_path):
        return
    found = _find(store, ledger.states(), offline)
    if found is not None:
        raise LedgerDamagedError(found)


def find_surplus(store: Store, states: Mapping[TopicPartition, LogState], version: int) -> str | None:
    """Describe bytes past a committed end in a store that has no writer and was closed well; None without any.

    Args:
        store: only read; a writer may take it at any time.
        states: of the ledger.
        version: of the ledger that has these states.

    Raises:
        CorruptFileError: a file below `control/` is damaged, so this is unknown.
    """
    if not _is_at_rest(store) or not is_signed_off(store.ledger_path):
        return None
    offline = find_unreadable(store, states.values())
    found = _find(store, states, offline)
    if found is None or ledger_log(store.ledger_path).newest_version() != version or not _is_at_rest(store):
        return None
    return _find(store, states, offline)  # again: a writer may have come and gone during the first look


def _is_at_rest(store: Store) -> bool:
    """Whether no writer holds the store, and the last one ended well."""
    return WriterLock.ended_well(store.root / _LOCK)


def surplus_files(store: Store, states: Mapping[TopicPartition, LogState]) -> Iterator[tuple[Path, int, int]]:
    """Yield every segment with bytes past its log's committed end: path, committed bytes, size."""
    for state in states.values():
        directory = store.log_path(state)
        for segment in list_segments(directory) if directory.is_dir() else []:
            if segment.base_offset < state.active_base_offset:
                continue
            committed = state.active_size_bytes if segment.base_offset == state.active_base_offset else 0
            if (size := _size(segment.log_path)) > committed:
                yield segment.log_path, committed, size


def _find(store: Store, states: Mapping[TopicPartition, LogState], offline: Collection[str]) -> str | None:
    """Check the active segment and the one after it, of each log that can be judged."""
    roots: dict[str, str] = {}
    for log, state in states.items():
        if state.log_dir in offline or state.owes or state.intent:
            continue
        directory = roots.setdefault(state.log_dir, os.fspath(store.log_dir(state.log_dir))) + f"/{log.directory_name}/"
        for base, committed in {state.log_end_offset: 0, state.active_base_offset: state.active_size_bytes}.items():
            name = segment_file_name(base, LOG)
            if _size(directory + name) > committed:
                return (
                    f"bytes lie past a log's committed end, though the store was closed well: file={directory}{name}"
                    f" committed_bytes={committed} log_end_offset={state.log_end_offset}; restore ledger, logs and"
                    " control folder of one moment, or run sparklog repair STORE --execute: it copies, then drops them"
                )
    return None


def _size(path: str | Path) -> int:
    with storage_errors(path):
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return 0
