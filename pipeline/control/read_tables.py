"""Reads the control tables without Spark: a plan and `describe` must not wait for a JVM.

A table that does not exist is empty. A table of a newer version and a damaged one are refused with the remedy: a
rebuild makes them anew from the logs. Every file of the newest version is compared with the checksums that Spark left
beside it, so a reader finds the damage that Spark would refuse later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from sparklog.pipeline.control.schemas import CONTROL_TABLES, SCHEMA_VERSION, VERSION_PROPERTY, ControlTable
from sparklog.pipeline.control.side_sums import changed_position
from sparklog.sink.delta.damage import Damage, file_named
from sparklog.sink.delta.delta_log import DeltaLog
from sparklog.storage_core.errors import CorruptFileError, UnsupportedFormatError

__all__ = [
    "check_table",
    "check_tables",
    "control_log",
    "has_table",
    "read_columns",
    "read_newest",
    "read_rows",
    "table_path",
]

_DAMAGE: Final = Damage(
    "a control table", "maintain --rebuild-control rebuilds it from the logs", error=CorruptFileError
)
_READER_VERSION: Final = 1
"""Of Delta: tables of higher versions may have deletion vectors and renamed columns."""


def table_path(store: Path, table: ControlTable) -> Path:
    """Return a table's folder."""
    return store.absolute() / "control" / table.name


def control_log(store: Path, table: ControlTable) -> DeltaLog:
    """Return the Delta log of a table."""
    return DeltaLog(table_path(store, table), _DAMAGE)


def has_table(store: Path, table: ControlTable) -> bool:
    """Whether a table exists; a folder without a log entry is no table yet."""
    return bool(control_log(store, table).files())


def check_table(store: Path, table: ControlTable) -> None:
    """Refuse a table that this release can't use; reads the whole table.

    Raises:
        UnsupportedFormatError: a newer release wrote the table.
        CorruptFileError: the table is damaged.
    """
    _read(store, table, ())


def check_tables(store: Path) -> None:
    """Refuse a store with a table that `check_table` refuses, before a run changes anything."""
    for table in CONTROL_TABLES:
        check_table(store, table)


def read_rows(store: Path, table: ControlTable, filters: Sequence[tuple[str, str, Any]] = ()) -> list[dict[str, Any]]:
    """Return the rows of a table, none if it does not exist.

    Args:
        store: its folder.
        table: to read.
        filters: column, operator and value each; all of them hold.

    Raises:
        UnsupportedFormatError: a newer release wrote it.
        CorruptFileError: it is damaged.
    """
    rows: list[dict[str, Any]] = _read(store, table, filters).to_pylist()
    return rows


def read_columns(
    store: Path, table: ControlTable, names: Sequence[str], filters: Sequence[tuple[str, str, Any]] = ()
) -> pa.Table:
    """Return columns of a table, as `read_rows` does, without an object per row."""
    return _read(store, table, filters, names)


def read_newest(store: Path, table: ControlTable) -> tuple[DeltaTable, pa.Table]:
    """Return an existing table at its newest version and all its rows, with columns of later releases.

    Raises:
        UnsupportedFormatError: a newer release wrote it.
        CorruptFileError: it is damaged.
    """
    log = control_log(store, table)
    with log.refusing_damage():
        opened = _open(log, table)
        schema = pa.schema(opened.schema().to_arrow())
        parts = [_read_all(file, schema) for file in log.data_files(opened)]
        return opened, pa.concat_tables([schema.empty_table(), *parts], promote_options="default").cast(schema)


def _read_all(file: Path, schema: pa.Schema) -> pa.Table:
    """Return a file's rows; a file that is older than a column of the table lacks the column."""
    with file_named(file):
        part = pq.ParquetFile(file).read(use_threads=False)
        return part.cast(pa.schema([schema.field(name) for name in part.column_names]))


def _read(
    store: Path, table: ControlTable, filters: Sequence[tuple[str, str, Any]], names: Sequence[str] | None = None
) -> pa.Table:
    columns = list(names or table.schema.names)
    if not has_table(store, table):
        return table.schema.empty_table().select(columns)
    log = control_log(store, table)
    read = dict.fromkeys([*columns, *(name for name, _, _ in filters)])
    with log.refusing_damage():
        found = log.read(_open(log, table), pa.schema([table.schema.field(name) for name in read]))
        return (found.filter(pq.filters_to_expression(list(filters))) if filters else found).select(columns)


def _open(log: DeltaLog, table: ControlTable) -> DeltaTable:
    """Open a table and check the sums of all its files; to be called inside `refusing_damage`."""
    _check_sums(log.parts(log.last_version()))
    opened = log.open()
    found = opened.metadata().configuration.get(VERSION_PROPERTY)
    version = None if found is None else int(found)
    names = set(opened.schema().to_arrow().names)
    readers = opened.protocol().min_reader_version
    if version is not None and version > SCHEMA_VERSION:
        raise UnsupportedFormatError(
            f"the control table has {VERSION_PROPERTY}={version}, this release knows {SCHEMA_VERSION}: path={log.path};"
            " use a newer release, or rebuild it from the logs: maintain --rebuild-control"
        )
    if version is None or set(table.schema.names) - names or readers > _READER_VERSION:
        raise ValueError(f"{VERSION_PROPERTY}={found} columns={len(names)} min_reader_version={readers}")
    _check_sums(log.data_files(opened))
    return opened


def _check_sums(files: Iterable[Path]) -> None:
    """Raise ValueError for a file that differs from its checksums."""
    for file in files:
        if (position := changed_position(file)) is not None:
            raise ValueError(f"differs from its checksums: file={file.name} position={position}")
