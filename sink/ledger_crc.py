"""A CRC-32C over the ledger's rows, kept in the log entry of the commit that wrote them.

The data file has none that is checked when it is read: a changed bit in it would be another offset.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import crc32c
import numpy as np
import numpy.typing as npt

__all__ = ["ROWS_CRC", "committed_crc", "rows_crc"]

ROWS_CRC = "sparklog.rows_crc32c"
"""Key in an entry's first line."""


def rows_crc(text: Mapping[str, list[str]], integers: Mapping[str, npt.NDArray[np.int64]]) -> str:
    """Return the CRC of all rows, column by column in the order of their names."""
    crc = 0
    for name in sorted(text):
        crc = crc32c.crc32c("\0".join(text[name]).encode(), crc)
    for name in sorted(integers):
        crc = crc32c.crc32c(integers[name].astype("<i8").tobytes(), crc)
    return f"{crc:08x}"


def committed_crc(entry: Path) -> str | None:
    """Return the CRC that a log entry names; None where there is no such entry, or an earlier release wrote it.

    Raises:
        ValueError: the entry is no JSON.
    """
    if not entry.exists():
        return None
    actions = [json.loads(line) for line in entry.read_bytes().splitlines()]
    found = [action["commitInfo"].get(ROWS_CRC) for action in actions if "commitInfo" in action]
    return None if not found or found[0] is None else str(found[0])
