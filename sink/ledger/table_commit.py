"""One commit to a Delta table of a store: the data file is on the disk before the log entry that names it exists.

`deltalake` writes log entries only: its writer of data files prints a Rust trace where the disk is full, and nothing of
it fsyncs. Were both files synced after the commit, a power cut could keep the entry and take the data file, and an
opening could not tell that from a committed entry whose data file was deleted since. In this order only the entry can
be torn; the caller syncs it before the commit counts.
"""

import io
import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.transaction import AddAction

from sparklog.sink.ledger.table_entries import ACTION_COUNT
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.storage.local import sync_directory, write_all
from sparklog.storage_core.storage.open_regular import open_to_change

__all__ = ["commit_rows", "create_table", "data_file_names", "table_uri", "write_data_file", "write_entry"]

_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_NO_RETRY_COUNT = 0


def table_uri(path: Path) -> str:
    """Return the folder as a URI: `deltalake` takes a plain path for an encoded one."""
    return path.absolute().as_uri()


def create_table(
    path: Path, schema: pa.Schema, configuration: Mapping[str, str] | None = None, partition_by: str | None = None
) -> None:
    """Make an empty table; its first entry is not synced yet."""
    configuration = dict(configuration or {})
    DeltaTable.create(table_uri(path), schema, mode="error", partition_by=partition_by, configuration=configuration)


def data_file_names(table: DeltaTable, partition: tuple[str, str] | None = None) -> list[str]:
    """Return the names of a table's data files, which lie side by side.

    Args:
        table: of the store.
        partition: column and value of the partition that is asked for; None for all.
    """
    if partition is None:
        return [uri.rpartition("/")[2] for uri in table.file_uris()]
    files = table.get_add_actions(flatten=True)  # quicker than a predicate
    values = files.column(f"partition.{partition[0]}").to_pylist()
    return [name for name, value in zip(files.column("path").to_pylist(), values, strict=True) if value == partition[1]]


def commit_rows(
    path: Path,
    table: DeltaTable,
    rows: pa.Table,
    mode: Literal["append", "overwrite"],
    metadata: Mapping[str, str],
    transactions: Sequence[Transaction] = (),
    partition: tuple[str, str] | None = None,
) -> None:
    """Add the next version to a table; its entry is not synced yet, and `table` stays at the version before.

    Args:
        path: of the table.
        table: at its newest version.
        rows: to add; without the partition column.
        mode: whether they replace others, and if a partition is given its rows alone.
        metadata: for the entry's first line.
        transactions: that come with them.
        partition: column and value of the partition that they belong to; None where a table has none.

    Raises:
        CommitFailedError: another writer has added that version.
    """
    replaced = len(data_file_names(table, partition)) if mode == "overwrite" else 0
    added = [write_data_file(path, rows, partition)] if len(rows) else []
    reach("commit.data")
    properties = CommitProperties(
        max_commit_retries=_NO_RETRY_COUNT,
        app_transactions=list(transactions) or None,
        custom_metadata={**metadata, ACTION_COUNT: str(len(added) + replaced + len(transactions))},
    )
    write_entry(table, added, mode, properties, partition)


def write_entry(
    table: DeltaTable,
    added: list[AddAction],
    mode: Literal["append", "overwrite"],
    properties: CommitProperties,
    partition: tuple[str, str] | None = None,
) -> None:
    """Write the log entry of the next version."""
    table.create_write_transaction(
        added,
        mode=mode,
        schema=table.schema(),
        partition_by=None if partition is None else [partition[0]],
        partition_filters=None if partition is None else [(partition[0], "=", partition[1])],
        commit_properties=properties,
        post_commithook_properties=_NO_HOOKS,
    )


def write_data_file(path: Path, rows: pa.Table, partition: tuple[str, str] | None) -> AddAction:
    """Write rows to a file that no entry names yet, durably."""
    name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    buffer = io.BytesIO()
    pq.write_table(rows, buffer)
    data = buffer.getvalue()
    descriptor = open_to_change(path / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        write_all(descriptor, data, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_directory(path)
    return AddAction(
        path=name,
        size=len(data),
        partition_values=dict([partition] if partition else []),
        modification_time=time.time_ns() // 1_000_000,
        data_change=True,
        stats=json.dumps({"numRecords": len(rows)}),
    )
