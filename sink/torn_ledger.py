"""What a power cut tore of the ledger: its newest entry, or its newest checkpoint, dropped before it is opened.

Nobody was told that a torn entry exists, because it counts only once it is durable. A torn checkpoint says nothing that
the entries before it don't say. Damage of any other kind is left for the opening to refuse.
"""

import errno
import json
import logging
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sink.ledger_crc import ROWS_CRC, rows_crc
from storage_core.errors import LedgerDamagedError
from storage_core.storage.local import storage_errors, sync_directory
from storage_core.storage.open_regular import read_file
from storage_core.storage.owned_names import Owner, remove_file

__all__ = ["ROW_COUNT", "TRANSACTION_COUNT", "drop_torn_checkpoint", "drop_torn_entry"]

logger = logging.getLogger(__name__)

TRANSACTION_COUNT = "sparklog.transactions"
"""Key in an entry's first line: how many transactions its last lines name."""

ROW_COUNT = "sparklog.rows"
"""Key in an entry's first line, where it has no CRC of its rows: how many rows it writes."""

_NO_ROWS_CRC = rows_crc({}, {})


def drop_torn_entry(path: Path, owner: Owner) -> None:
    """Drop the newest entry where it, or the data file it names, is not whole.

    Raises:
        LedgerDamagedError: it is the only one.
        StorageError: the disk does not say what is in it.
    """
    log = path / "_delta_log"
    entries = sorted(name for name in os.listdir(log) if name.endswith(".json")) if log.is_dir() else []
    if not entries:
        return
    newest = log / entries[-1]
    if _entry_is_whole(newest, path):
        return
    has_predecessor = len(entries) > 1 or any(name.endswith(".checkpoint.parquet") for name in os.listdir(log))
    if not has_predecessor:
        raise LedgerDamagedError(f"the only entry of the ledger is damaged, restore it from a copy: path={newest}")
    with storage_errors(newest):
        remove_file(owner, newest)
        sync_directory(log)
    logger.warning("Dropped the newest ledger entry, torn by a power cut before it counted path=%s", newest)


def _has_all_actions(actions: list[dict[str, Any]]) -> bool:
    """Whether none of an entry's lines is missing: one that ends at a line's end parses without the rest.

    The first line tells how many transactions there are: the rows without theirs would be written a second time.
    """
    kinds = [kind for action in actions for kind in action]
    if "commitInfo" not in kinds:
        return False
    if "metaData" in kinds:  # the version that made the table
        return True
    info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
    return _has_rows(kinds, info) and kinds.count("txn") >= int(info.get(TRANSACTION_COUNT, 0))


def _has_rows(kinds: list[str], info: dict[str, Any]) -> bool:
    """Whether an entry names a data file, or none because no row is left: it then takes the last file away."""
    if info.get(ROWS_CRC) != _NO_ROWS_CRC and info.get(ROW_COUNT) != "0":
        return "add" in kinds
    return kinds.count("remove") >= int(info.get("operationMetrics", {}).get("num_removed_files", 0))


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


def _entry_is_whole(entry: Path, table: Path) -> bool:
    """Whether a log entry parses, and the data files it adds are there in full."""
    try:
        actions = [json.loads(line) for line in read_file(entry).decode().splitlines()]
        added = [action["add"] for action in actions if "add" in action]
        if not _has_all_actions(actions):
            return False
        for add in added:
            file = table / add["path"]
            if file.stat().st_size != add["size"]:
                return False
            pq.ParquetFile(file).read(use_threads=False)
    except (ValueError, KeyError, TypeError, OSError, pa.ArrowException) as error:
        _raise_if_refused(error, entry)
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
