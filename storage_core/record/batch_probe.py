"""The first fields of a batch, which every format has, and where each format's CRC stands.

| pos | size | v0 and v1                         | v2                                  |
|-----|------|-----------------------------------|-------------------------------------|
| 0   | 8    | offset                            | base offset                         |
| 8   | 4    | size of the entry minus 12        | size of the batch minus 12          |
| 12  | 4    | CRC-32 over bytes 16 to the end   | leader epoch                        |
| 16  | 1    | magic, signed                     | magic, signed                       |
| 17  | 4    | attributes, and what follows      | CRC-32C over bytes 21 to the end    |

A magic of 2 and above is read as v2, one below as an entry of v0 or v1. So is a byte from 128 on: it is negative.

Source: Kafka Records, FileLogInputStream, LegacyRecord, DefaultRecordBatch.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Final, NamedTuple

import crc32c

__all__ = [
    "LEGACY_CRC",
    "LOG_OVERHEAD_BYTES",
    "MAGIC_AT",
    "MAGIC_V2",
    "UP_TO_MAGIC_BYTES",
    "V2_CRC",
    "FirstFields",
    "first_fields",
]

LOG_OVERHEAD_BYTES: Final = 12
"""What the length of a batch does not count."""

MAGIC_AT: Final = 16
UP_TO_MAGIC_BYTES: Final = MAGIC_AT + 1
"""No batch is as short as that."""

MAGIC_V2: Final = 2

_FIRST_FIELDS: Final = struct.Struct(">qi4xb")


class _Crc(NamedTuple):
    """A format's CRC: where its 4 bytes stand, where the bytes start that it covers, how it is computed.

    `update(data, crc)` goes on from the CRC of what came before. The bytes covered end with the batch.
    """

    at: int
    covers_from: int
    update: Callable[..., int]


LEGACY_CRC: Final = _Crc(12, 16, zlib.crc32)
V2_CRC: Final = _Crc(17, 21, crc32c.crc32c)


class FirstFields(NamedTuple):
    """What a batch of any format says first: its offset, its whole size in bytes, its magic from -128 to 127."""

    offset: int
    size: int
    magic: int

    @property
    def crc(self) -> _Crc:
        """Where the CRC stands, by the magic."""
        return V2_CRC if self.magic >= MAGIC_V2 else LEGACY_CRC


def first_fields(data: bytes | memoryview) -> FirstFields | None:
    """Return what the batch that `data` starts with says, None if `data` ends before its magic does."""
    if len(data) < UP_TO_MAGIC_BYTES:
        return None
    offset, length, magic = _FIRST_FIELDS.unpack_from(data)
    return FirstFields(offset, LOG_OVERHEAD_BYTES + length, magic)
