"""The fixed fields of an entry of format v0 or v1, before its key and value.

| v0 at | v1 at | type | field        | note                                                                     |
|-------|-------|------|--------------|--------------------------------------------------------------------------|
| 0     | 0     | i64  | offset       | a wrapper's is that of its last inner entry; the CRC does not cover it   |
| 8     | 8     | i32  | message_size | size of the entry minus 12                                               |
| 12    | 12    | u32  | crc          | CRC-32 (zlib's) over bytes 16 to the end                                 |
| 16    | 16    | i8   | magic        | 0 or 1                                                                   |
| 17    | 17    | i8   | attributes   | bits 0-2 codec, bit 3 timestamp type (v1 alone), others 0                |
| -     | 18    | i64  | timestamp    | ms, -1 none                                                              |
| 18    | 26    | i32  | key length   | -1 null; then the key                                                    |
| 22+k  | 30+k  | i32  | value length | -1 null; then the value, which ends the entry                            |

An entry is a record, or a *wrapper*: codec bits set, key null, value a compressed run of entries without codec. Inner
offsets are absolute in v0; in v1 they count from the set's base, and the last one stands for the wrapper's offset.

Source: Kafka LegacyRecord, AbstractLegacyRecordBatch; KIP-31, KIP-32.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np

from sparklog.storage_core.record.attributes import CODEC_MASK, LOG_APPEND_TIME_BIT
from sparklog.storage_core.record.batch_probe import LOG_OVERHEAD_BYTES, UP_TO_MAGIC_BYTES
from sparklog.storage_core.record.schema import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP, NO_TIMESTAMP_TYPE

__all__ = [
    "FIXED_BYTES",
    "LEGACY_ATTRIBUTES_AT",
    "LEGACY_DTYPES",
    "MIN_ENTRY_BYTES",
    "LegacyHeader",
    "pack_legacy_header",
]

FIXED_BYTES: Final = (18, 26)
"""By magic: bytes before the key length."""

LEGACY_ATTRIBUTES_AT: Final = UP_TO_MAGIC_BYTES

MIN_ENTRY_BYTES: Final = (26, 34)
"""By magic: size of an entry with empty key and value."""

_UP_TO_ATTRIBUTES: Final = [
    ("offset", ">i8"),
    ("message_size", ">i4"),
    ("crc", ">u4"),
    ("magic", "i1"),
    ("attributes", "i1"),
]

LEGACY_DTYPES: Final = (np.dtype(_UP_TO_ATTRIBUTES), np.dtype([*_UP_TO_ATTRIBUTES, ("timestamp", ">i8")]))
"""By magic: the same table for a column of entries, `FIXED_BYTES` each."""

_STRUCTS: Final = (struct.Struct(">qiIbb"), struct.Struct(">qiIbbq"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyHeader:
    """Every fixed field of one entry, in the order of the bytes; `timestamp` is -1 in format v0."""

    offset: int
    message_size: int
    crc: int
    magic: int
    attributes: int
    timestamp: int = NO_TIMESTAMP

    @property
    def size_bytes(self) -> int:
        """Size of the whole entry."""
        return LOG_OVERHEAD_BYTES + self.message_size

    @property
    def is_wrapper(self) -> bool:
        """Whether the value is a compressed run of entries."""
        return bool(self.attributes & CODEC_MASK)

    @property
    def timestamp_type(self) -> int:
        """`CREATE_TIME` or `LOG_APPEND_TIME`; always `NO_TIMESTAMP_TYPE` in format v0."""
        if self.magic == 0:
            return NO_TIMESTAMP_TYPE
        return LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else CREATE_TIME


def pack_legacy_header(header: LegacyHeader) -> bytes:
    """Return the 18 or 26 bytes before the key length; `crc` is not computed."""
    fields = (header.offset, header.message_size, header.crc, header.magic, header.attributes)
    if header.magic == 0:
        return _STRUCTS[0].pack(*fields)
    return _STRUCTS[1].pack(*fields, header.timestamp)
