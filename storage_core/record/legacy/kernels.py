"""The compiled half of reading formats v0 and v1: entries, their fields, their CRC-32.

As in `decode_kernels`, each read of untrusted bytes has a bounds check first; kernels allocate nothing, and never read
outside of `source`.

Source: Kafka LegacyRecord, AbstractLegacyRecordBatch.
"""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.kernels import kernel
from sparklog.storage_core.record.batch_probe import LEGACY_CRC, LOG_OVERHEAD_BYTES, MAGIC_AT
from sparklog.storage_core.record.kernel_memory import (
    BYTES,
    INT64S,
    address_of,
    inlined,
    load_byte,
    load_int32,
    load_int64,
)
from sparklog.storage_core.record.kernel_tables import SectionColumn
from sparklog.storage_core.record.legacy.crc32_kernel import crc32
from sparklog.storage_core.record.legacy.header import FIXED_BYTES, LEGACY_ATTRIBUTES_AT, MIN_ENTRY_BYTES
from sparklog.storage_core.record.v2.batch_header import place_of

__all__ = ["LEGACY_FAILURES", "compare_crcs", "locate_entries", "parse_entries", "survey_set"]

_Bytes: TypeAlias = npt.NDArray[np.uint8]
_Int32s: TypeAlias = npt.NDArray[np.int32]
_Int64s: TypeAlias = npt.NDArray[np.int64]

LEGACY_FAILURES: Final = (
    "",
    "a message's length is below what its format has, or reaches past its bytes",
    "a message's key length reaches past the message",
    "a message's value length reaches past the message",
    "a message inside a wrapper is of another format",
    "a message inside a wrapper is compressed",
    "a message inside a wrapper has a wrong CRC",
)
"""Meaning of each code of `parse_entries` and `survey_set`."""

_START, _END, _COUNT = SectionColumn.START, SectionColumn.END, SectionColumn.COUNT
_BASE_OFFSET, _BASE_TIMESTAMP = SectionColumn.BASE_OFFSET, SectionColumn.BASE_TIMESTAMP
_FIXED_TIMESTAMP, _MAGIC = SectionColumn.FIXED_TIMESTAMP, SectionColumn.MAGIC

_MIN_V0_SIZE: Final = MIN_ENTRY_BYTES[0] - LOG_OVERHEAD_BYTES
_TIMESTAMP_BYTES: Final = 8
_CRC_AT, _CRC_FROM, _ = LEGACY_CRC
_LENGTH_AT: Final = place_of("batch_length")
_TIMESTAMP_AT: Final = FIXED_BYTES[0]
_CODEC_MASK: Final = 7

_STARTS: Final = "int64[::1], int32[::1]"


@inlined
def _has_wrong_crc(address: int, end: int) -> bool:
    return crc32(address + _CRC_FROM, end - address - _CRC_FROM) != load_int32(address + _CRC_AT) & 0xFFFFFFFF


@inlined
def _entry_end(address: int, end: int, magic: int) -> int:
    """Return the end of the entry at an address, or -1 if its length is damaged."""
    if end - address < LOG_OVERHEAD_BYTES + _MIN_V0_SIZE:
        return -1
    size = load_int32(address + _LENGTH_AT)
    least = _MIN_V0_SIZE + (_TIMESTAMP_BYTES if magic == 1 else 0)
    if size < least or size > end - address - LOG_OVERHEAD_BYTES:
        return -1
    return address + LOG_OVERHEAD_BYTES + size


@inlined
def _read_part(address: int, end: int) -> tuple[int, int]:
    """Return the size of a key or value, -1 for null, and its bytes' address, or address -1 if it is damaged."""
    if end - address < 4:
        return 0, -1
    size = load_int32(address)
    address += 4
    if size > end - address:
        return 0, -1
    return max(size, -1), address


@kernel(f"void({BYTES}, {INT64S}, {INT64S}, boolean[::1])")
def compare_crcs(source: _Bytes, starts: _Int64s, ends: _Int64s, is_wrong: npt.NDArray[np.bool_]) -> None:
    """Find the entries with a wrong CRC-32, or not within `source`.

    Args:
        starts: (n,) of each entry in `source`.
        ends: (n,) of each.
        is_wrong: out, (n,).
    """
    start = address_of(source)
    for place in range(starts.size):
        is_inside = starts[place] >= 0 and ends[place] - starts[place] >= _CRC_FROM and ends[place] <= source.size
        is_wrong[place] = not is_inside or _has_wrong_crc(start + starts[place], start + ends[place])


