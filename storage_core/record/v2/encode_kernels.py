"""The compiled half of encoding: ends of batches, and the records' bytes.

Both kernels walk `rows` in order and get the columns as Arrow's buffers, one tuple per column: int64 offsets, bytes,
and one flag byte per element (0 = null), no flags without nulls. `plan_batches` decides each batch and keeps each
record's length; `write_records` then only writes, into the planned space.

Source: Kafka DefaultRecord, MemoryRecordsBuilder.
"""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.kernels import kernel
from sparklog.storage_core.record.kernel_memory import BYTES, INT64S, address_of, copy_bytes, inlined, store_byte
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES
from sparklog.storage_core.record.v2.varint_kernels import varint_size, write_varint

__all__ = [
    "Column",
    "Columns",
    "PlanColumn",
    "PlanFailure",
    "add_field_sizes",
    "add_header_sizes",
    "plan_batches",
    "write_records",
]

_Bytes: TypeAlias = npt.NDArray[np.uint8]
_Int64s: TypeAlias = npt.NDArray[np.int64]

Column: TypeAlias = tuple[_Int64s, _Bytes, _Bytes]
"""One column of n: (n + 1,) offsets into its bytes, the bytes, (n,) flags or none."""

Columns: TypeAlias = tuple[Column, Column, Column, Column, Column, _Int64s, _Int64s]
"""Keys, values, header lists (no data), header keys, header values; timestamps; offsets or none."""


class PlanColumn:
    """Columns of a plan, which has one row per batch."""

    FIRST: Final = 0  # place in `rows` of the first record
    COUNT: Final = 1  # records
    SIZE: Final = 2  # bytes, uncompressed, header included
    GROUP: Final = 3
    LAST_DELTA: Final = 4  # last offset delta
    MAX_TIMESTAMP: Final = 5
    WIDTH: Final = 6


class PlanFailure:
    """Why a plan stopped: the result is minus one of these."""

    TOO_LARGE: Final = 1
    OFFSET_ORDER: Final = 2


# Kernels see module constants, not class attributes.
_FIRST, _COUNT, _SIZE = PlanColumn.FIRST, PlanColumn.COUNT, PlanColumn.SIZE
_GROUP, _LAST_DELTA, _MAX_TIMESTAMP = PlanColumn.GROUP, PlanColumn.LAST_DELTA, PlanColumn.MAX_TIMESTAMP
_TOO_LARGE, _OFFSET_ORDER = -PlanFailure.TOO_LARGE, -PlanFailure.OFFSET_ORDER
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1

_COLUMN: Final = f"{INT64S}, {BYTES}, {BYTES}"


@inlined
def _write_field(address: int, source: int, size: int) -> int:
    """Write a length, -1 for null, and that many bytes; return the address after them."""
    address = write_varint(address, size)
    if size > 0:
        copy_bytes(address, source, size)
        address += size
    return address


@inlined
def _field_size(size: int) -> int:
    """Return the size of a field of `size` bytes with its length; -1 is null."""
    return varint_size(size) + max(size, 0)


@kernel(f"int64({INT64S}, {BYTES}, {INT64S}, int64[::1])")
def add_field_sizes(offsets: _Int64s, flags: _Bytes, rows: _Int64s, bodies: _Int64s) -> int:
    """Add the size of each record's key, or value, to `bodies`; return the place of a row outside the column, or -1.

    Args:
        offsets: (n + 1,) and `flags` (n,) or none, of the column.
        bodies: in and out, by place in `rows`.
    """
    for place in range(rows.size):
        row = rows[place]
        if row < 0 or row >= offsets.size - 1:
            return place
        size = offsets[row + 1] - offsets[row]
        if flags.size != 0 and flags[row] == 0:
            size = -1
        bodies[place] += _field_size(size)
    return -1


