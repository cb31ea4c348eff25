"""CRC-32Cs of what a commit says, kept in its log entry: one over the ledger's rows, one over its micro-batches.

The data file has none that is checked when it is read: a changed bit in it would be another offset. The same bit in the
number of a micro-batch would drop the next ones, or write one twice.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import numpy.typing as npt

from storage_core.storage.open_regular import read_file

__all__ = ["ROWS_CRC", "TRANSACTIONS_CRC", "committed_crc", "committed_transactions", "rows_crc", "transactions_crc"]

ROWS_CRC = "sparklog.rows_crc32c"
"""Key in an entry's first line."""
TRANSACTIONS_CRC = "sparklog.transactions_crc32c"
"""Key in an entry's first line."""

_CHECKPOINT = ".checkpoint.parquet"


def rows_crc(text: Mapping[str, list[str]], integers: Mapping[str, npt.NDArray[np.int64]]) -> str:
    """Return the CRC of all rows, column by column in the order of their names."""
    crc = 0
    for name in sorted(text):
        crc = crc32c.crc32c("\0".join(text[name]).encode(), crc)
    for name in sorted(integers):
        crc = crc32c.crc32c(integers[name].astype("<i8").tobytes(), crc)
    return f"{crc:08x}"


def transactions_crc(transactions: Iterable[tuple[object, object]]) -> str:
    """Return the CRC of a commit's (query id, micro-batch) pairs, in their order."""
    return f"{crc32c.crc32c(json.dumps(list(transactions)).encode()):08x}"


def committed_crc(entry: Path) -> str | None:
    """Return the CRC of the rows that a log entry names; None if there is no such entry, or an earlier release's.

    Raises:
        ValueError: the entry is no JSON.
    """
    return _named_crc(_actions(entry), ROWS_CRC)


def committed_transactions(log: Path, version: int) -> dict[str, int]:
    """Return the newest micro-batch of each query that the entries since the last checkpoint name.

    Args:
        log: folder of the entries.
        version: the last one that counts.

    Raises:
        ValueError: an entry is no JSON, or names other micro-batches than it was committed with.
    """
    checkpoints = (int(path.name[:20]) for path in log.glob(f"*{_CHECKPOINT}") if path.name[:20].isdigit())
    first = max((each for each in checkpoints if each <= version), default=0)
    newest: dict[str, int] = {}
    for number in range(first, version + 1):
        actions = _actions(log / f"{number:020}.json")
        found = [_pair(action["txn"]) for action in actions if "txn" in action]
        committed, crc = _named_crc(actions, TRANSACTIONS_CRC), transactions_crc(found)
        if committed not in (None, crc):
            raise ValueError(f"its micro-batches are not what was committed: version={number} crc={crc} {committed=}")
        newest |= {str(query_id): int(batch_id) for query_id, batch_id in found}
    return newest


def _actions(entry: Path) -> list[dict[str, Any]]:
    """Return the lines of a log entry; none if there is no such entry: a checkpoint replaced it."""
    try:
        lines = read_file(entry).splitlines()
    except FileNotFoundError:
        return []
    actions = [json.loads(line) for line in lines]
    if not all(isinstance(value, dict) for action in actions for value in action.values()):
        raise ValueError(f"a line of a log entry is no action: file={entry.name}")
    return actions


def _named_crc(actions: list[dict[str, Any]], key: str) -> str | None:
    found = [action["commitInfo"].get(key) for action in actions if "commitInfo" in action]
    return None if not found or found[0] is None else str(found[0])


def _pair(transaction: dict[str, Any]) -> tuple[Any, Any]:
    return transaction.get("appId"), transaction.get("version")
