"""Names and lines of the log entries of a Delta table: `<version>.json`, one JSON object a line.

Delta takes an empty entry for one without actions, and an entry that is cut at a line's end for a whole one. So each
entry of ours says in its first line how many lines follow, and a reading counts them.

Source: Delta protocol, "Delta Log Entries", "Checkpoints".
"""

import json
from pathlib import Path
from typing import Any, Final

from sparklog.storage_core.storage.open_regular import read_file

__all__ = [
    "ACTION_COUNT",
    "ENTRY",
    "LAST_CHECKPOINT_PATH",
    "checkpoint_version",
    "entry_path",
    "entry_version",
    "leading_version",
    "read_actions",
]

LAST_CHECKPOINT_PATH: Final = "_delta_log/_last_checkpoint"
"""Path of the file that names the newest checkpoint, below a table's folder."""

ACTION_COUNT: Final = "sparklog.actions"
"""Key in an entry's first line: how many lines follow."""
ENTRY: Final = ".json"
_VERSION_DIGITS: Final = 20


def leading_version(name: str) -> int | None:
    """Return the version with which a file's name begins; None if it begins otherwise."""
    digits = name[:_VERSION_DIGITS]
    return int(digits) if len(digits) == _VERSION_DIGITS and digits.isascii() and digits.isdigit() else None


def entry_path(version: int) -> str:
    """Return the path of a log entry in its table."""
    return f"_delta_log/{version:0{_VERSION_DIGITS}}{ENTRY}"


def entry_version(name: str) -> int | None:
    """Return the version of a log entry; None for a name that no entry has."""
    return leading_version(name) if name[_VERSION_DIGITS:] == ENTRY else None


def checkpoint_version(name: str) -> int | None:
    """Return the version of a checkpoint, or of a part of one; None for a name that no checkpoint has."""
    rest = name[_VERSION_DIGITS:]
    return leading_version(name) if rest.startswith(".checkpoint.") and rest.endswith(".parquet") else None


def read_actions(entry: Path) -> list[dict[str, Any]]:
    """Return the lines of a log entry.

    Raises:
        ValueError: it has none, or a line is no JSON object of objects.
    """
    try:
        actions = [json.loads(line) for line in read_file(entry).splitlines()]
    except ValueError as error:
        raise ValueError(f"an entry is damaged: file={entry.name} ({error})") from error
    if not actions:
        raise ValueError(f"an entry is empty: file={entry.name}")
    if not all(isinstance(each, dict) and all(isinstance(value, dict) for value in each.values()) for each in actions):
        raise ValueError(f"a line of a log entry is no action: file={entry.name}")
    count = actions[0].get("commitInfo", {}).get(ACTION_COUNT, str(len(actions) - 1))
    if count != str(len(actions) - 1):
        raise ValueError(f"an entry lacks lines: file={entry.name} lines={len(actions) - 1} committed={count}")
    return actions
