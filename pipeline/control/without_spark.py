"""Changes of a control table without Spark: leases that can't wait for a free slot, and removal of old files.

Spark's VACUUM is slow and prints to stdout. If a MERGE of Spark and a change here race, one of them is refused and can
be tried again. A change of rows writes the whole table: a few thousand rows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import CommitFailedError, DeltaError

from sparklog.pipeline.control.read_tables import control_log, read_newest
from sparklog.pipeline.control.schemas import ControlTable
from sparklog.sink.delta.damage import one_line
from sparklog.sink.delta.delta_log import NO_HOOKS
from sparklog.storage_core.errors import LogStorageError
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.write_back import sync_filesystems

__all__ = ["drop_old_files", "file_count", "live_file_count", "update_rows"]


def update_rows(store: Path, table: ControlTable, values: Mapping[str, int], owner: str) -> bool:
    """Change an owner's rows, durably; return False if another commit came first.

    Args:
        store: its folder.
        table: to change; it has a column `owner`.
        values: the new value of each column that changes.
        owner: of the rows.

    Raises:
        LogStorageError: the table can't be read or changed.
    """
    log = control_log(store, table)
    opened, rows = read_newest(store, table)
    is_chosen = pc.equal(rows.column("owner"), owner)
    if not pc.any(is_chosen).as_py():
        return True
    for name, value in values.items():
        place, kind = rows.schema.get_field_index(name), rows.schema.field(name)
        changed = pc.if_else(is_chosen, pa.scalar(value, kind.type), rows.column(name))
        rows = rows.set_column(place, kind, changed)
    try:
        log.commit(opened, rows, "overwrite", {})
    except CommitFailedError:
        return False
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise LogStorageError(f"a control table can't be changed: path={log.path} ({one_line(error)})") from error
    with storage_errors(log.path):
        sync_filesystems([log.path])  # also files that Spark wrote without a sync
    return True


def file_count(store: Path, table: ControlTable) -> int:
    """Return the number of files in a table's folder, of all versions, with checksum files."""
    path = control_log(store, table).path
    with storage_errors(path):
        return len(os.listdir(path))


def live_file_count(store: Path, table: ControlTable) -> int:
    """Return the number of data files of a table's newest version."""
    log = control_log(store, table)
    with log.refusing_damage():
        return len(log.data_files(log.open()))


def drop_old_files(store: Path, table: ControlTable) -> None:
    """Remove files that belong to no version any more, once they are as old as the table's retention, and their sums.

    The caller syncs the folder.

    Args:
        store: its folder.
        table: to tidy.

    Raises:
        LogStorageError: the table can't be read or changed.
    """
    log = control_log(store, table)
    with log.refusing_damage():
        opened = log.open()
    try:
        opened.vacuum(dry_run=False, full=True, post_commithook_properties=NO_HOOKS)  # Spark tidies its log
    except CommitFailedError:
        return  # another run writes: the next run removes them
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise LogStorageError(f"a control table can't be tidied: path={log.path} ({one_line(error)})") from error
    with storage_errors(log.path):
        for name in os.listdir(log.path):
            is_sum = name.startswith(".") and name.endswith(".parquet.crc")
            if is_sum and not (log.path / name[1:].removesuffix(".crc")).exists():
                (log.path / name).unlink(missing_ok=True)
