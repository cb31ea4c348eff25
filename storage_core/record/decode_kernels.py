"""The compiled half of decoding: one pass that judges every byte of a record section, then copies.

`parse_records` reads untrusted bytes and checks each read against the end of its record; only what it has accepted is
read again by `locate_headers`. Nothing is allocated here, and nothing outside `source` is read, whatever it holds.

Source: Kafka DefaultRecord, DefaultRecordBatch, ByteUtils.
"""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from storage_core.kernels import kernel
from storage_core.record.byte_copy import BYTES, INT64S, copy_bytes, inlined

__all__ = [
    "FAILURES",
    "SECTION_COLUMNS",
    "ParsedRecords",
    "SectionColumn",
    "copy_ranges",
    "locate_headers",
    "parse_records",
]

_Bytes: TypeAlias = npt.NDArray[np.uint8]
_Int32s: TypeAlias = npt.NDArray[np.int32]
_Int64s: TypeAlias = npt.NDArray[np.int64]

ParsedRecords: TypeAlias = tuple[_Int64s, _Int64s, _Int64s, _Int32s, _Int64s, _Int32s, _Int64s, _Int32s]
"""For n records: (n,) offsets, (n,) timestamps; (n,) where each key's bytes start, -1 = null, and (n + 1,) Arrow
offsets of the keys once they lie back to back; the same of the values; (n,) where each record's headers start and
(n + 1,) their list offsets."""


class SectionColumn:
    """What each column of a section table holds; one row per batch."""

    START: Final = 0  # of the records, in `source`
    END: Final = 1
    COUNT: Final = 2  # of records
    BASE_OFFSET: Final = 3
    BASE_TIMESTAMP: Final = 4
    FIXED_TIMESTAMP: Final = 5  # not 0: every record has the base timestamp, deltas are ignored (LogAppendTime)


SECTION_COLUMNS: Final = 6

FAILURES: Final = (
    "",
    "a record's length is damaged or reaches past the batch",
    "a record's timestamp delta is damaged",
    "a record's offset delta is damaged",
    "a record's key length is damaged or reaches past the record",
    "a record's value length is damaged or reaches past the record",
    "a record's header count is damaged or above the bytes that remain",
    "a header's key length is damaged, negative or reaches past the record",
    "a header's value length is damaged or reaches past the record",
    "a record's fields are shorter than its length",
    "bytes remain after the last record",
)
"""What each code of `parse_records` means."""

# Kernels see module constants, not class attributes.
_START, _END, _COUNT = SectionColumn.START, SectionColumn.END, SectionColumn.COUNT
_BASE_OFFSET, _BASE_TIMESTAMP = SectionColumn.BASE_OFFSET, SectionColumn.BASE_TIMESTAMP
_FIXED_TIMESTAMP = SectionColumn.FIXED_TIMESTAMP

_STARTS: Final = "int64[::1], int32[::1]"
_PARSED: Final = f"Tuple((int64[::1], int64[::1], {_STARTS}, {_STARTS}, {_STARTS}))"


@inlined
def _read_varint(source: _Bytes, position: int, end: int) -> tuple[int, int]:
    """Return a 32-bit value and the position after it, or position -1 where it is damaged."""
    if position >= end:
        return 0, -1
    byte = source[position] & 0xFF
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    raw = byte & 0x7F
    for shift in range(7, 35, 7):
        if position >= end:
            return 0, -1
        byte = source[position] & 0xFF
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 0xFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), position
    return 0, -1


@inlined
def _read_varlong(source: _Bytes, position: int, end: int) -> tuple[int, int]:
    """Return a 64-bit value and the position after it, or position -1 where it is damaged."""
    raw = np.uint64(0)
    for shift in range(0, 70, 7):
        if position >= end:
            return 0, -1
        byte = source[position]
        position += 1
        raw |= np.uint64(byte & 0x7F) << np.uint64(shift)
        if byte < 0x80:
            zigzag: int = np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1))  # type: ignore[assignment]
            return zigzag, position
    return 0, -1


@inlined
def _parse_field(source: _Bytes, position: int, end: int, place: int, starts: _Int64s, offsets: _Int32s) -> int:
    """Note where a key or value lies; return the position after it, or -1 where its length lies."""
    size, position = _read_varint(source, position, end)
    if position < 0 or size > end - position:
        return -1
    if size < 0:
        starts[place] = -1
        size = 0
    else:
        starts[place] = position
    offsets[place + 1] = offsets[place] + size
    return position + size


