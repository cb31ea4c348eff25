"""Locates the records of batches and their keys; decodes nothing else.

Every length, also of headers, is checked against the end of its container before its use: a consumer can read every
record that is copied.

Source: Kafka DefaultRecord, ByteUtils.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.kernels import kernel
from sparklog.storage_core.record.kernel_memory import BYTES, address_of, inlined
from sparklog.storage_core.record.kernel_tables import SectionColumn
from sparklog.storage_core.record.v2.varint_kernels import read_field, read_varint, skip_varlong

__all__ = ["LOCATE_FAILURES", "locate_records"]

LOCATE_FAILURES: Final = (
    "",
    "a record's length is damaged or reaches past the batch",
    "a record's deltas are damaged",
    "a record's key length is damaged or reaches past the record",
    "a record's value length is damaged or reaches past the record",
    "a record's headers are damaged or reach past the record",
    "a record's fields are shorter than its length",
    "bytes remain after the last record",
    "a record's offset is below its batch's, or goes back",
)
"""Meaning of each code of `locate_records`."""

_START, _END, _COUNT = SectionColumn.START, SectionColumn.END, SectionColumn.COUNT
_BASE_OFFSET: Final = SectionColumn.BASE_OFFSET

_Bytes = npt.NDArray[np.uint8]
_Int64s = npt.NDArray[np.int64]


@inlined
def _skip_headers(address: int, end: int) -> int:
    """Return the address after a record's headers, or -1 if they are damaged."""
    count, address = read_varint(address, end)
    if address < 0 or count < 0 or count > end - address:
        return -1
    for _ in range(count):
        size, address = read_field(address, end)
        if address < 0 or size < 0:
            return -1
        size, address = read_field(address + size, end)
        if address < 0:
            return -1
        address += max(size, 0)
    return address


@inlined
def _locate_record(address: int, section_end: int) -> tuple[int, int, int, int, int, int]:
    """Return a failure or 0, a record's end, its offset delta, its key's size and start, and its value's size.

    Sizes are -1 for null.
    """
    length, address = read_varint(address, section_end)
    if address < 0 or length < 1 or length > section_end - address:
        return 1, 0, 0, 0, 0, 0
    end = address + length
    address = skip_varlong(address + 1, end)
    delta = 0
    if address >= 0:
        delta, address = read_varint(address, end)
    if address < 0:
        return 2, 0, 0, 0, 0, 0
    key_size, key = read_field(address, end)
    if key < 0:
        return 3, 0, 0, 0, 0, 0
    value_size, value = read_field(key + max(key_size, 0), end)
    if value < 0:
        return 4, 0, 0, 0, 0, 0
    address = _skip_headers(value + max(value_size, 0), end)
    if address != end:
        return 5 if address < 0 else 6, 0, 0, 0, 0, 0
    return 0, end, delta, key_size, key, value_size


@kernel(
    f"UniTuple(int64, 2)({BYTES}, int64[:, ::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1],"
    " boolean[::1])"
)
def locate_records(
    source: _Bytes,
    sections: npt.NDArray[np.int64],
    offsets: _Int64s,
    starts: _Int64s,
    ends: _Int64s,
    key_starts: _Int64s,
    key_sizes: _Int64s,
    has_value: npt.NDArray[np.bool_],
) -> tuple[int, int]:
    """Check and locate every record.

    Args:
        sections: (b, SECTION_COLUMNS) of format v2, each within `source`.
        offsets: out, (n,) for the sum of `COUNT`; the others likewise.
        starts: out, of each record's length field, and `ends` of the record.
        key_starts: out, of its key's bytes, -1 = null; and `key_sizes`.
        has_value: out, whether its value is not null.

    Returns:
        a place in `LOCATE_FAILURES`, 0 for none, and the place of the section that failed.
    """
    start = address_of(source)
    place = 0
    for section in range(sections.shape[0]):
        address, section_end = start + sections[section, _START], start + sections[section, _END]
        previous = -1
        for _ in range(sections[section, _COUNT]):
            starts[place] = address - start
            failure, address, delta, key_size, key, value_size = _locate_record(address, section_end)
            if failure != 0:
                return failure, section
            if delta <= previous:
                return 8, section
            previous = delta
            offsets[place], ends[place] = sections[section, _BASE_OFFSET] + delta, address - start
            key_starts[place], key_sizes[place] = (key - start if key_size >= 0 else -1), max(key_size, 0)
            has_value[place] = value_size >= 0
            place += 1
        if address != section_end:
            return 7, section
    return 0, 0
