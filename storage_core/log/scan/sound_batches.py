"""Reads a segment up to the first bytes that are no batch, in pieces; for whoever has the segment for himself.

Lengths are looked at here, and the CRC of a batch that is larger than a piece, before it is read as a whole: a length
that one changed bit made huge costs no memory. All other CRCs, and what batches say, are the caller's.

Source: Kafka FileLogInputStream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from sparklog.storage_core.log.scan.segment_reader import SegmentReader, scan_up_to_damage
from sparklog.storage_core.record.batch_probe import UP_TO_MAGIC_BYTES, FirstFields, first_fields
from sparklog.storage_core.record.batch_scan import BatchScan
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES

__all__ = ["PIECE_BYTES", "BatchFault", "BatchPiece", "iter_pieces"]

PIECE_BYTES: Final = 2 << 20
"""Measured: smaller pieces cost calls, larger ones have left the processor's cache when their headers are unpacked."""

_MAPPED_BYTES: Final = 256 << 10
"""From so many bytes on a mapping costs less than a copy."""

BatchFault: TypeAlias = Literal["torn", "zeros", "length", "crc"]
"""Why bytes are no batch: fewer than one announces; nothing but zeros; a length none has; the CRC of a large one."""


@dataclass(frozen=True, slots=True)
class BatchPiece:
    """Some batches of a segment, back to back.

    Attributes:
        position: of the first in the file.
        data: their bytes, and possibly a part of a further one.
        scan: their headers; positions count from the start of `data`.
        fault: why what follows them is no batch, if it is known to be none.
    """

    position: int
    data: memoryview
    scan: BatchScan
    fault: BatchFault | None = None


def iter_pieces(reader: SegmentReader, piece_bytes: int = PIECE_BYTES) -> Iterator[BatchPiece]:
    """Yield a segment's batches from its first byte on; the last piece has a fault unless the file ends with it.

    Args:
        reader: of the segment.
        piece_bytes: most that is read at once, unless a batch is larger.

    Raises:
        StorageError: the disk refused.
    """
    largest = max(piece_bytes, HEADER_BYTES)
    position, wanted = 0, largest
    while position < reader.size_bytes:
        data = _bytes_at(reader, position, min(wanted, reader.size_bytes - position))
        scan, error = scan_up_to_damage(data)
        if error is not None:
            yield BatchPiece(position, data, scan, _or_zeros(reader, position + scan.valid_bytes, "length"))
            return
        if scan.valid_bytes:
            yield BatchPiece(position, data, scan)
            position, wanted = position + scan.valid_bytes, largest
            continue
        first = first_fields(data)
        fault = _fault_of_large_batch(reader, position, first)
        if first is None or fault is not None:
            yield BatchPiece(position, data, scan, _or_zeros(reader, position, fault or "torn"))
            return
        wanted = first.size


def _bytes_at(reader: SegmentReader, position: int, size_bytes: int) -> memoryview:
    mapped = reader.map(position, size_bytes) if size_bytes >= _MAPPED_BYTES else None
    return memoryview(reader.read(position, size_bytes)) if mapped is None else mapped


def _fault_of_large_batch(reader: SegmentReader, position: int, first: FirstFields | None) -> BatchFault | None:
    """Say why what seems to begin a batch larger than what was read is none."""
    rest = reader.size_bytes - position
    if first is None or rest <= UP_TO_MAGIC_BYTES or first.size > rest:
        return "length" if reader.is_length_damaged(position) else "torn"
    crc_at, at, update = first.crc
    stored, crc = int.from_bytes(reader.read(position + crc_at, 4), "big"), 0
    while at < first.size and (part := reader.read(position + at, min(first.size - at, PIECE_BYTES))):
        crc, at = update(part, crc), at + len(part)
    return None if crc == stored else "crc"


def _or_zeros(reader: SegmentReader, position: int, fault: BatchFault) -> BatchFault:
    return "zeros" if reader.ends_in_zeros(position) else fault