@kernel(f"int64({INT64S}, {BYTES}, {INT64S}, {BYTES}, {INT64S}, {BYTES}, {INT64S}, int64[::1])")
def add_header_sizes(
    list_offsets: _Int64s,
    list_flags: _Bytes,
    name_offsets: _Int64s,
    name_flags: _Bytes,
    content_offsets: _Int64s,
    content_flags: _Bytes,
    rows: _Int64s,
    bodies: _Int64s,
) -> int:
    """Add the size of each record's headers to `bodies`; return the place of a row with a header without key, or -1.

    Args:
        list_offsets: (n + 1,) and `list_flags` (n,) or none, of the header lists; `rows` are inside them.
        name_offsets: of the header keys, and so on.
        bodies: in and out, by place in `rows`; a header count of one byte is there already.
    """
    for place in range(rows.size):
        row = rows[place]
        if list_flags.size != 0 and list_flags[row] == 0:
            continue
        first, end = list_offsets[row], list_offsets[row + 1]
        body = varint_size(end - first) - 1
        for header in range(first, end):
            if name_flags.size != 0 and name_flags[header] == 0:
                return place
            body += _field_size(name_offsets[header + 1] - name_offsets[header])
            size = content_offsets[header + 1] - content_offsets[header]
            if content_flags.size != 0 and content_flags[header] == 0:
                size = -1
            body += _field_size(size)
        bodies[place] += body
    return -1


@inlined
def _plan_batch(
    rows: _Int64s,
    bodies: _Int64s,
    timestamps: _Int64s,
    offsets: _Int64s,
    place: int,
    end: int,
    limit_bytes: int,
    lengths: npt.NDArray[np.int32],
) -> tuple[int, int, int, int]:
    """Plan the batch that starts at `place`: the place after it, its bytes, last offset delta and max timestamp."""
    first, total, delta = place, HEADER_BYTES, 0
    base_timestamp = max_timestamp = timestamps[rows[first]]
    base_offset = offsets[rows[first]] if offsets.size else first
    delta_limit = min(_INT32_MAX, _INT64_MAX - 1 - max(base_offset, 0))
    while place < end:
        row = rows[place]
        timestamp, next_delta = timestamps[row], (offsets[row] if offsets.size else place) - base_offset
        length = bodies[place] + varint_size(timestamp - base_timestamp) + varint_size(next_delta)
        size = varint_size(length) + length
        if place > first and (total + size > limit_bytes or next_delta > delta_limit or next_delta <= delta):
            break  # this record may begin the next batch, which checks it
        total += size
        delta = next_delta
        max_timestamp = max(max_timestamp, timestamp)
        lengths[place] = length
        place += 1
    return place, total, delta, max_timestamp


@kernel(
    f"int64({INT64S}, {INT64S}, {INT64S}, {INT64S}, {INT64S}, UniTuple(int64, 2), int32[::1], int64[:, ::1],"
    " int64[::1])"
)
def plan_batches(
    timestamps: _Int64s,
    offsets: _Int64s,
    rows: _Int64s,
    bodies: _Int64s,
    group_starts: _Int64s,
    limits: tuple[int, int],
    lengths: npt.NDArray[np.int32],
    batches: npt.NDArray[np.int64],
    failed: _Int64s,
) -> int:
    """Fill `lengths` and `batches`; return the number of batches, or minus a `PlanFailure`.

    Args:
        timestamps: (n,) and `offsets` (n,), or none for assigned offsets.
        rows: row numbers, in record order within each group.
        bodies: bytes of each record without its length and deltas, by place in `rows`.
        group_starts: (g + 1,) borders of the groups in `rows`.
        limits: uncompressed size that closes a batch, and the limit for one record's batch.
        lengths: out, each record's length field, by its place in `rows`.
        batches: out, `PlanColumn.WIDTH` wide, as long as the groups together.
        failed: out, (2,) on failure the row, and its batch's size.
    """
    planned = 0
    for group in range(group_starts.size - 1):
        place, end, next_offset = group_starts[group], group_starts[group + 1], 0
        while place < end:
            first = place
            failed[0] = rows[first]
            if offsets.size and not next_offset <= offsets[rows[first]] < _INT64_MAX:
                return _OFFSET_ORDER
            place, total, delta, max_timestamp = _plan_batch(
                rows, bodies, timestamps, offsets, first, end, limits[0], lengths
            )
            if total > limits[1]:
                failed[1] = total
                return _TOO_LARGE
            next_offset = offsets[rows[first]] + delta + 1 if offsets.size else 0
            batches[planned, _FIRST], batches[planned, _COUNT], batches[planned, _SIZE] = first, place - first, total
            batches[planned, _GROUP], batches[planned, _LAST_DELTA] = group, delta
            batches[planned, _MAX_TIMESTAMP] = max_timestamp
            planned += 1
    return planned


