"""The index of a segment's aborted transactions: one entry per abort marker in the segment.

| pos | type | value                                                                          |
|-----|------|--------------------------------------------------------------------------------|
| 0   | i16  | version 0                                                                      |
| 2   | i64  | producer id                                                                    |
| 10  | i64  | first offset of the transaction                                                |
| 18  | i64  | last offset: that of the abort marker                                          |
| 26  | i64  | last stable offset at the abort                                                |

The file exists only after an abort, and is never padded. A transaction without records in the log has no entry, even if
its marker is there.

Source: Kafka TransactionIndex, AbortedTxn; KIP-98.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Final

from sparklog.storage_core.errors import CorruptFileError, OffsetOutOfRangeError

__all__ = [
    "TRANSACTION_ENTRY_BYTES",
    "AbortedTransaction",
    "collect_aborted",
    "pack_transaction_entries",
    "parse_transaction_index",
]

_VERSION: Final = 0
_ENTRY: Final = struct.Struct(">hqqqq")
TRANSACTION_ENTRY_BYTES: Final = _ENTRY.size


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """One aborted transaction; the fields of an entry in order."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def parse_transaction_index(data: bytes, base_offset: int) -> list[AbortedTransaction]:
    """Return the entries of a `.txnindex` file; a partial one at the end is skipped, as in Kafka.

    Raises:
        CorruptFileError: a later version, an entry below the segment's base, or last offsets that do not increase.
    """
    whole = len(data) - len(data) % _ENTRY.size
    entries = [AbortedTransaction(*fields) for fields in _ENTRY.iter_unpack(data[:whole])]
    previous = base_offset - 1
    for number, entry in enumerate(entries):
        if entry.version > _VERSION:
            raise CorruptFileError(f"transaction index entry {number} has version {entry.version}, not {_VERSION}")
        if entry.last_offset <= previous:
            raise CorruptFileError(
                f"transaction index entry {number} does not increase: last_offset={entry.last_offset} after={previous}"
            )
        previous = entry.last_offset
    return entries


def pack_transaction_entries(entries: Iterable[AbortedTransaction], after_offset: int = -1) -> bytes:
    """Return the bytes of entries to append to a `.txnindex` file.

    Args:
        entries: in the order of their abort markers.
        after_offset: last offset of the file's last entry, or -1.

    Raises:
        OffsetOutOfRangeError: a last offset is not above the one before it.
    """
    packed = bytearray()
    for entry in entries:
        if entry.last_offset <= after_offset:
            raise OffsetOutOfRangeError(
                f"aborted transactions go back: last_offset={entry.last_offset} after={after_offset}"
            )
        packed += _ENTRY.pack(*astuple(entry))
        after_offset = entry.last_offset
    return bytes(packed)


def collect_aborted(
    entries: Sequence[AbortedTransaction], from_offset: int, upper_bound_offset: int
) -> tuple[list[AbortedTransaction], bool]:
    """Return one segment's aborted transactions that overlap [from, upper bound), and whether these are all.

    If not, later segments may have more: a transaction's entry is in the segment of its marker. They are all if an
    entry's last stable offset is at or above the upper bound: every transaction below it had ended then.

    Args:
        from_offset: first offset to read.
        upper_bound_offset: the offset above the last one to read.
    """
    found = []
    for entry in entries:
        if entry.last_offset >= from_offset and entry.first_offset < upper_bound_offset:
            found.append(entry)
        if entry.last_stable_offset >= upper_bound_offset:
            return found, True
    return found, False
