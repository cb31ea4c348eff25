"""What an append needs to know of an active segment, read back from its files.

Source: Kafka LogSegment (rollingBasedTimestamp, maxTimestampAndOffsetSoFar), AbstractIndex.
"""

import mmap
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.index.index_entries import read_entries
from sparklog.storage_core.index.offset_index import OFFSET_ENTRY
from sparklog.storage_core.index.time_index import TIME_ENTRY
from sparklog.storage_core.log.append.roll import APPEND_STATE
from sparklog.storage_core.log.files.committed_end import CommittedEnd
from sparklog.storage_core.log.files.names import INDEX, LOG, TIMEINDEX, segment_file_name
from sparklog.storage_core.record.batch_probe import MAGIC_V2, UP_TO_MAGIC_BYTES, first_fields
from sparklog.storage_core.record.batch_scan import scan_batches
from sparklog.storage_core.record.v2.batch_header import unpack_header
from sparklog.storage_core.storage.local import storage_errors, sync_file
from sparklog.storage_core.storage.open_regular import open_reader, open_to_change, read_if_there
from sparklog.storage_core.storage.owned_names import Owner
from sparklog.storage_core.storage.renew_files import unshare_file

__all__ = ["load_append_state", "trim_indexes"]


def load_append_state(
    directory: Path,
    end: CommittedEnd,
    monotonic_ms: int,
    jitter_ms: int,
    owner: Owner,
) -> npt.NDArray[np.void]:
    """Read the active segment's state, and make its files ready for appends.

    What lies beyond the committed end is cut from its indexes. Files that have a second name get an inode of their own.

    As in Kafka, the byte counter of the next index entry starts at 0 again.

    A log without committed bytes may have no segment yet; the first append then starts it, at its own offset.

    Args:
        directory: of the log.
        end: where it ends.
        monotonic_ms: when its active segment counts as created, by the monotonic clock.
        jitter_ms: drawn for that segment.
        owner: its check raises `WriterFencedError` once another writer owns the store.

    Returns:
        () one `APPEND_STATE` row.

    Raises:
        CorruptFileError: the segment's `.log` is missing or shorter than committed.
        WriterFencedError: another writer owns the store.
    """
    log_path = directory / segment_file_name(end.segment_base, LOG)
    state = np.zeros((), APPEND_STATE)
    state["next_offset"], state["segment_base"] = end.log_end_offset, end.segment_base
    state["segment_size"], state["created_ms"], state["jitter_ms"] = end.size_bytes, monotonic_ms, jitter_ms
    state["first_timestamp"] = state["max_timestamp"] = state["last_entry_timestamp"] = -1
    state["max_timestamp_offset"] = end.segment_base
    if end.size_bytes == 0 and not log_path.exists():
        state["segment_base"] = -1
        return state
    offsets, times = _trim_indexes(directory, end, owner, sync_file)
    state["offset_entries"], state["time_entries"] = len(offsets), len(times)
    if len(times):
        state["last_entry_timestamp"] = state["max_timestamp"] = times["timestamp"][-1]
        state["max_timestamp_offset"] = end.segment_base + int(times["offset"][-1])
    with storage_errors(log_path):
        unshare_file(log_path, end.size_bytes, owner)
        if end.size_bytes:
            _add_timestamps(state, log_path, offsets, end)
    return state


def trim_indexes(directory: Path, end: CommittedEnd, owner: Owner, note_cut: Callable[[Path], None]) -> None:
    """Cut from the active segment's indexes what lies beyond the committed end.

    That is what a crash leaves: zeros, or entries of batches that were cut.

    Args:
        directory: of the log.
        end: where it ends.
        owner: its check raises `WriterFencedError` once another writer owns the store.
        note_cut: gets each file that was cut; it must be synced before anything is appended, or the cut tail could come
            back under new entries.

    Raises:
        CorruptFileError: the segment's `.log` is missing or shorter than committed.
    """
    if end.size_bytes or (directory / segment_file_name(end.segment_base, LOG)).exists():
        _trim_indexes(directory, end, owner, note_cut)


def _trim_indexes(
    directory: Path, end: CommittedEnd, owner: Owner, note_cut: Callable[[Path], None]
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void]]:
    log_path, index_path, time_path = (
        directory / segment_file_name(end.segment_base, suffix) for suffix in (LOG, INDEX, TIMEINDEX)
    )
    with storage_errors(directory):
        _check_log(log_path, end)
        offsets = _trim_offset_index(index_path, end, owner, note_cut)
        times = _trim_time_index(time_path, end, owner, note_cut)
    return offsets, times


