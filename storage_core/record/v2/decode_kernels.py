"""The compiled half of decoding: one pass that checks every byte of a record section, then copies.

`parse_records` and `cut_records` read untrusted bytes and check the bounds of each read; `measure_headers`,
`copy_headers` and `copy_ranges` read again only sections that `parse_records` has accepted. Kernels allocate nothing,
and never read outside of `source`.

Source: Kafka DefaultRecord, DefaultRecordBatch, ByteUtils.
"""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.kernels import kernel
from sparklog.storage_core.record.kernel_memory import BYTES, INT64S, address_of, copy_bytes, inlined
from sparklog.storage_core.record.kernel_tables import SectionColumn
from sparklog.storage_core.record.v2.varint_kernels import read_field, read_varint, read_varlong

__all__ = [
    "FAILURES",
    "copy_headers",
    "copy_ranges",
    "cut_records",
    "measure_headers",
    "parse_records",
]

_Bytes: TypeAlias = npt.NDArray[np.uint8]
_Int32s: TypeAlias = npt.NDArray[np.int32]
_Int64s: TypeAlias = npt.NDArray[np.int64]


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
"""Meaning of each code of `parse_records`."""

# Kernels see module constants, not class attributes.
_START, _END, _COUNT = SectionColumn.START, SectionColumn.END, SectionColumn.COUNT
_BASE_OFFSET, _BASE_TIMESTAMP = SectionColumn.BASE_OFFSET, SectionColumn.BASE_TIMESTAMP
_FIXED_TIMESTAMP = SectionColumn.FIXED_TIMESTAMP

_STARTS: Final = "int64[::1], int32[::1]"


@inlined
def _skip_headers(address: int, end: int, count: int) -> int:
    """Return the address after `count` headers, or minus a failure."""
    for _ in range(count):
        size, address = read_field(address, end)
        if address < 0 or size < 0:
            return -7
        size, address = read_field(address + size, end)
        if address < 0:
            return -8
        address += max(size, 0)
    return address


@inlined
def _read_head(address: int, section_end: int) -> tuple[int, int, int, int]:
    """Return a record's end, its timestamp and offset deltas, and the address after these, or minus a failure."""
    length, address = read_varint(address, section_end)
    if address < 0 or length < 1 or length > section_end - address:
        return 0, 0, 0, -1
    end = address + length
    timestamp_delta, address = read_varlong(address + 1, end)
    if address < 0:
        return 0, 0, 0, -2
    offset_delta, address = read_varint(address, end)
    return end, timestamp_delta, offset_delta, address if address >= 0 else -3


@inlined
def _read_header_count(address: int, end: int) -> tuple[int, int, int]:
    """Return a record's number of headers, their start, and its end if they fill it, or minus a failure."""
    count, address = read_varint(address, end)
    if address < 0 or count < 0 or count > end - address:
        return 0, 0, -6
    after = address
    if count:
        after = _skip_headers(address, end, count)
    return count, address, after if after == end or after < 0 else -9


@kernel(
    f"UniTuple(int64, 2)({BYTES}, int64[:, ::1], int64[::1], int64[::1], {_STARTS}, {_STARTS}, {_STARTS})",
)
def parse_records(
    source: _Bytes,
    sections: npt.NDArray[np.int64],
    offsets: _Int64s,
    timestamps: _Int64s,
    key_starts: _Int64s,
    key_offsets: _Int32s,
    value_starts: _Int64s,
    value_offsets: _Int32s,
    header_starts: _Int64s,
    header_offsets: _Int32s,
) -> tuple[int, int]:
    """Check every record and locate its parts.

    Args:
        sections: (b, SECTION_COLUMNS) of format v2, each within `source`; the bytes of all together fit int32.
        offsets: out, (n,) for the sum of `COUNT`.
        timestamps: out, (n,).
        key_starts: out, (n,) start of each key's bytes, -1 = null.
        key_offsets: out, (n + 1,) Arrow offsets of the keys, back to back; the first one is given. The same of the
            values and the header lists.
        header_starts: out, (n,) start of each record's headers.
        header_offsets: out, (n + 1,) Arrow offsets of the header lists.

    Returns:
        a place in `FAILURES`, 0 for none, and the place of the section that failed.
    """
    start = address_of(source)
    key_end, value_end, header_end = key_offsets[0], value_offsets[0], header_offsets[0]
    place = 0
    for section in range(sections.shape[0]):
        address, section_end = start + sections[section, _START], start + sections[section, _END]
        base_offset, base_timestamp = sections[section, _BASE_OFFSET], sections[section, _BASE_TIMESTAMP]
        fixed = sections[section, _FIXED_TIMESTAMP]
        for _ in range(sections[section, _COUNT]):
            end, timestamp_delta, offset_delta, address = _read_head(address, section_end)
            if address < 0:
                return -address, section
            key_size, address = read_field(address, end)
            if address < 0:
                return 4, section
            key_starts[place] = address - start if key_size >= 0 else -1
            key_end += max(key_size, 0)
            value_size, address = read_field(address + max(key_size, 0), end)
            if address < 0:
                return 5, section
            value_starts[place] = address - start if value_size >= 0 else -1
            value_end += max(value_size, 0)
            header_count, headers_at, address = _read_header_count(address + max(value_size, 0), end)
            if address < 0:
                return -address, section
            header_starts[place] = headers_at - start
            header_end += header_count
            offsets[place] = base_offset + offset_delta
            timestamps[place] = base_timestamp + (0 if fixed else timestamp_delta)
            place += 1
            key_offsets[place], value_offsets[place], header_offsets[place] = key_end, value_end, header_end
        if address != section_end:
            return 10, section
    return 0, 0


