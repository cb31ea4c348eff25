"""The lines of index and snapshot files, and their comparison with the log beside them.

Source: Kafka DumpLogSegments.dumpIndex, dumpTimeIndex, dumpTxnIndex, dumpProducerIdSnapshot; 4.3.
"""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

import numpy as np
import numpy.typing as npt

from storage_core.checkpoint.producer_snapshot import parse_producer_snapshot
from storage_core.errors import CorruptBatchError
from storage_core.index.offset_index import OFFSET_ENTRY_BYTES, OffsetIndex
from storage_core.index.time_index import TIME_ENTRY_BYTES, TimeIndex
from storage_core.index.transaction_index import parse_transaction_index
from storage_core.inspect.dump_errors import DumpErrors
from storage_core.inspect.dump_options import DumpOptions
from storage_core.inspect.dump_records import java_optional
from storage_core.log.log_files import INDEX, LOG, segment_file_name
from storage_core.log.segment_reader import BatchChunk, SegmentReader
from storage_core.log.segments import SegmentFiles
from storage_core.record.batch_decode import decode_batches
from storage_core.record.batch_header import HEADER_BYTES, unpack_header
from storage_core.storage.local import storage_errors

__all__ = ["dump_offset_index", "dump_producer_snapshot", "dump_time_index", "dump_transaction_index"]


def dump_offset_index(path: Path, base_offset: int, options: DumpOptions, out: TextIO, errors: DumpErrors) -> None:
    """Write an `.index` file's entries; each must name the last offset of the batch at its position."""
    index = OffsetIndex.from_bytes(_read(path), base_offset)
    if index.size_bytes < OFFSET_ENTRY_BYTES:
        print(f"{path} is empty.", file=out)
        return
    if options.index_sanity_check:
        index.sanity_check()
        print(f"{path} passed sanity check.", file=out)
        return
    entries = list(zip(index.offsets.tolist(), index.positions.tolist(), strict=True))
    with SegmentReader(_log_of(path, base_offset)) as reader:
        for offset, position in entries[: _shown_count(index.offsets, base_offset)]:
            _compare_offset_entry(reader, (offset, position), options.max_message_size, path, errors)
            if not options.verify_index_only:
                print(f"offset: {offset} position: {position}", file=out)
    if not entries and not options.verify_index_only:
        print(f"offset: {base_offset} position: 0", file=out)  # Kafka shows the first zero of a padded file


def dump_time_index(path: Path, base_offset: int, options: DumpOptions, out: TextIO, errors: DumpErrors) -> None:
    """Write a `.timeindex` file's entries; each must name a batch's last offset and its largest timestamp."""
    index = TimeIndex.from_bytes(_read(path), base_offset)
    if options.index_sanity_check:
        index.sanity_check()
        print(f"{path} passed sanity check.", file=out)
        return
    offset_index = OffsetIndex.from_bytes(_read(path.with_name(segment_file_name(base_offset, INDEX))), base_offset)
    entries = list(zip(index.timestamps.tolist(), index.offsets.tolist(), strict=True))
    previous = -1
    with SegmentReader(_log_of(path, base_offset)) as reader:
        for timestamp, offset in entries[: _shown_count(index.offsets, base_offset)]:
            found = _last_offset_from(reader, offset_index.lookup(offset)[1], offset)
            _compare_time_entry(found, (timestamp, offset, previous), path, errors)
            if not options.verify_index_only:
                print(f"timestamp: {timestamp} offset: {offset}", file=out)
            previous = timestamp
    if not entries and index.size_bytes >= TIME_ENTRY_BYTES and not options.verify_index_only:
        print(f"timestamp: 0 offset: {base_offset}", file=out)


def dump_transaction_index(path: Path, base_offset: int, out: TextIO) -> None:
    """Write a `.txnindex` file's entries."""
    for entry in parse_transaction_index(_read(path), base_offset):
        print(
            f"version: {entry.version} producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
            f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}",
            file=out,
        )


def dump_producer_snapshot(path: Path, out: TextIO) -> None:
    """Write a `.snapshot` file's producers; one without a known data batch ends at its last timestamp."""
    for each in parse_producer_snapshot(_read(path)):
        line = (
            f"producerId: {each.producer_id} producerEpoch: {each.producer_epoch} "
            f"coordinatorEpoch: {each.coordinator_epoch} "
            f"currentTxnFirstOffset: {java_optional(each.current_txn_first_offset, none=-1)} "
            f"lastTimestamp: {each.timestamp}"
        )
        if each.last_offset >= 0:
            first_sequence = (each.last_sequence - each.offset_delta) % (1 << 31)
            line += (
                f" firstSequence: {first_sequence} lastSequence: {each.last_sequence} lastOffset: {each.last_offset} "
                f"offsetDelta: {each.offset_delta} timestamp: {each.timestamp}"
            )
        print(line, file=out)


def _read(path: Path) -> bytes:
    with storage_errors(path):
        return path.read_bytes()


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
    head = reader.read(position, HEADER_BYTES)
    header = unpack_header(head) if len(head) == HEADER_BYTES else None
    room = min(max_message_size, reader.size_bytes - position)
    if header is None or not HEADER_BYTES <= header.size_bytes <= room:
        errors.add_other(f"no batch at an indexed position: {path} offset={offset} position={position}")
    elif header.last_offset != offset:
        errors.index_mismatches.setdefault(str(path.absolute()), []).append((offset, header.last_offset))
        found = _last_offset_from(reader, position, offset)
        errors.is_damaged |= header.last_offset > offset or found is None or found[0] != offset


def _last_offset_from(reader: SegmentReader, position: int, offset: int) -> tuple[int, BatchChunk, int] | None:
    """Return the last offset, chunk and number of the first batch from `position` on that ends at `offset` or later."""
    try:
        for chunk in reader.chunks(position):
            hits = np.flatnonzero(chunk.scan.last_offset >= offset)
            if len(hits):
                return int(chunk.scan.last_offset[hits[0]]), chunk, int(hits[0])
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
        records = decode_batches(chunk.data, chunk.scan.take(slice(number, number + 1)), include_control=True)
    except CorruptBatchError as error:
        errors.add_other(f"{error.args[0]}: {path} offset={offset}")
        return
    latest = max(records.column("timestamp").to_pylist(), default=-1)
    if latest != timestamp:
        errors.timestamp_mismatches.setdefault(name, []).append((timestamp, latest))
        errors.is_damaged = True
    if previous >= timestamp:
        errors.timestamps_out_of_order.setdefault(name, []).append((timestamp, previous))
        errors.is_damaged = True