def _check_log(path: Path, end: CommittedEnd) -> None:
    size = path.stat().st_size if path.exists() else -1
    if size < end.size_bytes:
        found = "is missing" if size < 0 else f"has {size} bytes"
        raise CorruptFileError(
            f"committed bytes are gone: {path} {found}, the ledger names {end.size_bytes}: restore it"
        )


def _trim_offset_index(
    path: Path, end: CommittedEnd, owner: Owner, note_cut: Callable[[Path], None]
) -> npt.NDArray[np.void]:
    entries = read_entries(read_if_there(path) or b"", OFFSET_ENTRY)
    offsets, positions = entries["offset"].astype(np.int64), entries["position"].astype(np.int64)
    bad = (offsets >= end.log_end_offset - end.segment_base) | (positions >= end.size_bytes) | (positions <= 0)
    bad[1:] |= (np.diff(offsets) <= 0) | (np.diff(positions) <= 0)
    return _keep_prefix(path, entries, bad, owner, note_cut)


def _trim_time_index(
    path: Path, end: CommittedEnd, owner: Owner, note_cut: Callable[[Path], None]
) -> npt.NDArray[np.void]:
    entries = read_entries(read_if_there(path) or b"", TIME_ENTRY)
    offsets, timestamps = entries["offset"].astype(np.int64), entries["timestamp"].astype(np.int64)
    bad = (offsets >= end.log_end_offset - end.segment_base) | (timestamps < 0)
    bad[1:] |= (np.diff(offsets) < 0) | (timestamps[1:] <= timestamps[:-1])
    if bad[1:2].all() and not offsets[:1].any() and not timestamps[:1].any():
        bad[:1] = True  # zeros of a power cut from the first entry on; a real one like that is of no use
    return _keep_prefix(path, entries, bad, owner, note_cut)


def _keep_prefix(
    path: Path,
    entries: npt.NDArray[np.void],
    bad: npt.NDArray[np.bool_],
    owner: Owner,
    note_cut: Callable[[Path], None],
) -> npt.NDArray[np.void]:
    """Truncate the file after its last good entry.

    The owner is checked after the opening: a writer that lost the store since it read the entries must not cut those
    that the new owner has added.
    """
    kept = entries[: int(np.argmax(bad))] if bad.any() else entries
    descriptor = open_to_change(path, os.O_RDWR | os.O_CREAT)
    try:
        is_cut = os.fstat(descriptor).st_size != kept.nbytes
        if not unshare_file(path, kept.nbytes, owner) and is_cut:
            owner.check()
            os.ftruncate(descriptor, kept.nbytes)
    finally:
        os.close(descriptor)
    if is_cut:
        note_cut(path)
    return kept


def _first_timestamp(data: mmap.mmap) -> int:
    """Return the timestamp of the first batch; a truncation may leave a segment of an imported log with v0 or v1."""
    first = first_fields(data[:UP_TO_MAGIC_BYTES])
    if first is None or first.magic >= MAGIC_V2:
        return int(unpack_header(data).max_timestamp)
    found = scan_batches(data, 0, min(first.size, len(data))).max_timestamp
    return int(found[0]) if len(found) else -1


def _add_timestamps(state: npt.NDArray[np.void], path: Path, offsets: npt.NDArray[np.void], end: CommittedEnd) -> None:
    """Read the first batch's timestamp, and the largest one after the last time entry.

    Apart from `SegmentReader.walk`: that entry may lie far back, and of a mapping only the headers' pages are read.
    """
    with open_reader(path) as file, mmap.mmap(file.fileno(), end.size_bytes, access=mmap.ACCESS_READ) as data:
        state["first_timestamp"] = _first_timestamp(data)
        start = 0
        if state["time_entries"]:
            known = int(state["max_timestamp_offset"]) - end.segment_base
            before = np.flatnonzero(offsets["offset"] <= known)
            start = int(offsets["position"][before[-1]]) if len(before) else 0
        scan = scan_batches(data, start, end.size_bytes)
        if len(scan.max_timestamp):
            newest = int(np.argmax(scan.max_timestamp))
            if scan.max_timestamp[newest] > state["max_timestamp"]:
                state["max_timestamp"] = scan.max_timestamp[newest]
                state["max_timestamp_offset"] = scan.last_offset[newest]
        del scan