@inlined
def _skip_headers(source: _Bytes, position: int, end: int, count: int) -> int:
    """Return the position after `count` headers, or minus a failure."""
    for _ in range(count):
        size, position = _read_varint(source, position, end)
        if position < 0 or size < 0 or size > end - position:
            return -7
        size, position = _read_varint(source, position + size, end)
        if position < 0 or size > end - position:
            return -8
        position += max(size, 0)
    return position


@inlined
def _parse_record(source: _Bytes, position: int, section_end: int, place: int, parsed: ParsedRecords) -> int:
    """Note one record's deltas and parts; return the position after it, or minus a failure."""
    offsets, timestamps, key_starts, key_offsets, value_starts, value_offsets, header_starts, header_offsets = parsed
    length, position = _read_varint(source, position, section_end)
    if position < 0 or length < 1 or length > section_end - position:
        return -1
    end = position + length
    timestamps[place], position = _read_varlong(source, position + 1, end)
    if position < 0:
        return -2
    offsets[place], position = _read_varint(source, position, end)
    if position < 0:
        return -3
    position = _parse_field(source, position, end, place, key_starts, key_offsets)
    if position < 0:
        return -4
    position = _parse_field(source, position, end, place, value_starts, value_offsets)
    if position < 0:
        return -5
    count, position = _read_varint(source, position, end)
    if position < 0 or count < 0 or count > end - position:
        return -6
    header_starts[place] = position
    header_offsets[place + 1] = header_offsets[place] + count
    if count:
        position = _skip_headers(source, position, end, count)
    return position if position == end or position < 0 else -9


@kernel(f"UniTuple(int64, 2)({BYTES}, int64[:, ::1], {_PARSED})")
def parse_records(source: _Bytes, sections: npt.NDArray[np.int64], parsed: ParsedRecords) -> tuple[int, int]:
    """Check every record and note where its parts lie.

    Args:
        source: the bytes the sections point into.
        sections: (b, SECTION_COLUMNS), each within `source`; the bytes of all together fit int32.
        parsed: out, for the sum of `COUNT` records.

    Returns:
        a place in `FAILURES`, 0 for none, and the place of the section that failed.
    """
    offsets, timestamps = parsed[0], parsed[1]
    parsed[3][0] = parsed[5][0] = parsed[7][0] = 0
    place = 0
    for section in range(sections.shape[0]):
        position, section_end = sections[section, _START], sections[section, _END]
        base_offset, base_timestamp = sections[section, _BASE_OFFSET], sections[section, _BASE_TIMESTAMP]
        fixed = sections[section, _FIXED_TIMESTAMP] != 0
        for _ in range(sections[section, _COUNT]):
            position = _parse_record(source, position, section_end, place, parsed)
            if position < 0:
                return -position, section
            offsets[place] += base_offset
            timestamps[place] = base_timestamp + (0 if fixed else timestamps[place])
            place += 1
        if position != section_end:
            return 10, section
    return 0, 0


@kernel(f"void({BYTES}, {INT64S}, int32[::1], int64[::1], int32[::1], int64[::1], int32[::1])")
def locate_headers(
    source: _Bytes,
    header_starts: _Int64s,
    header_offsets: _Int32s,
    name_starts: _Int64s,
    name_offsets: _Int32s,
    content_starts: _Int64s,
    content_offsets: _Int32s,
) -> None:
    """Say where each header's key and value lie, in sections that `parse_records` has accepted.

    Args:
        header_starts: (n,) and `header_offsets` (n + 1,) of `parse_records`.
        name_starts: out, (h,) position of each header key's bytes.
        name_offsets: out, (h + 1,) Arrow offsets of the header keys once they lie back to back.
        content_starts: out, (h,) the same of the values; -1 = null.
        content_offsets: out, (h + 1,).
    """
    end = source.size
    name_offsets[0] = content_offsets[0] = 0
    for record in range(header_starts.size):
        position = header_starts[record]
        for header in range(header_offsets[record], header_offsets[record + 1]):
            position = _parse_field(source, position, end, header, name_starts, name_offsets)
            position = _parse_field(source, position, end, header, content_starts, content_offsets)


@kernel(f"void({BYTES}, {INT64S}, int32[::1], uint8[::1])")
def copy_ranges(source: _Bytes, starts: _Int64s, offsets: _Int32s, out: _Bytes) -> None:
    """Copy each range of `source` to its place in `out`.

    Args:
        starts: (n,) where each range starts; anything where it is empty.
        offsets: (n + 1,) where each goes; the differences are the sizes.
        out: of at least `offsets[-1]` bytes.
    """
    for place in range(starts.size):
        at = offsets[place]
        size = offsets[place + 1] - at
        if size:
            copy_bytes(out, at, source, starts[place], size)
