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

__all__ = ["commit_rows", "create_table", "table_uri", "write_entry"]

_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_NO_RETRY_COUNT = 0


def table_uri(path: Path) -> str:
    """Return the folder as a URI: `deltalake` takes a plain path for an encoded one."""
    return path.absolute().as_uri()


def create_table(path: Path, schema: pa.Schema, configuration: Mapping[str, str] | None = None) -> None:
    """Make an empty table; its first entry is not synced yet."""
    DeltaTable.create(table_uri(path), schema, mode="error", configuration=dict(configuration or {}))


def commit_rows(
    path: Path,
    table: DeltaTable,
    rows: pa.Table,
    mode: Literal["append", "overwrite"],
    metadata: Mapping[str, str],
    transactions: Sequence[Transaction] = (),
) -> None:
    """Add the next version to a table; its entry is not synced yet, and `table` stays at the version before.

    Raises:
        CommitFailedError: another writer has added that version.
    """
    replaced = len(table.file_uris()) if mode == "overwrite" else 0
    added = [_write_data_file(path, rows)] if len(rows) else []
    reach("commit.data")
    properties = CommitProperties(
        max_commit_retries=_NO_RETRY_COUNT,
        app_transactions=list(transactions) or None,
        custom_metadata={**metadata, ACTION_COUNT: str(len(added) + replaced + len(transactions))},
    )
    write_entry(table, added, mode, rows.schema, properties)


def write_entry(
    table: DeltaTable, added: list[AddAction], mode: str, schema: pa.Schema, properties: CommitProperties
) -> None:
    """Write the log entry of the next version."""
    table.create_write_transaction(
        added, mode=mode, schema=schema, commit_properties=properties, post_commithook_properties=_NO_HOOKS
    )


def _write_data_file(path: Path, rows: pa.Table) -> AddAction:
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
        partition_values={},
        modification_time=time.time_ns() // 1_000_000,
        data_change=True,
        stats=json.dumps({"numRecords": len(rows)}),
    )
