"""Reads a closed segment's batches for a cleaner, each checked: a cleaning must not make damage permanent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from sparklog.storage_core.log.scan.segment_order import SegmentOrder
from sparklog.storage_core.log.scan.segment_reader import BatchChunk, SegmentReader

__all__ = ["CHUNK_BYTES", "checked_chunks"]

CHUNK_BYTES: Final = 4 << 20
"""Pieces of 1 MiB took a tenth more time in all, those of 256 KiB two thirds more."""


def checked_chunks(
    reader: SegmentReader, start_offset: int, next_base_offset: int, check_owner: Callable[[], None]
) -> Iterator[BatchChunk]:
    """Yield the batches that end at or above `start_offset`, `CHUNK_BYTES` or one larger batch at a time.

    Args:
        reader: of a closed segment.
        start_offset: first wanted offset.
        next_base_offset: base of the next segment: all batches end below it.
        check_owner: called before each chunk; raises after a takeover.

    Raises:
        CorruptBatchError: a batch is damaged, out of order, or partial at the segment's end; names file and position.
    """
    order = SegmentOrder(reader)
    is_part = start_offset > reader.files.base_offset
    for chunk in reader.chunks_from(start_offset, CHUNK_BYTES) if is_part else reader.chunks(0, CHUNK_BYTES):
        check_owner()
        order.check(chunk, next_base_offset)
        wanted = (
            chunk.take(chunk.scan.last_offset >= start_offset) if chunk.scan.last_offset[0] < start_offset else chunk
        )
        if len(wanted.scan):
            reader.check_crcs(wanted, wanted.scan)
            yield wanted
    reader.check_end()
