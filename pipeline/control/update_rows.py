"""Rows of a control table changed without Spark: for what can't wait until a slot is free.

A commit that Spark's MERGE gets in front of is refused and can be tried again, and the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, PostCommitHookProperties
from deltalake.exceptions import CommitFailedError, DeltaError

from pipeline.control.read_tables import table_path
from pipeline.control.schemas import ControlTable
from sink.ledger_damage import one_line
from storage_core.errors import LogStorageError
from storage_core.storage.local import storage_errors
from storage_core.storage.write_back import sync_filesystems

__all__ = ["update_rows"]

_NO_TIDYING: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""Spark does that for its tables."""


def update_rows(store: Path, table: ControlTable, updates: Mapping[str, str], condition: str) -> bool:
    """Change the rows that a condition holds for, durably; return whether it was done, or lost a race.

    Args:
        store: its folder.
        table: to change.
        updates: an SQL expression for each column.
        condition: in SQL.

    Raises:
        LogStorageError: the table can't be changed.
    """
    path = table_path(store, table)
    try:
        opened = DeltaTable(path.as_uri())
        opened.update(updates=dict(updates), predicate=condition, post_commithook_properties=_NO_TIDYING)
    except CommitFailedError:
        return False
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise LogStorageError(f"a control table can't be changed: path={path} ({one_line(error)})") from error
    with storage_errors(path):
        sync_filesystems([path])
    return True
