"""The control tables as they are read: without Spark, for a plan and `describe` must not wait for a JVM.

A table that is not there is empty. One of a newer version, or one that is damaged, is refused with its remedy: all that
the tables say of logs can be found again from the logs. Every file that the newest version is made of is held against
the sums that Spark left beside it, so that whoever reads here knows of all that Spark would refuse later.
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
    "a control table", "maintain --rebuild-control makes it anew from the logs", error=CorruptFileError
)
_READER_VERSION: Final = 1
"""Of Delta: above it rows may be deleted, and columns renamed, beside their files."""


def table_path(store: Path, table: ControlTable) -> Path:
    """Return a table's folder."""
    return store.absolute() / "control" / table.name


def control_log(store: Path, table: ControlTable) -> DeltaLog:
    """Return the files of a table."""
    return DeltaLog(table_path(store, table), _DAMAGE)


def has_table(store: Path, table: ControlTable) -> bool:
    """Whether a table is there; a folder without an entry of its log is none yet."""
    return bool(control_log(store, table).files())


def check_table(store: Path, table: ControlTable) -> None:
    """Refuse a table that this release can't use; reads all of it.

    Raises:
        UnsupportedFormatError: a newer release wrote it.
        CorruptFileError: it is damaged.
    """
    _read(store, table, ())


def check_tables(store: Path) -> None:
    """Refuse a store of which a table can't be used, as `check_table` does: before a run changes anything."""
    for table in CONTROL_TABLES:
        check_table(store, table)


def read_rows(store: Path, table: ControlTable, filters: Sequence[tuple[str, str, Any]] = ()) -> list[dict[str, Any]]:
    """Return the rows of a table, none if it is not there.

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
    """Return columns of a table, as `read_rows` does, for those who don't want an object a row."""
    return _read(store, table, filters, names)


def read_newest(store: Path, table: ControlTable) -> tuple[DeltaTable, pa.Table]:
    """Return a table that is there at its newest version, and all its rows, with columns that only others know.

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
    """Return a file's rows: one that is older than a column of the table lacks it."""
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
    """Open a table, all of whose files are what was written; to be called inside `refusing_damage`."""
    _check_sums(log.parts(log.last_version()))
    opened = log.open()
    found = opened.metadata().configuration.get(VERSION_PROPERTY)
    version = None if found is None else int(found)
    names = set(opened.schema().to_arrow().names)
    readers = opened.protocol().min_reader_version
    if version is not None and version > SCHEMA_VERSION:
        raise UnsupportedFormatError(
            f"the control table has {VERSION_PROPERTY}={version}, this release knows {SCHEMA_VERSION}: path={log.path};"
            " use a newer release, or make it anew from the logs: maintain --rebuild-control"
        )
    if version is None or set(table.schema.names) - names or readers > _READER_VERSION:
        raise ValueError(f"{VERSION_PROPERTY}={found} columns={len(names)} min_reader_version={readers}")
    _check_sums(log.data_files(opened))
    return opened


def _check_sums(files: Iterable[Path]) -> None:
    """Raise ValueError if one is not what was written."""
    for file in files:
        if (position := changed_position(file)) is not None:
            raise ValueError(f"is not what was written: file={file.name} position={position}")
