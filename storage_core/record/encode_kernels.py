"""The compiled half of encoding: where batches end, and the records' bytes.

Both kernels walk `rows` in order and see the columns as Arrow's buffers, one tuple per column: int64 offsets, bytes,
and one flag byte per element (0 = null), no flags where nothing is null. `plan_batches` decides each batch and keeps
each record's length; `write_records` then only writes, into room that the plan has measured.

Source: Kafka DefaultRecord, MemoryRecordsBuilder.
"""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from storage_core.kernels import kernel
from storage_core.record.byte_copy import BYTES, INT64S, copy_bytes, inlined

__all__ = ["BATCH_COLUMNS", "Column", "Columns", "PlanColumn", "PlanFailure", "plan_batches", "write_records"]

_Bytes: TypeAlias = npt.NDArray[np.uint8]
_Int64s: TypeAlias = npt.NDArray[np.int64]

Column: TypeAlias = tuple[_Int64s, _Bytes, _Bytes]
"""One column of n: (n + 1,) offsets, the bytes they point into, (n,) flags or none."""

Columns: TypeAlias = tuple[Column, Column, Column, Column, Column, _Int64s, _Int64s]
"""Keys, values, header lists (no data), header keys, header values; timestamps; offsets or none."""


class PlanColumn:
    """What each column of a plan holds; a plan has one row per batch."""

    FIRST: Final = 0  # place in `rows` of the first record
    COUNT: Final = 1  # records
    SIZE: Final = 2  # bytes, uncompressed, header included
    GROUP: Final = 3
    LAST_DELTA: Final = 4  # last offset delta
    MAX_TIMESTAMP: Final = 5


class PlanFailure:
    """Why a plan stopped: the result is minus one of these."""

    TOO_LARGE: Final = 1
    HEADER_KEY: Final = 2
    OFFSET_ORDER: Final = 3
    ROW_RANGE: Final = 4


BATCH_COLUMNS: Final = 6

# Kernels see module constants, not class attributes.
_FIRST, _COUNT, _SIZE = PlanColumn.FIRST, PlanColumn.COUNT, PlanColumn.SIZE
_GROUP, _LAST_DELTA, _MAX_TIMESTAMP = PlanColumn.GROUP, PlanColumn.LAST_DELTA, PlanColumn.MAX_TIMESTAMP
_TOO_LARGE, _HEADER_KEY = -PlanFailure.TOO_LARGE, -PlanFailure.HEADER_KEY
_OFFSET_ORDER, _ROW_RANGE = -PlanFailure.OFFSET_ORDER, -PlanFailure.ROW_RANGE
_HEADER_BYTES: Final = 61
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1

_COLUMN: Final = f"Tuple(({INT64S}, {BYTES}, {BYTES}))"
_COLUMNS: Final = f"Tuple(({_COLUMN}, {_COLUMN}, {_COLUMN}, {_COLUMN}, {_COLUMN}, {INT64S}, {INT64S}))"


@inlined
def _varint_size(value: int) -> int:
    rest = np.uint64((value << 1) ^ (value >> 63))
    size = 1
    while rest > np.uint64(0x7F):
        rest >>= np.uint64(7)
        size += 1
    return size


@inlined
def _write_varint(out: _Bytes, position: int, value: int) -> int:
    rest = np.uint64((value << 1) ^ (value >> 63))
    while rest > np.uint64(0x7F):
        out[position] = np.uint8(rest & np.uint64(0x7F) | np.uint64(0x80))
        rest >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(rest)
    return position + 1


@inlined
def _is_null(column: Column, place: int) -> bool:
    flags = column[2]
    return flags.size != 0 and flags[place] == 0


@inlined
def _field_size(column: Column, place: int) -> int:
    if _is_null(column, place):
        return 1
    size: int = column[0][place + 1] - column[0][place]
    return _varint_size(size) + size


@inlined
def _write_field(out: _Bytes, position: int, column: Column, place: int) -> int:
    if _is_null(column, place):
        out[position] = 1
        return position + 1
    start = column[0][place]
    size: int = column[0][place + 1] - start
    position = _write_varint(out, position, size)
    copy_bytes(out, position, column[1], start, size)
    return position + size


@inlined
def _headers_size(columns: Columns, row: int) -> int:
    """Return the bytes of a record's headers, their count included, or -1 where a header has no key."""
    lists, names, contents = columns[2], columns[3], columns[4]
    if lists[0].size == 0 or _is_null(lists, row):
        return 1
    first, end = lists[0][row], lists[0][row + 1]
    size = _varint_size(end - first)
    for header in range(first, end):
        if _is_null(names, header):
            return -1
        size += _field_size(names, header) + _field_size(contents, header)
    return size


@inlined
def _write_headers(out: _Bytes, position: int, columns: Columns, row: int) -> int:
    lists, names, contents = columns[2], columns[3], columns[4]
    if lists[0].size == 0 or _is_null(lists, row):
        out[position] = 0
        return position + 1
    first, end = lists[0][row], lists[0][row + 1]
    position = _write_varint(out, position, end - first)
    for header in range(first, end):
        position = _write_field(out, position, names, header)
        position = _write_field(out, position, contents, header)
    return position


