"""A closed segment's batches, each checked before a cleaner believes it.

What is cleaned takes the place of what was read: damage that is passed over would be damage that nobody can restore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from sparklog.storage_core.log.scan.segment_order import SegmentOrder
from sparklog.storage_core.log.scan.segment_reader import BatchChunk, SegmentReader

__all__ = ["CHUNK_BYTES", "checked_chunks"]

CHUNK_BYTES: Final = 4 << 20
"""Pieces of 1 MiB took a tenth more time in all, those of 256 KiB two thirds more: each one costs some calls."""


def checked_chunks(
    reader: SegmentReader, start_offset: int, next_base_offset: int, check_owner: Callable[[], None]
) -> Iterator[BatchChunk]:
    """Yield the batches that end at `start_offset` or behind it, `CHUNK_BYTES` or one larger batch at a time.

    Args:
        reader: of a closed segment.
        start_offset: wanted first.
        next_base_offset: where the next segment starts: no batch reaches it.
        check_owner: raises once another one owns the log; called before each chunk.

    Raises:
        CorruptBatchError: a batch is damaged, out of order, or cut off by the segment's end; names file and position.
        StorageError: the disk refused.
    """
    order = SegmentOrder(reader)
    is_part = start_offset > reader.files.base_offset
    for chunk in reader.chunks_from(start_offset, CHUNK_BYTES) if is_part else reader.chunks(0, CHUNK_BYTES):
        check_owner()
        scan = chunk.scan
        order.check(chunk, next_base_offset)
        if scan.last_offset[0] < start_offset:
            scan = scan.take(scan.last_offset >= start_offset)
        if len(scan):
            reader.check_crcs(chunk, scan)
            yield BatchChunk(chunk.data, chunk.position, scan)
    if reader.valid_bytes < reader.size_bytes:
        raise reader.corrupt_batch("closed segment ends inside a batch", reader.valid_bytes)
