"""The lines of index and snapshot files, and their comparison with the log beside them.

Source: Kafka DumpLogSegments.dumpIndex, dumpTimeIndex, dumpTxnIndex, dumpProducerIdSnapshot; 4.3.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.checkpoint.producer_snapshot import parse_producer_snapshot
from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.index.offset_index import OFFSET_ENTRY_BYTES, OffsetIndex
from sparklog.storage_core.index.time_index import TIME_ENTRY_BYTES, TimeIndex
from sparklog.storage_core.index.transaction_index import parse_transaction_index
from sparklog.storage_core.inspect.dump.errors import DumpErrors
from sparklog.storage_core.inspect.dump.options import DumpOptions
from sparklog.storage_core.inspect.dump.printer import DumpPrinter
from sparklog.storage_core.log.files.names import INDEX, LOG, segment_file_name
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.scan.segment_reader import BatchChunk, SegmentReader
from sparklog.storage_core.record.batch_decode import iter_decoded
from sparklog.storage_core.record.batch_probe import MAGIC_V2, first_fields
from sparklog.storage_core.record.legacy.header import MIN_ENTRY_BYTES
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, unpack_header
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import read_file

__all__ = ["dump_offset_index", "dump_producer_snapshot", "dump_time_index", "dump_transaction_index"]


def dump_offset_index(path: Path, base_offset: int, options: DumpOptions, out: DumpPrinter, errors: DumpErrors) -> None:
    """Print an `.index` file's entries; each must name the last offset of the batch at its position."""
    index = OffsetIndex(_read(path), base_offset)
    if index.size_bytes < OFFSET_ENTRY_BYTES:
        out.empty_index()
        return
    if options.index_sanity_check:
        index.sanity_check()
        out.sane_index()
        return
    entries = list(zip(index.offsets.tolist(), index.positions.tolist(), strict=True))
    with SegmentReader(_log_of(path, base_offset)) as reader:
        for offset, position in entries[: _shown_count(index.offsets, base_offset)]:
            _compare_offset_entry(reader, (offset, position), options.max_message_size, path, errors)
            if not options.verify_index_only:
                out.offset_entry(offset, position)
    if not entries and not options.verify_index_only:
        out.offset_entry(base_offset, 0)  # Kafka shows the first zero of a padded file


def dump_time_index(path: Path, base_offset: int, options: DumpOptions, out: DumpPrinter, errors: DumpErrors) -> None:
    """Print a `.timeindex` file's entries; each must name a batch's last offset and its largest timestamp."""
    index = TimeIndex(_read(path), base_offset)
    if options.index_sanity_check:
        index.sanity_check()
        out.sane_index()
        return
    offset_index = OffsetIndex(_read(path.with_name(segment_file_name(base_offset, INDEX))), base_offset)
    entries = list(zip(index.timestamps.tolist(), index.offsets.tolist(), strict=True))
    previous = -1
    with SegmentReader(_log_of(path, base_offset)) as reader:
        for timestamp, offset in entries[: _shown_count(index.offsets, base_offset)]:
            found = _last_offset_from(reader, offset_index.lookup(offset)[1], offset)
            _compare_time_entry(found, (timestamp, offset, previous), path, errors)
            if not options.verify_index_only:
                out.time_entry(timestamp, offset)
            previous = timestamp
    if not entries and index.size_bytes >= TIME_ENTRY_BYTES and not options.verify_index_only:
        out.time_entry(0, base_offset)


def dump_transaction_index(path: Path, base_offset: int, out: DumpPrinter) -> None:
    """Print a `.txnindex` file's entries."""
    for entry in parse_transaction_index(_read(path), base_offset):
        out.aborted_transaction(entry)


def dump_producer_snapshot(path: Path, out: DumpPrinter) -> None:
    """Print a `.snapshot` file's producers."""
    for each in parse_producer_snapshot(_read(path)):
        out.producer(each)


def _read(path: Path) -> bytes:
    with storage_errors(path):
        return read_file(path)


def _log_of(path: Path, base_offset: int) -> SegmentFiles:
    return SegmentFiles(base_offset, path.with_name(segment_file_name(base_offset, LOG)))


def _shown_count(offsets: npt.NDArray[np.int64], base_offset: int) -> int:
    """Return how many entries come before the first one, not the very first, at the base offset: a zero tail."""
    tail = np.flatnonzero(offsets[1:] == base_offset)
    return int(tail[0]) + 1 if len(tail) else len(offsets)


def _compare_offset_entry(
    reader: SegmentReader, entry: tuple[int, int], max_message_size: int, path: Path, errors: DumpErrors
) -> None:
    offset, position = entry
    last_offset = _last_offset_at(reader, position, max_message_size)
    if last_offset is None:
        errors.add_other(f"no batch at an indexed position: {path} offset={offset} position={position}")
    elif last_offset != offset:
        errors.index_mismatches.setdefault(str(path.absolute()), []).append((offset, last_offset))
        found = _last_offset_from(reader, position, offset)
        errors.is_damaged |= last_offset > offset or found is None or found[0] != offset


def _last_offset_at(reader: SegmentReader, position: int, max_message_size: int) -> int | None:
    """Return the last offset of the batch of any format at a position; its header alone is looked at."""
    head = reader.read(position, HEADER_BYTES)
    first = first_fields(head)
    if first is None or not _smallest(first.magic) <= first.size <= min(max_message_size, reader.size_bytes - position):
        return None
    return first.offset if first.magic < MAGIC_V2 else unpack_header(head).last_offset


def _smallest(magic: int) -> int:
    return HEADER_BYTES if magic >= MAGIC_V2 else MIN_ENTRY_BYTES[magic == 1]


def _last_offset_from(reader: SegmentReader, position: int, offset: int) -> tuple[int, BatchChunk, int] | None:
    """Return the last offset, chunk and number of the first batch from `position` on that ends at `offset` or later."""
    try:
        for chunk in reader.chunks(position):
            if (hit := chunk.first_reaching(offset)) is not None:
                return int(chunk.scan.last_offset[hit]), chunk, hit
    except CorruptBatchError:
        return None
    return None


def _compare_time_entry(
    found: tuple[int, BatchChunk, int] | None, entry: tuple[int, int, int], path: Path, errors: DumpErrors
) -> None:
    timestamp, offset, previous = entry
    name = str(path.absolute())
    if found is None or found[0] != offset:
        errors.offsets_not_found.setdefault(name, []).append((offset, found[0] if found else -1))
        errors.is_damaged = True
        return
    _, chunk, number = found
    try:
        pieces = iter_decoded(chunk.data, chunk.scan.take(slice(number, number + 1)), include_control=True)
        latest = max(
            (int(piece.column("timestamp").to_numpy().max()) for piece in pieces if piece.num_rows), default=-1
        )
    except CorruptBatchError as error:
        errors.add_other(f"{error.args[0]}: {path} offset={offset}")
        return
    if latest != timestamp:
        errors.timestamp_mismatches.setdefault(name, []).append((timestamp, latest))
        errors.is_damaged = True
    if previous >= timestamp:
        errors.timestamps_out_of_order.setdefault(name, []).append((timestamp, previous))
        errors.is_damaged = True
