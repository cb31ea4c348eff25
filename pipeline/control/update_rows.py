"""Rows of a control table changed without Spark: for what can't wait until a slot is free.

The data file is written here, not by `deltalake`, whose writer prints a Rust trace where a disk is full. It holds the
whole table: a few thousand rows. A commit that Spark's MERGE gets in front of is refused and can be tried again, and
the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import CommitFailedError, DeltaError

from sparklog.pipeline.control.read_tables import read_newest, table_path
from sparklog.pipeline.control.schemas import ControlTable
from sparklog.sink.ledger.damage import one_line
from sparklog.sink.ledger.table_commit import commit_rows
from sparklog.storage_core.errors import LogStorageError
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.write_back import sync_filesystems

__all__ = ["update_rows"]


def update_rows(store: Path, table: ControlTable, values: Mapping[str, int], owner: str) -> bool:
    """Change an owner's rows, durably; return whether it was done, or lost a race.

    Args:
        store: its folder.
        table: to change; it has a column `owner`.
        values: the new value of each column that changes.
        owner: whose rows.

    Raises:
        LogStorageError: the table can't be read or changed.
    """
    path = table_path(store, table)
    opened, rows = read_newest(store, table)
    is_chosen = pc.equal(rows.column("owner"), owner)
    if not pc.any(is_chosen).as_py():
        return True
    for name, value in values.items():
        place, kind = rows.schema.get_field_index(name), rows.schema.field(name)
        changed = pc.if_else(is_chosen, pa.scalar(value, kind.type), rows.column(name))
        rows = rows.set_column(place, kind, changed)
    try:
        commit_rows(path, opened, rows, "overwrite", {})
    except CommitFailedError:
        return False
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise LogStorageError(f"a control table can't be changed: path={path} ({one_line(error)})") from error
    with storage_errors(path):
        sync_filesystems([path])
    return True