@inlined
def _row_failure(columns: Columns, row: int, previous_offset: int) -> int:
    """Return why a row can't follow an offset in a log, or 0."""
    timestamps, offsets = columns[5], columns[6]
    if row < 0 or row >= timestamps.size:
        return _ROW_RANGE
    if offsets.size and (offsets[row] <= previous_offset or offsets[row] == _INT64_MAX):
        return _OFFSET_ORDER
    return 0


@inlined
def _plan_batch(
    columns: Columns,
    rows: _Int64s,
    span: tuple[int, int],
    limits: tuple[int, int],
    lengths: npt.NDArray[np.int32],
    batch: _Int64s,
    failed: _Int64s,
) -> int:
    """Plan the batch that starts at `span[0]`; return the place after it, or minus a failure."""
    timestamps, offsets = columns[5], columns[6]
    first, end = span
    place, total, delta, previous_offset = first, _HEADER_BYTES, 0, batch[_LAST_DELTA]
    base_timestamp = max_timestamp = base_offset = 0
    while place < end:
        row = failed[0] = rows[place]
        failure = _row_failure(columns, row, previous_offset)
        if failure:
            return failure
        offset, timestamp = offsets[row] if offsets.size else place, timestamps[row]
        if place == first:
            base_timestamp, max_timestamp, base_offset = timestamp, timestamp, offset
        headers_size = _headers_size(columns, row)
        if headers_size < 0:
            return _HEADER_KEY
        length = 1 + _field_size(columns[0], row) + _field_size(columns[1], row) + headers_size
        length += _varint_size(timestamp - base_timestamp) + _varint_size(offset - base_offset)
        size = _varint_size(length) + length
        if place > first and (total + size > limits[0] or offset - base_offset > _INT32_MAX):
            break
        if total + size > limits[1]:
            failed[1] = total + size
            return _TOO_LARGE
        total += size
        delta, previous_offset = offset - base_offset, offset
        max_timestamp = max(max_timestamp, timestamp)
        lengths[place] = length
        place += 1
    batch[_FIRST], batch[_COUNT], batch[_SIZE] = first, place - first, total
    batch[_LAST_DELTA], batch[_MAX_TIMESTAMP] = delta, max_timestamp
    return place


@kernel(
    f"int64({_COLUMNS}, {INT64S}, {INT64S}, UniTuple(int64, 2), int32[::1], int64[:, ::1], int64[::1])",
)
def plan_batches(
    columns: Columns,
    rows: _Int64s,
    group_starts: _Int64s,
    limits: tuple[int, int],
    lengths: npt.NDArray[np.int32],
    batches: npt.NDArray[np.int64],
    failed: _Int64s,
) -> int:
    """Fill `lengths` and `batches`; return how many batches there are, or minus a `PlanFailure`.

    Args:
        columns: of n rows.
        rows: row numbers, in record order within each group.
        group_starts: (g + 1,) borders of the groups in `rows`.
        limits: uncompressed size at which a batch is closed, and the one that no record's batch may pass.
        lengths: out, each record's length field, by its place in `rows`.
        batches: out, `BATCH_COLUMNS` wide, as long as `rows`.
        failed: out, (2,) on failure the row, and its batch's size.
    """
    planned = 0
    for group in range(group_starts.size - 1):
        place, end = group_starts[group], group_starts[group + 1]
        previous_offset = -1
        while place < end:
            batch = batches[planned]
            batch[_GROUP] = group
            batch[_LAST_DELTA] = previous_offset
            place = _plan_batch(columns, rows, (place, end), limits, lengths, batch, failed)
            if place < 0:
                return place
            if columns[6].size:
                previous_offset = columns[6][rows[place - 1]]
            planned += 1
    return planned


@kernel(f"void({_COLUMNS}, {INT64S}, int32[::1], int64[:, ::1], {INT64S}, uint8[::1])")
def write_records(
    columns: Columns,
    rows: _Int64s,
    lengths: npt.NDArray[np.int32],
    batches: npt.NDArray[np.int64],
    section_starts: _Int64s,
    out: _Bytes,
) -> None:
    """Write each planned batch's records to its place in `out`.

    Args:
        columns: as `plan_batches` saw them; `rows`, `lengths` and `batches` too.
        section_starts: (b,) where each batch's first record goes.
        out: with room for every section.
    """
    timestamps, offsets = columns[5], columns[6]
    for batch in range(batches.shape[0]):
        first = batches[batch, _FIRST]
        position = section_starts[batch]
        base_timestamp = timestamps[rows[first]]
        base_offset = offsets[rows[first]] if offsets.size else first
        for place in range(first, first + batches[batch, _COUNT]):
            row = rows[place]
            position = _write_varint(out, position, lengths[place])
            out[position] = 0
            position = _write_varint(out, position + 1, timestamps[row] - base_timestamp)
            position = _write_varint(out, position, (offsets[row] if offsets.size else place) - base_offset)
            position = _write_field(out, position, columns[0], row)
            position = _write_field(out, position, columns[1], row)
            position = _write_headers(out, position, columns, row)