@kernel(
    f"void({_COLUMN}, {_COLUMN}, {_COLUMN}, {_COLUMN}, {_COLUMN}, {INT64S}, {INT64S}, {INT64S}, int32[::1],"
    f" int64[:, ::1], {INT64S}, uint8[::1])"
)
def write_records(
    key_offsets: _Int64s,
    key_data: _Bytes,
    key_flags: _Bytes,
    value_offsets: _Int64s,
    value_data: _Bytes,
    value_flags: _Bytes,
    list_offsets: _Int64s,
    _list_data: _Bytes,
    list_flags: _Bytes,
    name_offsets: _Int64s,
    name_data: _Bytes,
    _name_flags: _Bytes,
    content_offsets: _Int64s,
    content_data: _Bytes,
    content_flags: _Bytes,
    timestamps: _Int64s,
    offsets: _Int64s,
    rows: _Int64s,
    lengths: npt.NDArray[np.int32],
    batches: npt.NDArray[np.int64],
    section_starts: _Int64s,
    out: _Bytes,
) -> None:
    """Write each planned batch's records to its place in `out`.

    The columns come one by one, not as tuples: taking an array out of a tuple counts references at every use, which
    costs more than writing the record.

    Args:
        rows: and `lengths`, as the plan saw and left them.
        batches: (b, WIDTH) of the plan.
        section_starts: (b,) where each batch's first record goes.
        out: with room for every section.
    """
    out_start, key_start, value_start = address_of(out), address_of(key_data), address_of(value_data)
    name_start, content_start = address_of(name_data), address_of(content_data)
    for batch in range(batches.shape[0]):
        first, address = batches[batch, _FIRST], out_start + section_starts[batch]
        base_timestamp = timestamps[rows[first]]
        base_offset = offsets[rows[first]] if offsets.size else first
        for place in range(first, first + batches[batch, _COUNT]):
            row = rows[place]
            address = write_varint(address, lengths[place])
            store_byte(address, 0)
            address = write_varint(address + 1, timestamps[row] - base_timestamp)
            address = write_varint(address, (offsets[row] if offsets.size else place) - base_offset)
            size = key_offsets[row + 1] - key_offsets[row]
            if key_flags.size != 0 and key_flags[row] == 0:
                size = -1
            address = _write_field(address, key_start + key_offsets[row], size)
            size = value_offsets[row + 1] - value_offsets[row]
            if value_flags.size != 0 and value_flags[row] == 0:
                size = -1
            address = _write_field(address, value_start + value_offsets[row], size)
            header = header_end = 0
            if list_offsets.size != 0 and (list_flags.size == 0 or list_flags[row] != 0):
                header, header_end = list_offsets[row], list_offsets[row + 1]
            address = write_varint(address, header_end - header)
            while header < header_end:
                size = name_offsets[header + 1] - name_offsets[header]
                address = _write_field(address, name_start + name_offsets[header], size)
                size = content_offsets[header + 1] - content_offsets[header]
                if content_flags.size != 0 and content_flags[header] == 0:
                    size = -1
                address = _write_field(address, content_start + content_offsets[header], size)
                header += 1
