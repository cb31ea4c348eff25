"""Finds records by timestamp: time index, then batch headers, then the records of one batch.

Source: Kafka UnifiedLog.fetchOffsetByTimestamp, LogSegment.findOffsetByTimestamp, FileRecords.searchForTimestamp.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from storage_core.log.segment_reader import BatchChunk, SegmentReader
from storage_core.log.segments import SegmentFiles
from storage_core.record.batch_decode import decode_batches

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["first_record_at", "latest_record"]


def first_record_at(
    segments: Sequence[SegmentFiles], timestamp: int, start_offset: int, end_offset: int
) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record at or after `timestamp` within [start, end), or None."""
    for number, segment in enumerate(segments):
        with SegmentReader(segment) as reader:
            index = reader.time_index()
            is_closed = number < len(segments) - 1
            if is_closed and len(index) and index.timestamps[-1] < timestamp:
                continue  # a closed segment's last entry is its largest timestamp
            first_offset = max(index.lookup(timestamp)[1], start_offset)
            for chunk, wanted in _batches_from(reader, first_offset, end_offset):
                for batch in np.flatnonzero(wanted & (chunk.scan.max_timestamp >= timestamp)):
                    offsets, timestamps = _records(reader, chunk, int(batch))
                    hits = (timestamps >= timestamp) & (offsets >= start_offset) & (offsets < end_offset)
                    if hits.any():
                        return int(offsets[np.argmax(hits)]), int(timestamps[np.argmax(hits)])
    return None


def latest_record(segments: Sequence[SegmentFiles], start_offset: int, end_offset: int) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record with the largest timestamp within [start, end), or None."""
    best: tuple[int, int] | None = None
    for number, segment in enumerate(segments):
        with SegmentReader(segment) as reader:
            index = reader.time_index()
            is_closed = number < len(segments) - 1
            if best and is_closed and len(index) and index.timestamps[-1] <= best[1]:
                continue
            candidate = _latest_in_segment(reader, index.offsets[-1:], start_offset, end_offset)
            if candidate and (best is None or candidate[1] > best[1]):
                best = candidate
    return best


def _latest_in_segment(
    reader: SegmentReader, last_entry: npt.NDArray[np.int64], start_offset: int, end_offset: int
) -> tuple[int, int] | None:
    """Every record with a larger timestamp than the last entry's has a larger offset: start there.

    Unless that batch is partly outside the range: what was the largest timestamp may not be readable, so look at all.
    """
    first_offset = int(last_entry[0]) if len(last_entry) else start_offset
    if not start_offset < first_offset < end_offset:
        first_offset = start_offset
    best: tuple[int, int] | None = None
    for chunk, wanted in _batches_from(reader, first_offset, end_offset):
        headers = np.where(wanted, chunk.scan.max_timestamp, -1)
        while headers.max() > (best[1] if best else -1):
            batch = int(np.argmax(headers))
            offsets, timestamps = _records(reader, chunk, batch)
            readable = (offsets >= start_offset) & (offsets < end_offset)
            offsets, timestamps = offsets[readable], timestamps[readable]
            if len(offsets) and (best is None or timestamps.max() > best[1]):
                best = int(offsets[np.argmax(timestamps)]), int(timestamps.max())
            headers[batch] = -1
    return best


def _batches_from(
    reader: SegmentReader, first_offset: int, end_offset: int
) -> Iterator[tuple[BatchChunk, npt.NDArray[np.bool_]]]:
    """Yield chunks, and which of their batches hold offsets of [first, end)."""
    for chunk in reader.chunks(reader.position_before(first_offset)):
        behind = chunk.scan.last_offset >= end_offset - 1
        stop = int(np.argmax(behind)) + 1 if behind.any() else len(behind)
        wanted = (chunk.scan.last_offset >= first_offset) & (chunk.scan.base_offset < end_offset)
        wanted[stop:] = False
        yield chunk, wanted
        if stop < len(behind) or behind.any():
            return


def _records(
    reader: SegmentReader, chunk: BatchChunk, batch: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the offsets and timestamps of one batch's records, transaction markers included."""
    scan = chunk.scan.take(slice(batch, batch + 1))
    reader.check_crcs(chunk, scan)
    records = decode_batches(chunk.data, scan, include_control=True)
    return records.column("offset").to_numpy(), records.column("timestamp").to_numpy()
