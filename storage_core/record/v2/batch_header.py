"""The fixed 61-byte header of a RecordBatch, format v2.

| pos | type | field                  | note                                                        |
|-----|------|------------------------|-------------------------------------------------------------|
| 0   | i64  | base_offset            | of the original first record; stays after compaction        |
| 8   | i32  | batch_length           | size of the batch minus 12                                  |
| 12  | i32  | partition_leader_epoch | -1 none                                                     |
| 16  | i8   | magic                  | 2                                                           |
| 17  | u32  | crc                    | CRC-32C over bytes 21 to the end                            |
| 21  | i16  | attributes             | see `attributes`                                            |
| 23  | i32  | last_offset_delta      | last offset minus base offset                               |
| 27  | i64  | base_timestamp         | first record's, or the delete horizon                       |
| 35  | i64  | max_timestamp          | of the records, or the time of the append                   |
| 43  | i64  | producer_id            | -1 none                                                     |
| 51  | i16  | producer_epoch         | -1 none                                                     |
| 53  | i32  | base_sequence          | -1 none                                                     |
| 57  | i32  | records_count          | records present; may be 0, or below last_offset_delta + 1   |

The CRC starts at `attributes`, so an append may set `base_offset` and `partition_leader_epoch` without computing it
again.

Source: Kafka DefaultRecordBatch; KIP-98.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.record import attributes as bits
from sparklog.storage_core.record.attributes import codec_name
from sparklog.storage_core.record.batch_probe import LOG_OVERHEAD_BYTES
from sparklog.storage_core.record.schema import CREATE_TIME, LOG_APPEND_TIME

if TYPE_CHECKING:
    from mmap import mmap

__all__ = [
    "HEADER_BYTES",
    "HEADER_DTYPE",
    "OFFSETS_HEAD",
    "BatchHeader",
    "ByteSource",
    "pack_header",
    "place_of",
    "unpack_header",
]

HEADER_DTYPE: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("partition_leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("records_count", ">i4"),
    ]
)
"""The same table for a column of headers: one 61-byte element each."""

HEADER_BYTES: Final = HEADER_DTYPE.itemsize

ByteSource: TypeAlias = "bytes | bytearray | memoryview | mmap | npt.NDArray[np.uint8]"
"""Any object with contiguous bytes, also an Arrow buffer."""

OFFSETS_HEAD: Final = struct.Struct(">qi4xb6xi")
"""Base offset, length, magic and, in this format, last offset delta."""

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_SEQUENCES: Final = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchHeader:
    """Every field of one batch's header, in the order of the bytes."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch."""
        return LOG_OVERHEAD_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        """The last offset of the batch, with or without a record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch."""
        return self.last_offset + 1

    @property
    def codec(self) -> str:
        """Name of the codec.

        Raises:
            CorruptBatchError: illegal codec bits; its position is 0, the header's own start.
        """
        name = codec_name(self.attributes)
        if name is None:
            raise CorruptBatchError(f"attributes={self.attributes} name no codec", 0)
        return name

    @property
    def timestamp_type(self) -> int:
        """`CREATE_TIME` or `LOG_APPEND_TIME`."""
        return LOG_APPEND_TIME if self.attributes & bits.LOG_APPEND_TIME_BIT else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & bits.TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the batch has a control record, which consumers skip."""
        return bool(self.attributes & bits.CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """Time at which the cleaner may drop the batch's tombstones and markers; None before the first cleaning."""
        return self.base_timestamp if self.attributes & bits.DELETE_HORIZON_BIT else None

    @property
    def last_sequence(self) -> int:
        """The last record's sequence number, which wraps from 2147483647 to 0; -1 without a producer."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCES


def pack_header(header: BatchHeader) -> bytes:
    """Return the 61 bytes of a header; `crc` is not computed."""
    return _HEADER.pack(*astuple(header))


def place_of(field: str) -> int:
    """Return where a field stands in a header."""
    return int(HEADER_DTYPE.fields[field][1]) if HEADER_DTYPE.fields else -1


def unpack_header(data: ByteSource, position: int = 0) -> BatchHeader:
    """Return the header at `position`; checks no field.

    Raises:
        CorruptBatchError: fewer than 61 bytes remain.
    """
    try:
        values = _HEADER.unpack_from(np.frombuffer(data, np.uint8).data, position)
    except struct.error as error:
        raise CorruptBatchError("fewer bytes than a batch header has", position) from error
    return BatchHeader(**dict(zip(BatchHeader.__slots__, values, strict=True)))