@kernel(f"UniTuple(int64, 3)({BYTES}, int64, int64)")
def survey_set(source: _Bytes, magic: int, checks_crcs: int) -> tuple[int, int, int]:
    """Walk over the decompressed entries of a wrapper; a partial one at the end is skipped, as in a log.

    Args:
        source: the wrapper's decompressed value.
        magic: of the wrapper, 0 or 1.
        checks_crcs: 0 skips the CRCs.

    Returns:
        a place in `LEGACY_FAILURES`, 0 for none; the number of entries; the stored offset of the last one.
    """
    address, section_end = address_of(source), address_of(source) + source.size
    count, last_offset = 0, 0
    while section_end - address >= LOG_OVERHEAD_BYTES:
        size = load_int32(address + _LENGTH_AT)
        if size < _MIN_V0_SIZE:
            return 1, count, last_offset
        if size > section_end - address - LOG_OVERHEAD_BYTES:
            break
        if load_byte(address + MAGIC_AT) != magic:
            return 4, count, last_offset
        end = _entry_end(address, section_end, magic)
        if end < 0:
            return 1, count, last_offset
        if load_byte(address + LEGACY_ATTRIBUTES_AT) & _CODEC_MASK:
            return 5, count, last_offset
        if checks_crcs and _has_wrong_crc(address, end):
            return 6, count, last_offset
        last_offset = load_int64(address)
        count += 1
        address = end
    return 0, count, last_offset


@kernel(f"UniTuple(int64, 2)({BYTES}, int64[:, ::1], int64[::1], int64[::1], {_STARTS}, {_STARTS}, {_STARTS})")
def parse_entries(
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
    """Check every entry and locate its parts; arguments and result as of `decode_kernels.parse_records`.

    A section is one uncompressed entry, or the decompressed entries of a wrapper that `survey_set` has accepted. Bytes
    between the value and the entry's end are skipped, as in Kafka.
    """
    start = address_of(source)
    key_end, value_end, header_end = key_offsets[0], value_offsets[0], header_offsets[0]
    place = 0
    for section in range(sections.shape[0]):
        address, section_end = start + sections[section, _START], start + sections[section, _END]
        fixed, magic = sections[section, _FIXED_TIMESTAMP], sections[section, _MAGIC]
        for _ in range(sections[section, _COUNT]):
            end = _entry_end(address, section_end, magic)
            if end < 0:
                return 1, section
            offsets[place] = sections[section, _BASE_OFFSET] + load_int64(address)
            timestamps[place] = sections[section, _BASE_TIMESTAMP] if fixed else load_int64(address + _TIMESTAMP_AT)
            fields = address + _TIMESTAMP_AT + (_TIMESTAMP_BYTES if magic == 1 else 0)
            key_size, key = _read_part(fields, end)
            if key < 0:
                return 2, section
            value_size, value = _read_part(key + max(key_size, 0), end)
            if value < 0:
                return 3, section
            key_starts[place] = key - start if key_size >= 0 else -1
            value_starts[place] = value - start if value_size >= 0 else -1
            header_starts[place] = 0
            key_end += max(key_size, 0)
            value_end += max(value_size, 0)
            place += 1
            key_offsets[place], value_offsets[place], header_offsets[place] = key_end, value_end, header_end
            address = end
    return 0, 0


@kernel(f"void({BYTES}, int64[:, ::1], int64[::1], int64[::1])")
def locate_entries(source: _Bytes, sections: npt.NDArray[np.int64], starts: _Int64s, ends: _Int64s) -> None:
    """Locate each entry, in sections that `parse_entries` has accepted.

    Args:
        starts: out, (n,) for the sum of `COUNT`.
        ends: out, (n,).
    """
    start = address_of(source)
    place = 0
    for section in range(sections.shape[0]):
        address = start + sections[section, _START]
        for _ in range(sections[section, _COUNT]):
            starts[place] = address - start
            address += LOG_OVERHEAD_BYTES + load_int32(address + _LENGTH_AT)
            ends[place] = address - start
            place += 1
