"""Writes kept records into the section of a smaller batch.

A record's offset counts from the batch's base, which stays, its timestamp from the base timestamp, which may move: to
the first kept record, or to the delete horizon. If that changes nothing for a record it is copied; else its length and
its timestamp delta are new, and the rest is copied.

Source: Kafka MemoryRecords.buildRetainedRecordsInto, DefaultRecord.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.kernels import kernel
from sparklog.storage_core.record.kernel_memory import (
    BYTES,
    INT64S,
    address_of,
    copy_bytes,
    inlined,
    load_byte,
    store_byte,
)
from sparklog.storage_core.record.kernel_tables import SectionColumn
from sparklog.storage_core.record.v2.varint_kernels import read_varint, read_varlong, varint_size, write_varint

__all__ = ["MAX_GROWTH_BYTES", "NO_BASE", "write_survivors"]

MAX_GROWTH_BYTES: Final = 10
"""Largest growth of a record: a timestamp delta of 1 byte that takes 10, and a byte of its length."""

NO_BASE: Final = -(2**63)
"""Marks a batch whose base timestamp is that of its first record."""

_BASE_TIMESTAMP, _FIXED_TIMESTAMP = SectionColumn.BASE_TIMESTAMP, SectionColumn.FIXED_TIMESTAMP
_NO_TIMESTAMP: Final = -1

_Bytes = npt.NDArray[np.uint8]
_Int64s = npt.NDArray[np.int64]


@inlined
def _write_record(out: int, start: int, end: int, shift: int, fixed: int) -> tuple[int, int]:
    """Write a record whose base timestamp moved; return the address after it, and its old delta.

    Args:
        out: address to write to.
        start: address of the record, and `end` after it.
        shift: old base timestamp minus new one.
        fixed: not 0 if stored deltas are ignored.
    """
    _, attributes = read_varint(start, end)
    stored, tail = read_varlong(attributes + 1, end)
    delta = 0 if fixed else stored
    if delta + shift == stored:
        copy_bytes(out, start, end - start)
        return out + end - start, delta
    out = write_varint(out, 1 + varint_size(delta + shift) + end - tail)
    store_byte(out, load_byte(attributes))
    out = write_varint(out + 1, delta + shift)
    copy_bytes(out, tail, end - tail)
    return out + end - tail, delta


@inlined
def _first_delta(start: int, end: int, fixed: int) -> int:
    """Return a record's delta from the base timestamp."""
    if fixed:
        return 0
    _, attributes = read_varint(start, end)
    delta, _ = read_varlong(attributes + 1, end)
    return delta


@kernel(
    f"int64({BYTES}, {INT64S}, {INT64S}, Array(boolean, 1, 'C', True), int64[:, ::1], {INT64S}, {INT64S}, {INT64S},"
    " int64[::1], int64[::1], int64[::1], uint8[::1])"
)
def write_survivors(
    source: _Bytes,
    starts: _Int64s,
    ends: _Int64s,
    stays: npt.NDArray[np.bool_],
    sections: npt.NDArray[np.int64],
    borders: _Int64s,
    rebuilt: _Int64s,
    bases: _Int64s,
    base_timestamps: _Int64s,
    max_timestamps: _Int64s,
    borders_out: _Int64s,
    out: _Bytes,
) -> int:
    """Write the kept records of some batches; return the number of bytes.

    Args:
        starts: (n,) and `ends` (n,), of `locate_records`; and `stays` (n,).
        sections: (b, SECTION_COLUMNS).
        borders: (b + 1,) of each batch's records among all.
        rebuilt: (r,) the numbers of the batches to write, rising; each keeps a record.
        bases: (r,) the new base timestamps, `NO_BASE` for that of the first kept record.
        base_timestamps: out, (r,) of each new batch; and `max_timestamps` of its records, at least -1.
        borders_out: out, (r + 1,) of the sections in `out`.
        out: with room for the records, and `MAX_GROWTH_BYTES` for each.
    """
    start, out_start = address_of(source), address_of(out)
    address = out_start
    for place in range(rebuilt.size):
        batch = rebuilt[place]
        borders_out[place] = address - out_start
        old_base, fixed = sections[batch, _BASE_TIMESTAMP], sections[batch, _FIXED_TIMESTAMP]
        new_base, has_base, largest = bases[place], bases[place] != NO_BASE, _NO_TIMESTAMP
        for record in range(borders[batch], borders[batch + 1]):
            if not stays[record]:
                continue
            first, end = start + starts[record], start + ends[record]
            if not has_base:
                new_base, has_base = old_base + _first_delta(first, end, fixed), True
            address, delta = _write_record(address, first, end, old_base - new_base, fixed)
            largest = max(largest, old_base + delta)
        base_timestamps[place], max_timestamps[place] = new_base, largest
    borders_out[rebuilt.size] = address - out_start
    return address - out_start
