"""The first fields of a batch, common to all formats, and the place of each format's CRC.

| pos | size | v0 and v1                         | v2                                  |
|-----|------|-----------------------------------|-------------------------------------|
| 0   | 8    | offset                            | base offset                         |
| 8   | 4    | size of the entry minus 12        | size of the batch minus 12          |
| 12  | 4    | CRC-32 over bytes 16 to the end   | leader epoch                        |
| 16  | 1    | magic, signed                     | magic, signed                       |
| 17  | 4    | attributes, then format-specific  | CRC-32C over bytes 21 to the end    |

A magic of 2 and above is read as v2, a lower one as an entry of v0 or v1. So is a byte from 128 on: it is negative.

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
"""Bytes that the length of a batch does not count."""

MAGIC_AT: Final = 16
UP_TO_MAGIC_BYTES: Final = MAGIC_AT + 1
"""Shorter than any batch."""

MAGIC_V2: Final = 2

_FIRST_FIELDS: Final = struct.Struct(">qi4xb")


class _Crc(NamedTuple):
    """A format's CRC: position of its 4 bytes, start of the covered bytes, which end with the batch, and its function.

    `update(data, crc)` continues from the CRC of earlier bytes.
    """

    at: int
    covers_from: int
    update: Callable[..., int]


LEGACY_CRC: Final = _Crc(12, 16, zlib.crc32)
V2_CRC: Final = _Crc(17, 21, crc32c.crc32c)


class FirstFields(NamedTuple):
    """First fields of a batch of any format: its offset, its whole size in bytes, its magic from -128 to 127."""

    offset: int
    size: int
    magic: int

    @property
    def crc(self) -> _Crc:
        """The CRC of this magic's format."""
        return V2_CRC if self.magic >= MAGIC_V2 else LEGACY_CRC


def first_fields(data: bytes | memoryview) -> FirstFields | None:
    """Return the first fields of the batch at the start of `data`, None if `data` is too short."""
    if len(data) < UP_TO_MAGIC_BYTES:
        return None
    offset, length, magic = _FIRST_FIELDS.unpack_from(data)
    return FirstFields(offset, LOG_OVERHEAD_BYTES + length, magic)
