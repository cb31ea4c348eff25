"""Reads a few batches of format v2 in plain Python: loading numba and the kernels costs a short command a second.

Only sound batches are read here; the kernels read all others, formats v0 and v1 included, and report damage. A process
that has loaded them, or has read more than a little, uses only them.

| field of a record | encoding                                                   |
|-------------------|------------------------------------------------------------|
| length            | varint, the bytes that follow                              |
| attributes        | i8, 0                                                      |
| timestamp delta   | varlong, from the batch's base timestamp, wraps at 64 bits |
| offset delta      | varint, from the base offset                               |
| key, value        | varint length, -1 = null, and bytes                        |
| headers           | varint count, and for each key and value as above          |

A varint is zig-zag: seven bits a byte, least significant group first, bit 7 set when another byte follows.

Source: Kafka DefaultRecord, FileLogInputStream, ByteUtils.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.record.batch_probe import (
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    UP_TO_MAGIC_BYTES,
    V2_CRC,
    first_fields,
)
from sparklog.storage_core.record.java_text import java_text
from sparklog.storage_core.record.kernel_tables import HEADER_COLUMNS, HeaderColumn
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, HEADER_DTYPE

__all__ = [
    "RECORD_COST_BYTES",
    "Record",
    "compare_by_library",
    "is_few",
    "scan_headers",
    "unpack_record",
    "unpack_section",
    "unpack_varint",
]

RECORD_COST_BYTES: Final = 2048
"""Bytes of batches that plain code scans in the time of reading one record, mostly."""

_KERNELS: Final = "sparklog.storage_core.kernels"
_CRC_AT, _CRC_COVERS_FROM, _update_crc = V2_CRC
_VARINT_BYTES: Final = 5
_VARLONG_BYTES: Final = 10
_HEADER_FIELDS: Final = {
    HeaderColumn.SIZE: "batch_length",
    HeaderColumn.MAGIC: "magic",
    HeaderColumn.BASE_OFFSET: "base_offset",
    HeaderColumn.LAST_OFFSET: "last_offset_delta",
    HeaderColumn.LEADER_EPOCH: "partition_leader_epoch",
    HeaderColumn.CRC: "crc",
    HeaderColumn.ATTRIBUTES: "attributes",
    HeaderColumn.BASE_TIMESTAMP: "base_timestamp",
    HeaderColumn.MAX_TIMESTAMP: "max_timestamp",
    HeaderColumn.PRODUCER_ID: "producer_id",
    HeaderColumn.PRODUCER_EPOCH: "producer_epoch",
    HeaderColumn.BASE_SEQUENCE: "base_sequence",
    HeaderColumn.RECORDS_COUNT: "records_count",
}

_Bytes = npt.NDArray[np.uint8]
_Int64s = npt.NDArray[np.int64]


class _Allowance:
    """Remaining bytes for plain code in this process; they take a tenth of the time that loading the kernels does."""

    left_bytes = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record; `timestamp` is ms since the epoch, -1 none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def is_few(cost_bytes: int) -> bool:
    """Whether to read this much in plain code; if so, it counts as read."""
    if _KERNELS in sys.modules or cost_bytes > _Allowance.left_bytes:
        return False
    _Allowance.left_bytes -= cost_bytes
    return True


def scan_headers(source: _Bytes, start: int, end: int) -> tuple[_Int64s, _Int64s, int] | None:
    """Return the complete batches between two positions.

    Returns:
        (b,) positions, (HEADER_COLUMNS, b) headers, and the position after the last batch; None if any bytes are not a
        batch of format v2.
    """
    view, position, found = source.data, start, []
    while end - position > UP_TO_MAGIC_BYTES and (first := first_fields(view[position : position + UP_TO_MAGIC_BYTES])):
        if first.size < HEADER_BYTES or first.magic != MAGIC_V2:
            return None
        if first.size > end - position:
            break
        found.append(position)
        position += first.size
    positions = np.array(found, np.int64)
    headers = source[np.add.outer(positions, np.arange(HEADER_BYTES))].view(HEADER_DTYPE)[:, 0]
    columns = np.empty((HEADER_COLUMNS, len(positions)), np.int64)
    for column, name in _HEADER_FIELDS.items():
        columns[column] = headers[name]
    columns[HeaderColumn.SIZE] += LOG_OVERHEAD_BYTES
    columns[HeaderColumn.LAST_OFFSET] += columns[HeaderColumn.BASE_OFFSET]
    return positions, columns, position


def compare_by_library(source: _Bytes, positions: _Int64s, sizes: _Int64s, wrong: _Bytes) -> None:
    """As `crc_kernels.compare_crc32cs`, a batch at a time, on any processor."""
    view = source.data
    for number, (position, size) in enumerate(zip(positions.tolist(), sizes.tolist(), strict=True)):
        if position < 0 or size < _CRC_COVERS_FROM or size > source.size - position:
            wrong[number] = True
            continue
        stored = int.from_bytes(view[position + _CRC_AT : position + _CRC_COVERS_FROM], "big")
        wrong[number] = _update_crc(view[position + _CRC_COVERS_FROM : position + size]) != stored


def unpack_section(
    section: bytes, count: int, base_offset: int, base_timestamp: int, *, is_fixed_timestamp: bool
) -> list[Record]:
    """Return the records of one batch.

    Args:
        count: their number.
        base_offset: of the batch.
        base_timestamp: of the batch, or the time of its append.
        is_fixed_timestamp: whether every record has the base timestamp (LogAppendTime).

    Raises:
        ValueError: the bytes contradict themselves.
    """
    records, position = [], 0
    for _ in range(count):
        record, position = unpack_record(section, position, base_offset, base_timestamp, is_fixed_timestamp)
        records.append(record)
    if position != len(section):
        raise ValueError("bytes remain after the last record")
    return records


def unpack_record(
    data: bytes, position: int, base_offset: int, base_timestamp: int, is_fixed_timestamp: bool = False
) -> tuple[Record, int]:
    """Return the record at a position and the position after it.

    Raises:
        ValueError: a length is damaged.
    """
    length, position = unpack_varint(data, position, len(data))
    end = position + length
    if length < 1 or end > len(data):
        raise ValueError("a record's length lies")
    timestamp_delta, position = unpack_varint(data, position + 1, end, _VARLONG_BYTES)
    offset_delta, position = unpack_varint(data, position, end)
    key, position = _unpack_field(data, position, end)
    value, position = _unpack_field(data, position, end)
    count, position = unpack_varint(data, position, end)
    if not 0 <= count <= end - position:
        raise ValueError("a record's header count lies")
    headers = []
    for _ in range(count):
        name, position = _unpack_field(data, position, end)
        content, position = _unpack_field(data, position, end)
        if name is None:
            raise ValueError("a header has no key")
        headers.append((java_text(name), content))
    if position != end:
        raise ValueError("a record's fields are shorter than its length")
    timestamp = base_timestamp if is_fixed_timestamp else _wrap(base_timestamp + timestamp_delta)
    offset = _wrap(base_offset + offset_delta)
    return Record(offset=offset, timestamp=timestamp, key=key, value=value, headers=tuple(headers)), end


def unpack_varint(data: bytes, position: int, end: int, max_bytes: int = _VARINT_BYTES) -> tuple[int, int]:
    """Return one value and the position after it.

    Bits that don't fit into the width (32 for 5 bytes, 64 for 10) are dropped, as Kafka's shifts drop them.

    Args:
        end: of the readable bytes.
        max_bytes: 5 for a varint, 10 for a varlong.

    Raises:
        ValueError: it runs past `end` or past `max_bytes`.
    """
    raw = 0
    for shift in range(0, 7 * max_bytes, 7):
        if position >= end:
            raise ValueError("varint runs past the end")
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= (1 << (32 if max_bytes == _VARINT_BYTES else 64)) - 1
            return (raw >> 1) ^ -(raw & 1), position
    raise ValueError("varint is too long")


def _unpack_field(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = unpack_varint(data, position, end)
    if size < 0:
        return None, position
    if size > end - position:
        raise ValueError("a length reaches past the record")
    return data[position : position + size], position + size


def _wrap(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
