"""The compiled half of encoding formats v0 and v1: sizes of entries, ends of wrappers, bytes and CRCs.

Source: Kafka LegacyRecord, MemoryRecordsBuilder.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.kernels import kernel
from sparklog.storage_core.record.batch_probe import LEGACY_CRC, LOG_OVERHEAD_BYTES, MAGIC_AT
from sparklog.storage_core.record.kernel_memory import (
    BYTES,
    INT64S,
    address_of,
    copy_bytes,
    inlined,
    store_byte,
)
from sparklog.storage_core.record.legacy.crc32_kernel import crc32
from sparklog.storage_core.record.legacy.header import FIXED_BYTES, LEGACY_ATTRIBUTES_AT
from sparklog.storage_core.record.v2.encode_kernels import PlanColumn

__all__ = ["measure_entries", "plan_sets", "write_entries"]

_Bytes = npt.NDArray[np.uint8]
_Int64s = npt.NDArray[np.int64]

_INT32_MAX: Final = 2**31 - 1
_CRC_AT, _CRC_FROM, _ = LEGACY_CRC
_TIMESTAMP_AT: Final = FIXED_BYTES[0]

# Kernels see module constants, not class attributes.
_FIRST, _COUNT, _SIZE = PlanColumn.FIRST, PlanColumn.COUNT, PlanColumn.SIZE
_GROUP, _LAST_DELTA, _MAX_TIMESTAMP = PlanColumn.GROUP, PlanColumn.LAST_DELTA, PlanColumn.MAX_TIMESTAMP

_COLUMN: Final = f"{INT64S}, {BYTES}, {BYTES}"


@inlined
def _store_int32(address: int, value: int) -> int:
    """Write the low 32 bits, big-endian, and return the address after them."""
    store_byte(address, value >> 24)
    store_byte(address + 1, value >> 16)
    store_byte(address + 2, value >> 8)
    store_byte(address + 3, value)
    return address + 4


@inlined
def _store_int64(address: int, value: int) -> int:
    """Write 64 bits, big-endian, and return the address after them."""
    return _store_int32(_store_int32(address, value >> 32), value)


@inlined
def _store_field(address: int, source: int, size: int) -> int:
    """Write a length, -1 for null, and that many bytes; return the address after them."""
    address = _store_int32(address, size)
    if size > 0:
        copy_bytes(address, source, size)
        address += size
    return address


@kernel(f"int64({INT64S}, {BYTES}, {INT64S}, {BYTES}, {INT64S}, int64, int64[::1])")
def measure_entries(
    key_offsets: _Int64s,
    key_flags: _Bytes,
    value_offsets: _Int64s,
    value_flags: _Bytes,
    rows: _Int64s,
    fixed_bytes: int,
    sizes: _Int64s,
) -> int:
    """Fill `sizes` of each record's entry; return the place of a row outside the columns, or -1.

    Args:
        key_offsets: (n + 1,) and `key_flags` (n,) or none; the values' likewise.
        fixed_bytes: of an entry without the bytes of key and value.
        sizes: out, by place in `rows`.
    """
    for place in range(rows.size):
        row = rows[place]
        if row < 0 or row >= key_offsets.size - 1 or row >= value_offsets.size - 1:
            return place
        size = fixed_bytes
        if key_flags.size == 0 or key_flags[row] != 0:
            size += key_offsets[row + 1] - key_offsets[row]
        if value_flags.size == 0 or value_flags[row] != 0:
            size += value_offsets[row + 1] - value_offsets[row]
        sizes[place] = size
    return -1


@kernel(f"int64({INT64S}, {INT64S}, {INT64S}, {INT64S}, int64, int64[:, ::1])")
def plan_sets(
    offsets: _Int64s,
    timestamps: _Int64s,
    sizes: _Int64s,
    group_starts: _Int64s,
    limit_bytes: int,
    sets: npt.NDArray[np.int64],
) -> int:
    """Fill `sets` with the records of each wrapper, in the columns of `PlanColumn`; return their number.

    Args:
        offsets: (r,) of each record, rising within each group; `timestamps` and `sizes` of its entry likewise.
        group_starts: (g + 1,) borders of the groups among the records.
        limit_bytes: size of the entries that closes a set; one entry is always allowed.
        sets: out, `PlanColumn.WIDTH` wide, as long as the groups together; `SIZE` is that of the entries.
    """
    planned = 0
    for group in range(group_starts.size - 1):
        place, end = group_starts[group], group_starts[group + 1]
        while place < end:
            first, total, max_timestamp = place, 0, -1
            while place < end:
                too_far = offsets[place] - offsets[first] > _INT32_MAX
                if place > first and (total + sizes[place] > limit_bytes or too_far):
                    break
                total += sizes[place]
                max_timestamp = max(max_timestamp, timestamps[place])
                place += 1
            sets[planned, _FIRST], sets[planned, _COUNT], sets[planned, _SIZE] = first, place - first, total
            sets[planned, _GROUP], sets[planned, _LAST_DELTA] = group, offsets[place - 1] - offsets[first]
            sets[planned, _MAX_TIMESTAMP] = max_timestamp
            planned += 1
    return planned


@kernel(f"void({_COLUMN}, {_COLUMN}, {INT64S}, {INT64S}, {INT64S}, {INT64S}, {INT64S}, UniTuple(int64, 2), uint8[::1])")
def write_entries(
    key_offsets: _Int64s,
    key_data: _Bytes,
    key_flags: _Bytes,
    value_offsets: _Int64s,
    value_data: _Bytes,
    value_flags: _Bytes,
    rows: _Int64s,
    offsets: _Int64s,
    timestamps: _Int64s,
    starts: _Int64s,
    sizes: _Int64s,
    kind: tuple[int, int],
    out: _Bytes,
) -> None:
    """Write the entry of each record, CRC included.

    Args:
        offsets: (r,) stored offset of each entry, by place in `rows`; `timestamps` and `sizes` likewise.
        starts: (r,) of each entry in `out`.
        kind: magic and attributes.
        out: with room for every entry.
    """
    magic, attributes = kind
    out_start, key_start, value_start = address_of(out), address_of(key_data), address_of(value_data)
    for place in range(rows.size):
        row, entry = rows[place], out_start + starts[place]
        _store_int32(_store_int64(entry, offsets[place]), sizes[place] - LOG_OVERHEAD_BYTES)
        store_byte(entry + MAGIC_AT, magic)
        store_byte(entry + LEGACY_ATTRIBUTES_AT, attributes)
        address = entry + _TIMESTAMP_AT
        if magic != 0:
            address = _store_int64(address, timestamps[place])
        size = key_offsets[row + 1] - key_offsets[row]
        if key_flags.size != 0 and key_flags[row] == 0:
            size = -1
        address = _store_field(address, key_start + key_offsets[row], size)
        size = value_offsets[row + 1] - value_offsets[row]
        if value_flags.size != 0 and value_flags[row] == 0:
            size = -1
        _store_field(address, value_start + value_offsets[row], size)
        _store_int32(entry + _CRC_AT, crc32(entry + _CRC_FROM, sizes[place] - _CRC_FROM))
