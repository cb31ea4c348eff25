"""The producer snapshot of a log: the state of each idempotent producer up to the offset in the file's name.

| pos     | type | value                                    |
|---------|------|------------------------------------------|
| 0       | i16  | version 1                                |
| 2       | u32  | CRC-32C of bytes 6 .. end                |
| 6       | i32  | number of producers                      |
| 10+46*i | 46   | one producer: the fields of `ProducerState` in order, big-endian |

Source: Kafka ProducerStateManager.
"""

import struct
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Final

import crc32c

from sparklog.storage_core.errors import CorruptFileError

__all__ = ["ProducerState", "parse_producer_snapshot", "render_producer_snapshot"]

_VERSION: Final = 1
_HEADER = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_START = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """State of one producer; -1 stands for none.

    Attributes:
        last_sequence: of its last data batch.
        last_offset: of that batch.
        offset_delta: `last_offset` minus that batch's first offset.
        timestamp: ms, of its last batch, markers included.
        coordinator_epoch: of its last transaction marker.
        current_txn_first_offset: of its open transaction.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def render_producer_snapshot(producers: Sequence[ProducerState] = ()) -> bytes:
    """Return the file's bytes."""
    entries = b"".join(_ENTRY.pack(*astuple(producer)) for producer in producers)
    body = struct.pack(">i", len(producers)) + entries
    return struct.pack(">hI", _VERSION, crc32c.crc32c(body)) + body


def parse_producer_snapshot(data: bytes) -> list[ProducerState]:
    """Return the state of each producer, in the file's order.

    Raises:
        CorruptFileError: another version, a wrong CRC, or a size that does not fit the number of producers.
    """
    if len(data) < _HEADER.size:
        raise CorruptFileError(f"producer snapshot has {len(data)} bytes, fewer than its header's {_HEADER.size}")
    version, crc, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise CorruptFileError(f"producer snapshot has version {version}, not {_VERSION}")
    found = crc32c.crc32c(data[_CRC_START:])
    if found != crc:
        raise CorruptFileError(f"producer snapshot is corrupt: crc={crc} computed={found}")
    if len(data) != _HEADER.size + count * _ENTRY.size:
        raise CorruptFileError(f"producer snapshot has {len(data)} bytes, which do not hold {count} producers")
    names = ProducerState.__slots__
    return [ProducerState(**dict(zip(names, entry, strict=True))) for entry in _ENTRY.iter_unpack(data[_HEADER.size :])]
