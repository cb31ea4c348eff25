"""The index of a segment's aborted transactions: one entry per abort marker in the segment.

| pos | type | value                                                                          |
|-----|------|--------------------------------------------------------------------------------|
| 0   | i16  | version 0                                                                      |
| 2   | i64  | producer id                                                                    |
| 10  | i64  | first offset of the transaction                                                |
| 18  | i64  | last offset: that of the abort marker                                          |
| 26  | i64  | last stable offset at that moment                                              |

Source: Kafka TransactionIndex, AbortedTxn.
"""

import struct
from dataclasses import dataclass
from typing import Final

from storage_core.errors import CorruptFileError

__all__ = ["TRANSACTION_ENTRY_BYTES", "AbortedTransaction", "parse_transaction_index"]

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
    """Return the entries of a `.txnindex` file; a partial one at the end is left out, as in Kafka.

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
