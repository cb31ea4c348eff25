"""Removes a half-written newest ledger entry or checkpoint after a power cut.

An entry counts only once it is durable, and its data file is durable before it: so a power cut leaves an entry whose
own bytes are torn, and nothing else: whole lines, then a line that ends too early, or zeros, or nothing. A torn
checkpoint sums up entries that are still there. The opening refuses damage of any other kind.
"""

import errno
import json
import logging
import os
import re
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.sink.ledger.table_entries import ACTION_COUNT, newest_version
from sparklog.storage_core.errors import LedgerDamagedError
from sparklog.storage_core.storage.local import storage_errors, sync_directory
from sparklog.storage_core.storage.open_regular import read_file
from sparklog.storage_core.storage.owned_names import Owner, remove_file

__all__ = ["drop_torn_checkpoint", "drop_torn_entry"]

logger = logging.getLogger(__name__)

_MAKING = {"commitInfo", "protocol", "metaData"}
"""Lines of the entry that makes a table."""
_CUT: Final = re.compile(r'.?|[{\[:,]"(?:[^"\\]|\\.)*\\?|[\[:,](?:-|tr?u?|fa?l?s?|nu?l?)|\\u[0-9a-f]{0,4}')
"""The end of a line that a power cut left: nothing after a token, a string or a literal without its end, an escape."""


def drop_torn_entry(path: Path, owner: Owner, signed_off: int = -1) -> None:
    """Drop the newest entry where a power cut tore it: its lines are not all there, and it is no other program's.

    An entry whose first line is whole and lacks our keys is not ours, nor is a file whose name is not a version. These,
    an entry with changed bytes, and a whole one of which the data file is gone, are left for the opening to refuse.

    Args:
        path: of the table.
        owner: of the store.
        signed_off: newest version that is known to have been durable.

    Raises:
        LedgerDamagedError: it is the only one, or was durable once; nothing was changed.
        StorageError: the disk does not say what is in it.
    """
    log = path / "_delta_log"
    newest = newest_version(log) if log.is_dir() else -1
    entry = log / f"{newest:020}.json"
    if newest < 0 or not _is_torn(entry, newest):
        return
    if newest <= signed_off:
        raise LedgerDamagedError(
            f"the newest entry of the ledger is damaged, and was committed: restore it from a copy: path={entry}"
        )
    before = f"{newest - 1:020}"
    if not any((log / f"{before}{suffix}").exists() for suffix in (".json", ".checkpoint.parquet")):
        raise LedgerDamagedError(
            f"the newest entry of the ledger is damaged, and the one before it is not there: restore it from a copy:"
            f" path={entry}"
        )
    with storage_errors(entry):
        remove_file(owner, entry)
        sync_directory(log)
    logger.warning("Dropped the newest ledger entry, torn by a power cut before it counted path=%s", entry)


def _is_torn(entry: Path, version: int) -> bool:
    """Whether an entry of ours lacks a part of its lines."""
    with storage_errors(entry):
        *lines, last = read_file(entry).rstrip(b"\0").split(b"\n")
    is_cut = _is_cut(last)
    actions = []
    for line in lines if is_cut or not last else [*lines, last]:
        if (action := _parse(line)) is None:
            return False  # no power cut changes a line before the end
        actions.append(action)
    if not actions:
        return True
    if version == 0:
        return not {kind for action in actions for kind in action} >= _MAKING
    info = actions[0].get("commitInfo", {})
    if ACTION_COUNT in info:
        count = str(info[ACTION_COUNT])
        return count.isdigit() and len(actions) <= int(count)
    return False


def _is_cut(line: bytes) -> bool:
    """Whether a last line is the beginning of a JSON object, and not the whole."""
    text = line.decode(errors="replace")
    try:
        json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError as error:
        last = text[: error.pos].rstrip()[-1:]  # before the place from which it is no JSON any more
        return text.startswith("{") and _CUT.fullmatch(last + text[error.pos :]) is not None
    return False


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return a line of an entry; None if it is none."""
    try:
        action = json.loads(line)
    except ValueError:
        return None
    return action if isinstance(action, dict) and all(isinstance(each, dict) for each in action.values()) else None


def drop_torn_checkpoint(path: Path, owner: Owner) -> None:
    """Drop a checkpoint that a power cut left torn, and the hint that names it.

    The entries that it sums up are still there, as they go only once it is durable; otherwise it is not touched.
    """
    log = path / "_delta_log"
    names = set(os.listdir(log)) if log.is_dir() else set()
    hinted = _hinted_version(log / "_last_checkpoint")
    versions = {int(name[:20]) for name in names if name.endswith(".checkpoint.parquet") and name[:20].isdigit()}
    newest = max(versions | hinted, default=-1)
    checkpoint = log / f"{newest:020}.checkpoint.parquet"
    if newest < 0 or _is_readable(checkpoint):
        return
    start = max(versions - {newest}, default=-1) + 1
    if not names.issuperset(f"{version:020}.json" for version in range(start, newest + 1)):
        return
    with storage_errors(checkpoint):
        remove_file(owner, log / "_last_checkpoint")
        remove_file(owner, checkpoint)
        sync_directory(log)
    logger.warning("Dropped the newest ledger checkpoint, torn by a power cut path=%s", checkpoint)


def _hinted_version(hint: Path) -> set[int]:
    """Return the version of the checkpoint that `_last_checkpoint` names; none if it is absent or torn."""
    try:
        return {int(json.loads(read_file(hint))["version"])}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _is_readable(file: Path) -> bool:
    try:
        pq.ParquetFile(file).read(use_threads=False)
    except (OSError, pa.ArrowException) as error:
        _raise_if_refused(error, file)
        return False
    return True


def _raise_if_refused(error: Exception, path: Path) -> None:
    """Tell what is torn or absent from what a disk does not give just now: that must not be dropped.

    Raises:
        StorageError: the kernel refused.
    """
    if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):
        with storage_errors(path):
            raise error