@kernel(f"boolean({BYTES}, int64, int64, int64, int64, int64[::1])")
def cut_records(source: _Bytes, start: int, end: int, count: int, step: int, cuts: _Int64s) -> bool:
    """Find the start of every `step`-th record of a section, by the lengths only.

    Args:
        start: of the section, and its `end`; within `source`.
        count: of its records.
        step: records of a piece.
        cuts: out, (n,) for the n pieces.

    Returns:
        whether every length fits; else a record is damaged.
    """
    first = address_of(source)
    address, section_end = first + start, first + end
    for place in range(count):
        if place % step == 0:
            cuts[place // step] = address - first
        length, address = read_varint(address, section_end)
        if address < 0 or length < 1 or length > section_end - address:
            return False
        address += length
    return True


@kernel(f"void({BYTES}, {_STARTS}, int32[::1], int32[::1], boolean[::1])")
def measure_headers(
    source: _Bytes,
    header_starts: _Int64s,
    header_offsets: _Int32s,
    name_offsets: _Int32s,
    content_offsets: _Int32s,
    is_null: npt.NDArray[np.bool_],
) -> None:
    """Measure each header's key and value, in sections that `parse_records` has accepted.

    Args:
        header_starts: (n,) and `header_offsets` (n + 1,) of `parse_records`.
        name_offsets: out, (h + 1,) Arrow offsets of the header keys, back to back.
        content_offsets: out, (h + 1,) the same of the values.
        is_null: out, (h,) whether a header has no value.
    """
    start, end = address_of(source), address_of(source) + source.size
    name_offsets[0] = content_offsets[0] = 0
    name_end = content_end = 0
    for record in range(header_starts.size):
        address = start + header_starts[record]
        for header in range(header_offsets[record], header_offsets[record + 1]):
            size, address = read_field(address, end)
            name_end += size
            size, address = read_field(address + size, end)
            is_null[header] = size < 0
            content_end += max(size, 0)
            address += max(size, 0)
            name_offsets[header + 1], content_offsets[header + 1] = name_end, content_end


@kernel(f"void({BYTES}, {_STARTS}, uint8[::1], uint8[::1])")
def copy_headers(
    source: _Bytes, header_starts: _Int64s, header_offsets: _Int32s, names: _Bytes, contents: _Bytes
) -> None:
    """Copy the keys and the values of headers, each kind back to back.

    Args:
        names: out, of the size that `measure_headers` gives for all keys.
        contents: out, the same of the values.
    """
    start, end = address_of(source), address_of(source) + source.size
    name_at, content_at = address_of(names), address_of(contents)
    for record in range(header_starts.size):
        address = start + header_starts[record]
        for _ in range(header_offsets[record], header_offsets[record + 1]):
            size, address = read_field(address, end)
            copy_bytes(name_at, address, size)
            name_at += size
            size, address = read_field(address + size, end)
            if size > 0:
                copy_bytes(content_at, address, size)
                content_at += size
                address += size


@kernel(f"void({BYTES}, {INT64S}, int32[::1], uint8[::1])")
def copy_ranges(source: _Bytes, starts: _Int64s, offsets: _Int32s, out: _Bytes) -> None:
    """Copy each range of `source` to its place in `out`.

    Args:
        starts: (n,) of each range; ignored for an empty one.
        offsets: (n + 1,) of the ranges in `out`; the differences are the sizes.
        out: of at least `offsets[-1]` bytes.
    """
    source_start, out_start = address_of(source), address_of(out)
    for place in range(starts.size):
        at = offsets[place]
        size = offsets[place + 1] - at
        if size:
            copy_bytes(out_start + at, source_start + starts[place], size)
