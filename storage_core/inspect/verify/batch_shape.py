"""Whether bytes at a position have the shape of a v2 batch or of a v0 or v1 entry, by its first fields alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sparklog.storage_core.record.batch_probe import MAGIC_V2, first_fields
from sparklog.storage_core.record.legacy.header import FIXED_BYTES, LEGACY_ATTRIBUTES_AT, MIN_ENTRY_BYTES
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, unpack_header

__all__ = ["BatchShape", "shape_of"]

_LEGACY_ATTRIBUTES: Final = 0x0F


@dataclass(frozen=True, slots=True)
class BatchShape:
    """Size in bytes and offsets, by the header; both offsets of a v0 or v1 entry are its own."""

    size: int
    first_offset: int
    last_offset: int


def shape_of(read: Callable[[int, int], bytes], position: int, end: int) -> BatchShape | None:
    """Return the shape of what starts at a position, None if it can be neither batch nor entry.

    Args:
        read: returns bytes from a position on, as many as asked for.
        position: where it starts.
        end: of the bytes that count.
    """
    head = read(position, min(HEADER_BYTES, max(end - position, 0)))
    first = first_fields(head)
    if first is None or len(head) < MIN_ENTRY_BYTES[0]:
        return None
    offset, size, magic = first
    if offset < 0 or position + size > end:
        return None
    if magic == MAGIC_V2 and min(size, len(head)) >= HEADER_BYTES:
        header = unpack_header(head)
        is_possible = header.last_offset_delta >= 0 and header.records_count >= 0
        return BatchShape(size, offset, header.last_offset) if is_possible else None
    if magic not in (0, 1) or size < MIN_ENTRY_BYTES[magic] or head[LEGACY_ATTRIBUTES_AT] & ~_LEGACY_ATTRIBUTES:
        return None
    key_at = position + FIXED_BYTES[magic]
    value_at = _end_of_field(read, key_at, position + size)
    is_whole = value_at is not None and _end_of_field(read, value_at, position + size) == position + size
    return BatchShape(size, offset, offset) if is_whole else None


def _end_of_field(read: Callable[[int, int], bytes], position: int, end: int) -> int | None:
    """Return where a length and as many bytes end, None if that is past an entry's end."""
    if position + 4 > end:
        return None
    length = int.from_bytes(read(position, 4), "big", signed=True)
    found = position + 4 + max(length, 0)
    return found if length >= -1 and found <= end else None
