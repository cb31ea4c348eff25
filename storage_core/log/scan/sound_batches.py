"""Recovery's walk over a segment: names exactly the fault of the bytes that end it (torn write, zeros, length, CRC).

A batch that is larger than a piece is read as a whole only after its CRC was found to be right, in pieces: a length
that one changed bit made huge costs no memory. No writer changes it meanwhile, so large pieces are mapped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from sparklog.storage_core.log.scan.segment_reader import BatchChunk, SegmentReader, WalkFault
from sparklog.storage_core.record.batch_probe import FirstFields

__all__ = ["PIECE_BYTES", "iter_pieces"]

PIECE_BYTES: Final = 2 << 20
"""Measured: smaller pieces cost calls, larger ones have left the processor's cache when their headers are unpacked."""

_MAPPED_BYTES: Final = 256 << 10
"""From so many bytes on a mapping costs less than a copy."""


def iter_pieces(reader: SegmentReader, piece_bytes: int = PIECE_BYTES) -> Iterator[BatchChunk]:
    """Yield a segment's batches from its first byte on; the last piece has a fault unless the file ends with it.

    Args:
        reader: of the segment.
        piece_bytes: most that is read at once, unless a batch is larger.

    Raises:
        StorageError: the disk refused.
    """
    read, fault_of_large = partial(_bytes_at, reader), partial(_fault_of_large, reader)
    for piece in reader.walk(0, piece_bytes, read=read, fault_of_large=fault_of_large):
        yield piece if piece.fault is None else replace(piece, fault=_exact_fault(reader, piece))


def _bytes_at(reader: SegmentReader, position: int, size_bytes: int) -> bytes | memoryview:
    mapped = reader.map(position, size_bytes) if size_bytes >= _MAPPED_BYTES else None
    return reader.read(position, size_bytes) if mapped is None else mapped


def _fault_of_large(reader: SegmentReader, position: int, first: FirstFields) -> WalkFault | None:
    crc_at, at, update = first.crc
    stored, crc = int.from_bytes(reader.read(position + crc_at, 4), "big"), 0
    while at < first.size and (part := reader.read(position + at, min(first.size - at, PIECE_BYTES))):
        crc, at = update(part, crc), at + len(part)
    return None if crc == stored else "crc"


def _exact_fault(reader: SegmentReader, piece: BatchChunk) -> WalkFault | None:
    position = piece.position + piece.scan.valid_bytes
    if reader.ends_in_zeros(position):
        return "zeros"
    is_length = piece.fault == "torn" and reader.is_length_damaged(position)
    return "length" if is_length else piece.fault
