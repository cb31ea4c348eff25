"""The log entries of a Delta table of a store: which there are, and what their lines say.

Delta takes an empty entry for one without actions, and an entry that is cut at a line's end for a whole one. So each
entry of ours says in its first line how many lines follow, and a reading counts them.
"""

import json
import os
from pathlib import Path
from typing import Any

from sparklog.storage_core.storage.open_regular import read_file

__all__ = ["ACTION_COUNT", "entry_version", "list_entries", "newest_version", "read_actions"]

ACTION_COUNT = "sparklog.actions"
"""Key in an entry's first line: how many lines follow."""

_ENTRY = ".json"
_CHECKPOINT = ".checkpoint.parquet"
_VERSION_DIGITS = 20


def entry_version(name: str) -> int | None:
    """Return the version of a log entry; None for a name that no entry has."""
    digits = name.removesuffix(_ENTRY)
    is_entry = name.endswith(_ENTRY) and len(digits) == _VERSION_DIGITS and digits.isascii() and digits.isdigit()
    return int(digits) if is_entry else None


def list_entries(log: Path, version: int) -> list[Path]:
    """Return the entries behind the last checkpoint up to a version, and the checkpoint's own if it is there.

    Raises:
        ValueError: one of them is missing, there is a later one behind a gap, or a file that is no entry among them.
    """
    names = [name for name in os.listdir(log) if not name.startswith(".")]  # macOS puts `._*` files beside others
    foreign = sorted(name for name in names if name.endswith(_ENTRY) and entry_version(name) is None)
    if foreign:
        raise ValueError(f"a file among its entries is none: file={foreign[0]}; move it away")
    found = {number for name in names if (number := entry_version(name)) is not None}
    checkpoints = {int(name[:20]) for name in names if name.endswith(_CHECKPOINT) and name[:20].isdigit()}
    first = max((each for each in checkpoints if each <= version), default=-1)
    missing = sorted({*range(first + 1, version + 1), version} - found)
    if not missing and version + 1 not in found and max(found) > version:
        missing = [version + 1]
    if missing:
        raise ValueError(f"an entry is missing: file={missing[0]:020}{_ENTRY}")
    return [log / f"{number:020}{_ENTRY}" for number in range(max(first, 0), version + 1) if number in found]


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


def newest_version(log: Path) -> int:
    """Return the version of the newest entry; -1 if there is none."""
    versions = (entry_version(name) for name in os.listdir(log))
    return max((version for version in versions if version is not None), default=-1)
