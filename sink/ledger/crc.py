"""CRC-32Cs of a commit in its log entry: one of the ledger's rows, one of its micro-batches and its time.

Parquet readers check no CRC of the data file, so a changed bit in it would be another offset. A changed bit in the
number of a micro-batch would skip later micro-batches, or write one twice. An entry without CRCs is damaged or of
another program: Delta reads an empty entry as one without actions, and the ledger would have the state of the version
before. Only the version that makes the table has no CRCs: it has no rows.

The time is that of the last change of the store that cuts have to tell apart: of a micro-batch, new topics, or a
command that takes logs or records in or back. Each entry has it, as only the newest one always stays; commits of
maintenance and of openings pass it on.
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
    "CHANGED_MS",
    "ROWS_CRC",
    "TRANSACTIONS_CRC",
    "CommittedEntries",
    "read_committed",
    "rows_crc",
    "transactions_crc",
]

CHANGED_MS = "sparklog.changed_ms"
"""Key in an entry's first line."""
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
        changed_ms: time in the last entry; None in one of an earlier release.
    """

    rows_crc: str
    transactions: Mapping[str, int]
    changed_ms: int | None


def rows_crc(text: Mapping[str, list[str]], integers: Mapping[str, npt.NDArray[np.int64]]) -> str:
    """Return the CRC of all rows, column by column in the order of their names."""
    crc = 0
    for name in sorted(text):
        crc = crc32c.crc32c("\0".join(text[name]).encode(), crc)
    for name in sorted(integers):
        crc = crc32c.crc32c(integers[name].astype("<i8").tobytes(), crc)
    return f"{crc:08x}"


_NO_ROWS_CRC = rows_crc({}, {})


def transactions_crc(transactions: Iterable[tuple[object, object]], changed_ms: int | None = None) -> str:
    """Return the CRC of a commit's (query id, micro-batch) pairs, in their order, and of its time if it has one."""
    content: list[object] = [*transactions, *([] if changed_ms is None else [changed_ms])]
    return f"{crc32c.crc32c(json.dumps(content).encode()):08x}"


def read_committed(log: DeltaLog, version: int) -> CommittedEntries:
    """Return the content of the entries since the last checkpoint.

    Args:
        log: the ledger's files.
        version: of the last entry.

    Raises:
        ValueError: an entry is missing, damaged, of another program, or its micro-batches don't have their CRC.
    """
    newest: dict[str, int] = {}
    crc, changed_ms = _NO_ROWS_CRC, None
    for number, actions in log.read_entries(version):
        if number == 0 and any("metaData" in action for action in actions):  # makes the table
            continue
        entry = log.entry(number).name
        crc, changed_ms = _named_crc(entry, actions, ROWS_CRC), _changed_ms(actions)
        found = [_pair(action["txn"]) for action in actions if "txn" in action]
        committed, computed = _named_crc(entry, actions, TRANSACTIONS_CRC), transactions_crc(found, changed_ms)
        if committed != computed:
            raise ValueError(
                "its micro-batches or its time are not what was committed:"
                f" version={number} crc={computed} {committed=}"
            )
        for query_id, batch_id in found:
            newest.pop(str(query_id), None)  # the newest comes last
            newest[str(query_id)] = int(batch_id)
    return CommittedEntries(crc, newest, changed_ms)


def _named_crc(entry: str, actions: list[dict[str, Any]], key: str) -> str:
    found = _commit_info(actions).get(key)
    if found is None:
        raise ValueError(f"an entry has no CRC, so it is damaged or not a commit of Sparklog: file={entry}")
    return str(found)


def _changed_ms(actions: list[dict[str, Any]]) -> int | None:
    found = _commit_info(actions).get(CHANGED_MS)
    return None if found is None else int(found)


def _commit_info(actions: list[dict[str, Any]]) -> dict[str, Any]:
    return next((action["commitInfo"] for action in actions if "commitInfo" in action), {})


def _pair(transaction: dict[str, Any]) -> tuple[Any, Any]:
    return transaction.get("appId"), transaction.get("version")
