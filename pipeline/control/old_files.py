"""Files of old versions of a control table removed without Spark: its VACUUM is slow, and prints to stdout."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, PostCommitHookProperties
from deltalake.exceptions import CommitFailedError, DeltaError

from sparklog.pipeline.control.read_tables import table_path
from sparklog.pipeline.control.schemas import ControlTable
from sparklog.sink.ledger.damage import one_line
from sparklog.storage_core.errors import LogStorageError
from sparklog.storage_core.storage.local import storage_errors

__all__ = ["drop_old_files", "file_count", "live_file_count"]

_NO_TIDYING = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""Spark does that for its tables."""


def file_count(store: Path, table: ControlTable) -> int:
    """Return how many files a table's folder holds, of all versions, with their sums."""
    path = table_path(store, table)
    with storage_errors(path):
        return len(os.listdir(path))


def live_file_count(store: Path, table: ControlTable) -> int:
    """Return how many files the newest version of a table is made of."""
    path = table_path(store, table)
    try:
        return len(DeltaTable(path.as_uri()).file_uris())
    except (DeltaError, OSError) as error:
        raise LogStorageError(f"a control table can't be read: path={path} ({one_line(error)})") from error


def drop_old_files(store: Path, table: ControlTable) -> None:
    """Remove what has been of no version for as long as the table says, and sums of files that are gone.

    The caller makes it durable.

    Args:
        store: its folder.
        table: to tidy.

    Raises:
        LogStorageError: the table can't be changed.
    """
    path = table_path(store, table)
    try:
        opened = DeltaTable(path.as_uri())
        opened.vacuum(dry_run=False, full=True, post_commithook_properties=_NO_TIDYING)
    except CommitFailedError:
        return  # somebody else writes: the next run tidies
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise LogStorageError(f"a control table can't be tidied: path={path} ({one_line(error)})") from error
    with storage_errors(path):
        for name in os.listdir(path):
            is_sum = name.startswith(".") and name.endswith(".parquet.crc")
            if is_sum and not (path / name[1:].removesuffix(".crc")).exists():
                (path / name).unlink(missing_ok=True)
