"""CRC-32Cs of a commit in its log entry: one of the ledger's rows, one of its micro-batches.

Parquet readers check no CRC of the data file, so a changed bit in it would be another offset. A changed bit in the
number of a micro-batch would skip later micro-batches, or write one twice. An entry without CRCs is damaged or of
another program: Delta reads an empty entry as one without actions, and the ledger would have the state of the version
before. Only the version that makes the table has no CRCs: it has no rows.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import crc32c
import numpy as np
import numpy.typing as npt

from sparklog.sink.delta.delta_log import DeltaLog

__all__ = [
    "ROWS_CRC",
    "TRANSACTIONS_CRC",
    "CommittedEntries",
    "read_committed",
    "rows_crc",
    "transactions_crc",
]

ROWS_CRC = "sparklog.rows_crc32c"
"""Key in an entry's first line."""
TRANSACTIONS_CRC = "sparklog.transactions_crc32c"
"""Key in an entry's first line."""


@dataclass(frozen=True, slots=True)
class CommittedEntries:
    """The content of the entries since the last checkpoint.

    Attributes:
        rows_crc: CRC of the rows in the last entry.
        transactions: newest micro-batch of each query.
    """

    rows_crc: str
    transactions: Mapping[str, int]


def rows_crc(text: Mapping[str, list[str]], integers: Mapping[str, npt.NDArray[np.int64]]) -> str:
    """Return the CRC of all rows, column by column in the order of their names."""
    crc = 0
    for name in sorted(text):
        crc = crc32c.crc32c("\0".join(text[name]).encode(), crc)
    for name in sorted(integers):
        crc = crc32c.crc32c(integers[name].astype("<i8").tobytes(), crc)
    return f"{crc:08x}"


_NO_ROWS_CRC = rows_crc({}, {})


def transactions_crc(transactions: Iterable[tuple[object, object]]) -> str:
    """Return the CRC of a commit's (query id, micro-batch) pairs, in their order."""
    return f"{crc32c.crc32c(json.dumps(list(transactions)).encode()):08x}"


def read_committed(log: DeltaLog, version: int) -> CommittedEntries:
    """Return the content of the entries since the last checkpoint.

    Args:
        log: the ledger's files.
        version: of the last entry.

    Raises:
        ValueError: an entry is missing, damaged, of another program, or its micro-batches don't have their CRC.
    """
    newest: dict[str, int] = {}
    crc = _NO_ROWS_CRC
    for number, actions in log.read_entries(version):
        if number == 0 and any("metaData" in action for action in actions):  # makes the table
            continue
        entry = log.entry(number).name
        crc = _named_crc(entry, actions, ROWS_CRC)
        found = [_pair(action["txn"]) for action in actions if "txn" in action]
        committed, computed = _named_crc(entry, actions, TRANSACTIONS_CRC), transactions_crc(found)
        if committed != computed:
            raise ValueError(
                f"its micro-batches are not what was committed: version={number} crc={computed} {committed=}"
            )
        newest |= {str(query_id): int(batch_id) for query_id, batch_id in found}
    return CommittedEntries(crc, newest)


def _named_crc(entry: str, actions: list[dict[str, Any]], key: str) -> str:
    found = [action["commitInfo"].get(key) for action in actions if "commitInfo" in action]
    if not found or found[0] is None:
        raise ValueError(f"an entry has no CRC, so it is damaged or not a commit of Sparklog: file={entry}")
    return str(found[0])


def _pair(transaction: dict[str, Any]) -> tuple[Any, Any]:
    return transaction.get("appId"), transaction.get("version")
