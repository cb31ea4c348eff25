"""Truncates a partial write: bytes that were never committed, at a writer's start and after a failed micro-batch."""

import io
import logging
import os
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.index.transaction_index import TRANSACTION_ENTRY_BYTES, parse_transaction_index
from sparklog.storage_core.log.append.state import load_append_state, trim_indexes
from sparklog.storage_core.log.files.committed_end import CommittedEnd
from sparklog.storage_core.log.files.names import (
    CLEANED,
    INDEX,
    LOG,
    SNAPSHOT,
    TIMEINDEX,
    TXNINDEX,
    parse_base_offset,
    segment_file_name,
)
from sparklog.storage_core.storage.local import storage_errors, sync_directories, sync_files
from sparklog.storage_core.storage.open_regular import open_reader, open_to_change, read_file
from sparklog.storage_core.storage.owned_names import Owner, remove_file
from sparklog.storage_core.storage.renew_files import renew_files, unshare_file

__all__ = ["cut_back", "cut_back_logs", "has_leftovers", "needs_cut_back", "renew_active_segment"]

logger = logging.getLogger(__name__)

_BASE_OFFSET_DIGITS = 20
_THREADS = 4


def needs_cut_back(directory: Path, end: CommittedEnd) -> bool:
    """Whether a crash left a partial write, as two `stat` calls show it.

    Looked at are the active segment's size and whether a segment starts at the log's end: without preserved offsets any
    segment of an unfinished micro-batch follows one that starts there.

    Raises:
        CorruptFileError: committed bytes are gone.
    """
    with storage_errors(directory):
        try:
            size = (directory / segment_file_name(end.segment_base, LOG)).stat().st_size
        except FileNotFoundError:
            size = 0
            if not directory.is_dir():
                raise CorruptFileError(f"the log is gone, the ledger names it: {directory}: restore it") from None
        if size < end.size_bytes:
            raise CorruptFileError(
                f"committed bytes are gone: segment={segment_file_name(end.segment_base, LOG)} in {directory}"
                f" has {size} bytes, the ledger names {end.size_bytes}: restore it from a copy"
            )
        beyond = end.log_end_offset != end.segment_base
        return size > end.size_bytes or (beyond and (directory / segment_file_name(end.log_end_offset, LOG)).exists())


def has_leftovers(directory: Path, end: CommittedEnd) -> bool:
    """Whether a crash left something that two `stat` calls don't show, as the directory's listing shows it.

    That is a segment which was not published yet, one above a gap of preserved offsets, or index entries that a power
    cut kept though it took the batches they point to.
    """
    active = [directory / segment_file_name(end.segment_base, suffix) for suffix in (LOG, INDEX, TIMEINDEX)]
    with storage_errors(directory):
        if any(directory / name not in active for name in _names_to_delete(directory, end)):
            return True
        if end.size_bytes == 0:
            return any(path.exists() and path.stat().st_size for path in active)
        return _has_torn_index(directory, end)


def cut_back(directory: Path, end: CommittedEnd, owner: Owner) -> npt.NDArray[np.void]:
    """Make one log end exactly at its committed end, durably; returns its () `APPEND_STATE`."""
    cut_back_logs([(directory, end)], owner)
    return load_append_state(directory, end, 0, 0, owner)


def cut_back_logs(logs: Sequence[tuple[Path, CommittedEnd]], owner: Owner) -> None:
    """Make logs end exactly at their committed ends, durably.

    Later segments go first: if the process dies after an active segment was cut, the next start must still see that
    there is something to undo. What is cut is synced before it may be appended to: an unsynced cut can come undone.

    Args:
        logs: directory and committed end of each.
        owner: its check raises `WriterFencedError` once another writer owns the store.
    """
    directories = [directory for directory, _ in logs]
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="undo") as pool:
        list(pool.map(lambda log: _drop_beyond(log[0], log[1], owner), logs))
        with storage_errors("log directories"):
            sync_directories(directories)
        cuts = list(pool.map(lambda log: _cut_active(log[0], log[1], owner), logs))
    with storage_errors("log directories"):
        sync_files([path for paths in cuts for path in paths])
    for directory, end in logs:
        logger.info("Cut back an unfinished micro-batch log=%s end_offset=%d", directory.name, end.log_end_offset)


def _drop_beyond(directory: Path, end: CommittedEnd, owner: Owner) -> None:
    with storage_errors(directory):
        while names := _names_to_delete(directory, end):
            for name in names:
                remove_file(owner, directory / name)
                reach("undo.deleted")


