"""Removes a newest log entry or checkpoint of a Delta table that a power cut tore: a half-written, partial write.

A commit is acknowledged once its entry is durable, and its data file is durable before. So a power cut tears only the
bytes of the entry: it has whole lines, then a line that ends too early, or zeros, or nothing. The entries that a torn
checkpoint sums up still exist. The opening refuses damage of any other kind.
"""

import json
import logging
import re
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from sparklog.sink.delta.delta_log import DeltaLog
from sparklog.sink.delta.entries import ACTION_COUNT
from sparklog.storage_core.storage.local import storage_errors, sync_directory
from sparklog.storage_core.storage.open_regular import read_file
from sparklog.storage_core.storage.owned_names import Owner, remove_file, remove_tree

__all__ = ["drop_torn_checkpoint", "drop_torn_commit", "drop_torn_entry"]

logger = logging.getLogger(__name__)

_MAKING = {"commitInfo", "protocol", "metaData"}
"""Lines of the entry that makes a table."""
_CUT: Final = re.compile(r'.?|[{\[:,]"(?:[^"\\]|\\.)*\\?|[\[:,](?:-|tr?u?|fa?l?s?|nu?l?)|\\u[0-9a-f]{0,4}')
"""The end of a line that a power cut left: nothing after a token, a string or a literal without its end, an escape."""


def drop_torn_entry(log: DeltaLog, owner: Owner, signed_off: int = -1) -> None:
    """Drop the newest entry if a power cut tore it: it lacks lines, and Sparklog wrote it.

    An entry whose first line is whole and lacks our keys is of another program, and so is a file whose name is no
    version. The opening refuses these, an entry with changed bytes, and a whole entry without its data file.

    Args:
        log: of the table.
        owner: of the store.
        signed_off: newest version that an owner of the store has recorded as durable.

    Raises:
        LogStorageError: of the table's damage: it is the only entry, or was durable once; nothing was changed.
        StorageError: the disk refused to read it.
    """
    newest = log.newest_version()
    entry = log.entry(newest)
    if newest < 0 or not _is_torn(entry, newest):
        return
    has_before = log.entry(newest - 1).exists() or newest - 1 in log.checkpoints()
    if newest <= signed_off or not has_before:
        reason = "was committed" if newest <= signed_off else "the one before it is not there"
        raise log.damage.error(
            f"the newest entry of {log.damage.table} is damaged, and {reason}: restore it from a copy: path={entry}"
        )
    with storage_errors(entry):
        remove_file(owner, entry)
        sync_directory(log.folder)
    logger.warning(
        "Dropped the newest entry of %s, torn by a power cut before it counted path=%s", log.damage.table, entry
    )


def drop_torn_commit(log: DeltaLog, owner: Owner) -> None:
    """Drop what a power cut tore of a table that the store can make anew: checkpoint, entry, or the whole first commit.

    Raises:
        LogStorageError: of the table's damage: the newest entry is damaged, and the one before it is not there.
        StorageError: the disk refused.
    """
    with storage_errors(log.path):
        if log.path.exists() and not log.files():
            remove_tree(owner, log.path)  # left of a first commit, before the entry that makes the table
    drop_torn_checkpoint(log, owner)
    try:
        drop_torn_entry(log, owner)
    except log.damage.error:
        if len(log.files()) > 1:
            raise
        remove_tree(owner, log.path)  # the entry that made the table


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


def drop_torn_checkpoint(log: DeltaLog, owner: Owner) -> None:
    """Drop a checkpoint that a power cut tore, and `_last_checkpoint`, which names it.

    The entries that it sums up still exist: the writer removes them once the checkpoint is durable. Without them the
    checkpoint is damaged, and stays.
    """
    hint, versions = log.folder / "_last_checkpoint", log.checkpoints()
    newest = max(versions | _hinted_version(hint), default=-1)
    checkpoint = log.checkpoint(newest)
    if newest < 0 or _is_readable(log, checkpoint):
        return
    start = max(versions - {newest}, default=-1) + 1
    if not all(log.entry(version).exists() for version in range(start, newest + 1)):
        return
    with storage_errors(checkpoint):
        remove_file(owner, hint)
        remove_file(owner, checkpoint)
        sync_directory(log.folder)
    logger.warning("Dropped the newest checkpoint of %s, which a power cut tore path=%s", log.damage.table, checkpoint)


def _hinted_version(hint: Path) -> set[int]:
    """Return the version of the checkpoint that `_last_checkpoint` names; none if it is absent or torn."""
    try:
        return {int(json.loads(read_file(hint))["version"])}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _is_readable(log: DeltaLog, file: Path) -> bool:
    """Whether a file is whole; if the kernel refuses to read it, that is an error."""
    try:
        with log.refusing_damage():
            pq.ParquetFile(file).read(use_threads=False)
    except log.damage.error:
        return False
    return True
