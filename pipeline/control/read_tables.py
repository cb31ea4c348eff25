"""The control tables as they are read: without Spark, for a plan and `describe` must not wait for a JVM.

A table that is not there is empty. One of a newer version, or one that is damaged, is refused with its remedy: all that
the tables say of logs can be found again from the logs. Every file that the newest version is made of is held against
the sums that Spark left beside it, so that whoever reads here knows of all that Spark would refuse later.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from sparklog.pipeline.control.schemas import CONTROL_TABLES, SCHEMA_VERSION, VERSION_PROPERTY, ControlTable
from sparklog.pipeline.control.side_sums import changed_position
from sparklog.sink.ledger.damage import one_line
from sparklog.storage_core.errors import CorruptFileError, UnsupportedFormatError
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import check_regular_files, read_file

__all__ = ["check_table", "check_tables", "has_table", "read_columns", "read_newest", "read_rows", "table_path"]

_DAMAGE = (DeltaError, OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, pa.ArrowException)
_READER_VERSION: Final = 1
"""Of Delta: above it rows may be deleted, and columns renamed, beside their files."""


def table_path(store: Path, table: ControlTable) -> Path:
    """Return a table's folder."""
    return store.absolute() / "control" / table.name


def has_table(store: Path, table: ControlTable) -> bool:
    """Whether a table is there; a folder without an entry of its log is none yet."""
    log = table_path(store, table) / "_delta_log"
    with storage_errors(log):
        names = os.listdir(log) if log.is_dir() else []
    return any(name.endswith((".json", ".parquet")) and not name.startswith((".", "_")) for name in names)


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
    path = table_path(store, table)
    opened = _open(path, table)
    files = _data_files(path, opened)
    with _damage_refused(path, files):
        _check_sums(files)
        schema = pa.schema(opened.schema().to_arrow())
        parts = [pq.ParquetFile(each).read(use_threads=False) for each in files]
        alike = [each.cast(pa.schema([schema.field(name) for name in each.column_names])) for each in parts]
        return opened, pa.concat_tables([schema.empty_table(), *alike], promote_options="default").cast(schema)


def _read(
    store: Path, table: ControlTable, filters: Sequence[tuple[str, str, Any]], names: Sequence[str] | None = None
) -> pa.Table:
    columns = list(names or table.schema.names)
    if not has_table(store, table):
        return table.schema.empty_table().select(columns)
    path = table_path(store, table)
    opened = _open(path, table)
    files = _data_files(path, opened)
    with _damage_refused(path, files):
        _check_sums(files)
        # Not `to_pyarrow_table`: its I/O threads may outlive a short command and abort the interpreter as it ends.
        parts = [_read_file(each, table, columns, filters) for each in files]
        return pa.concat_tables([table.schema.empty_table().select(columns), *parts])


def _data_files(path: Path, opened: DeltaTable) -> list[Path]:
    return [path / Path(unquote(each)).name for each in opened.file_uris()]


def _read_file(
    file: Path, table: ControlTable, columns: Sequence[str], filters: Sequence[tuple[str, str, Any]]
) -> pa.Table:
    names = list(dict.fromkeys([*columns, *(name for name, _, _ in filters)]))
    schema = pa.schema([table.schema.field(name) for name in names])
    found = pq.ParquetFile(file).read(names, use_threads=False).select(names).cast(schema)
    return found.filter(pq.filters_to_expression(list(filters))).select(columns) if filters else found


def _open(path: Path, table: ControlTable) -> DeltaTable:
    with storage_errors(path):
        check_regular_files(path, path / "_delta_log")
    entries = _entries(path / "_delta_log")
    with _damage_refused(path, entries):
        _check_sums(entries)
        opened = DeltaTable(path.as_uri())
        found = opened.metadata().configuration.get(VERSION_PROPERTY)
        version = None if found is None else int(found)
        names = set(opened.schema().to_arrow().names)
        readers = opened.protocol().min_reader_version
    if version is not None and version > SCHEMA_VERSION:
        raise UnsupportedFormatError(
            f"the control table has {VERSION_PROPERTY}={version}, this release knows {SCHEMA_VERSION}: path={path};"
            " use a newer release, or make it anew from the logs: maintain --rebuild-control"
        )
    if version is None or set(table.schema.names) - names or readers > _READER_VERSION:
        what = f"{VERSION_PROPERTY}={found} columns={len(names)} min_reader_version={readers}"
        raise CorruptFileError(_words(path, what))
    return opened


def _entries(log: Path) -> list[Path]:
    """Return the files of a table's log that its newest version is made from: a checkpoint, and what is behind it.

    An entry that is missing between others is among them.
    """
    with storage_errors(log):
        names = [name for name in os.listdir(log) if name[:20].isdigit() and name.endswith((".json", ".parquet"))]
    last = max((int(name[:20]) for name in names), default=-1)
    checkpoints = [name for name in names if ".checkpoint." in name]
    begin = max((int(name[:20]) for name in checkpoints), default=-1)
    found = [name for name in checkpoints if int(name[:20]) == begin]
    found += [f"{version:020}.json" for version in range(begin + 1, last + 1)]
    return [log / name for name in found]


def _check_sums(files: Iterable[Path]) -> None:
    """Raise ValueError if one is not what was written."""
    for file in files:
        if (position := changed_position(file)) is not None:
            raise ValueError(f"is not what was written: file={file.name} position={position}")


@contextmanager
def _damage_refused(path: Path, files: Iterable[Path]) -> Iterator[None]:
    """Turn what libraries raise over a damaged table into the error that says what to do.

    Args:
        path: of the table.
        files: that are read, to name the one that can't be.
    """
    try:
        yield
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):
            with storage_errors(path):
                raise
        raise CorruptFileError(_words(path, f"{_unreadable(files)}{one_line(error)}")) from error


def _unreadable(files: Iterable[Path]) -> str:
    """Return which file can't be read, in words; nothing if each by itself can."""
    for file in files:
        try:
            if file.suffix == ".parquet":
                pq.read_table(file)
            else:
                for line in read_file(file).decode().splitlines():
                    json.loads(line)
        except _DAMAGE:
            return f"file={file.name}: "
    return ""


def _words(path: Path, what: str) -> str:
    return f"a control table is damaged: path={path}; maintain --rebuild-control makes it anew from the logs ({what})"