def _cut_active(directory: Path, end: CommittedEnd, owner: Owner) -> list[Path]:
    """Cut the active segment's files; return which of them have to be synced."""
    changed: list[Path] = []
    path = directory / segment_file_name(end.segment_base, LOG)
    if end.size_bytes or path.exists():
        with storage_errors(path):
            if _cut_file(path, end.size_bytes, owner):
                changed.append(path)
        reach("undo.cut")
    trim_indexes(directory, end, owner, changed.append)
    aborted = path.with_suffix(TXNINDEX)
    if aborted.exists() and _cut_file(aborted, _aborted_bytes(aborted, end), owner):
        changed.append(aborted)
    return changed


def _aborted_bytes(path: Path, end: CommittedEnd) -> int:
    """Return the bytes of a transaction index's entries whose markers lie below the log's end.

    Source: Kafka TransactionIndex.truncateTo.
    """
    with storage_errors(path):
        entries = parse_transaction_index(read_file(path), end.segment_base)
    return sum(each.last_offset < end.log_end_offset for each in entries) * TRANSACTION_ENTRY_BYTES


def _cut_file(path: Path, size_bytes: int, owner: Owner) -> bool:
    """Cut a file; return whether it was too long.

    The descriptor is older than the check: were the store taken meanwhile, it is an unlinked file that is cut.
    """
    descriptor = open_to_change(path, os.O_RDWR)
    try:
        owner.check()
        if os.fstat(descriptor).st_size <= size_bytes:
            return False
        if not unshare_file(path, size_bytes, owner):
            os.ftruncate(descriptor, size_bytes)
        return True
    finally:
        os.close(descriptor)


def _names_to_delete(directory: Path, end: CommittedEnd) -> list[str]:
    """List what does not belong to the log, newest segment first and its `.log` last.

    Called again until it finds nothing: a writer that lost the store may be renaming a file meanwhile.
    """
    names = [name for name in os.listdir(directory) if _is_beyond(name, end)]
    return sorted(names, key=lambda name: (-_base_offset(name), name.endswith(LOG)))


def _is_beyond(name: str, end: CommittedEnd) -> bool:
    """Whether a file is of an unfinished append; unpublished files of closed segments are a cleaner's."""
    base = _base_offset(name)
    if name.endswith(CLEANED):
        return base >= end.segment_base
    if parse_base_offset(name) is not None and name.endswith(SNAPSHOT):
        return base > end.log_end_offset
    if parse_base_offset(name) is None or not name.endswith((LOG, INDEX, TIMEINDEX, TXNINDEX)):
        return False
    if base == end.segment_base:
        # Of a log that never held anything the first append starts the segment, at its own offset. Of one that was
        # emptied the segment stays: its name is all that shows a broker the log's end.
        return end.log_end_offset == 0 and end.size_bytes == 0
    return base > end.segment_base and base >= end.log_end_offset


def _base_offset(name: str) -> int:
    """Return the offset that a file's name starts with, whatever follows; -1 if it starts with none."""
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == _BASE_OFFSET_DIGITS and digits.isascii() and digits.isdigit() else -1


def _has_torn_index(directory: Path, end: CommittedEnd) -> bool:
    """Whether the active segment's indexes end in zeros, in part of an entry, or above the log's end."""
    relative_end = end.log_end_offset - end.segment_base
    offset, position = _last_entry(directory / segment_file_name(end.segment_base, INDEX), "ii", (0, 1))
    timestamp, time_offset = _last_entry(directory / segment_file_name(end.segment_base, TIMEINDEX), "qi", (0, 0))
    is_offset_index_whole = 0 < position < end.size_bytes and offset < relative_end
    return not is_offset_index_whole or timestamp < 0 or time_offset >= relative_end


def _last_entry(path: Path, fields: str, if_empty: tuple[int, int]) -> tuple[int, int]:
    """Return the two numbers of an index's last entry; (-1, -1) if it is zeros or a part of one."""
    entry = struct.Struct(f">{fields}")
    with open_reader(path) if path.exists() else io.BytesIO() as file:
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            return if_empty
        if size % entry.size:
            return -1, -1
        file.seek(size - entry.size)
        first, second = entry.unpack(file.read(entry.size))
    return (first, second) if first or second else (-1, -1)


def renew_active_segment(directory: Path, end: CommittedEnd, owner: Owner) -> None:
    """Give the active segment's files new inodes that hold exactly the committed bytes.

    A writer that lost the store may still hold descriptors of the old files; what it writes there is lost with them.
    It may write while they are copied, so no more is taken than was committed.
    """
    state = cut_back(directory, end, owner)
    sizes = {LOG: end.size_bytes, INDEX: int(state["offset_entries"]) * 8, TIMEINDEX: int(state["time_entries"]) * 12}
    with storage_errors(directory):
        named = {segment_file_name(end.segment_base, suffix): size for suffix, size in sizes.items()}
        renew_files(directory, {name: size for name, size in named.items() if (directory / name).exists()}, owner)
