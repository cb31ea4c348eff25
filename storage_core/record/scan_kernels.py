"""The compiled half of scanning: starts of batches, and their headers as columns.

Source: Kafka FileLogInputStream.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.kernels import kernel
from sparklog.storage_core.record.batch_probe import (
    LEGACY_CRC,
    LOG_OVERHEAD_BYTES,
    MAGIC_AT,
    MAGIC_V2,
    UP_TO_MAGIC_BYTES,
    V2_CRC,
)
from sparklog.storage_core.record.kernel_memory import BYTES, INT64S, address_of, load_byte, load_int32, load_int64
from sparklog.storage_core.record.kernel_tables import HeaderColumn
from sparklog.storage_core.record.legacy.header import FIXED_BYTES, LEGACY_ATTRIBUTES_AT, MIN_ENTRY_BYTES
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, place_of

__all__ = ["MIN_BATCH_BYTES", "unpack_headers", "walk_batches"]

MIN_BATCH_BYTES: Final = MIN_ENTRY_BYTES[0]
"""Smallest complete entry of any format."""

_MIN_LENGTH, _MIN_V1_LENGTH, _MIN_V2_LENGTH = (each - LOG_OVERHEAD_BYTES for each in (*MIN_ENTRY_BYTES, HEADER_BYTES))
_NEGATIVE: Final = 0x80
"""A magic is a signed byte."""

_CODEC_MASK: Final = 0x07
_V1_ATTRIBUTES: Final = 0x0F

_V2_CRC_AT, _LEGACY_CRC_AT = V2_CRC.at, LEGACY_CRC.at
_LEGACY_TIMESTAMP_AT: Final = FIXED_BYTES[0]
_LENGTH_AT, _EPOCH_AT, _ATTRIBUTES_AT, _DELTA_AT, _BASE_TIMESTAMP_AT, _MAX_TIMESTAMP_AT = map(
    place_of,
    ("batch_length", "partition_leader_epoch", "attributes", "last_offset_delta", "base_timestamp", "max_timestamp"),
)
_PRODUCER_ID_AT, _PRODUCER_EPOCH_AT, _SEQUENCE_AT, _COUNT_AT = map(
    place_of, ("producer_id", "producer_epoch", "base_sequence", "records_count")
)

_Bytes = npt.NDArray[np.uint8]
_Int64s = npt.NDArray[np.int64]


@kernel(f"int64({BYTES}, int64, int64, int64[::1], int64[::1])")
def walk_batches(source: _Bytes, start: int, end: int, positions: _Int64s, stopped: _Int64s) -> int:
    """Fill `positions` with the start of each complete batch and return their number.

    Args:
        start: of the first batch.
        end: of the bytes to read; within `source`.
        positions: out, of at least `(end - start) // MIN_BATCH_BYTES` elements.
        stopped: out, (2,) the position after the last complete batch, and 1 if damage follows, not a short tail.
    """
    found = 0
    position = start
    damaged = 0
    while end - position > UP_TO_MAGIC_BYTES:
        length = 0
        for place in range(position + _LENGTH_AT, position + LOG_OVERHEAD_BYTES):
            length = (length << 8) | source[place]
        if length > 0x7FFFFFFF or length < _MIN_LENGTH:
            damaged = 1
            break
        if end - position < LOG_OVERHEAD_BYTES + length:
            break
        magic = source[position + MAGIC_AT]
        if (MAGIC_V2 <= magic < _NEGATIVE and length < _MIN_V2_LENGTH) or (magic == 1 and length < _MIN_V1_LENGTH):
            damaged = 1
            break
        positions[found] = position
        found += 1
        position += LOG_OVERHEAD_BYTES + length
    stopped[0] = position
    stopped[1] = damaged
    return found


# Kernels see module constants, not class attributes.
_SIZE, _MAGIC, _CRC = HeaderColumn.SIZE, HeaderColumn.MAGIC, HeaderColumn.CRC
_BASE_OFFSET, _LAST_OFFSET = HeaderColumn.BASE_OFFSET, HeaderColumn.LAST_OFFSET
_LEADER_EPOCH, _ATTRIBUTES = HeaderColumn.LEADER_EPOCH, HeaderColumn.ATTRIBUTES
_BASE_TIMESTAMP, _MAX_TIMESTAMP = HeaderColumn.BASE_TIMESTAMP, HeaderColumn.MAX_TIMESTAMP
_PRODUCER_ID, _PRODUCER_EPOCH = HeaderColumn.PRODUCER_ID, HeaderColumn.PRODUCER_EPOCH
_BASE_SEQUENCE, _RECORDS_COUNT = HeaderColumn.BASE_SEQUENCE, HeaderColumn.RECORDS_COUNT


@kernel(f"void({BYTES}, {INT64S}, int64[:, ::1])")
def unpack_headers(source: _Bytes, positions: _Int64s, columns: npt.NDArray[np.int64]) -> None:
    """Fill the header fields of batches of `walk_batches`.

    Args:
        columns: out, (HEADER_COLUMNS, n); -1 for fields that a format lacks.
    """
    start = address_of(source)
    for place in range(positions.size):
        address = start + positions[place]
        magic = load_byte(address + MAGIC_AT)
        columns[_SIZE, place] = LOG_OVERHEAD_BYTES + load_int32(address + _LENGTH_AT)
        columns[_MAGIC, place] = magic - ((magic >> 7) << 8)
        columns[_BASE_OFFSET, place] = load_int64(address)
        if MAGIC_V2 <= magic < _NEGATIVE:
            columns[_LAST_OFFSET, place] = columns[_BASE_OFFSET, place] + load_int32(address + _DELTA_AT)
            columns[_LEADER_EPOCH, place] = load_int32(address + _EPOCH_AT)
            columns[_CRC, place] = load_int32(address + _V2_CRC_AT) & 0xFFFFFFFF
            columns[_ATTRIBUTES, place] = load_int32(address + _ATTRIBUTES_AT) >> 16
            columns[_BASE_TIMESTAMP, place] = load_int64(address + _BASE_TIMESTAMP_AT)
            columns[_MAX_TIMESTAMP, place] = load_int64(address + _MAX_TIMESTAMP_AT)
            columns[_PRODUCER_ID, place] = load_int64(address + _PRODUCER_ID_AT)
            columns[_PRODUCER_EPOCH, place] = load_int32(address + _PRODUCER_EPOCH_AT) >> 16
            columns[_BASE_SEQUENCE, place] = load_int32(address + _SEQUENCE_AT)
            columns[_RECORDS_COUNT, place] = load_int32(address + _COUNT_AT)
        else:
            attributes = load_byte(address + LEGACY_ATTRIBUTES_AT)
            columns[_LAST_OFFSET, place] = columns[_BASE_OFFSET, place]
            columns[_CRC, place] = load_int32(address + _LEGACY_CRC_AT) & 0xFFFFFFFF
            columns[_ATTRIBUTES, place] = attributes & (_CODEC_MASK if magic == 0 else _V1_ATTRIBUTES)
            columns[_MAX_TIMESTAMP, place] = -1 if magic == 0 else load_int64(address + _LEGACY_TIMESTAMP_AT)
            columns[_RECORDS_COUNT, place] = -1 if attributes & _CODEC_MASK else 1
            columns[_LEADER_EPOCH, place] = columns[_BASE_TIMESTAMP, place] = columns[_PRODUCER_ID, place] = -1
            columns[_PRODUCER_EPOCH, place] = columns[_BASE_SEQUENCE, place] = -1
