"""The control tables as they are read: without Spark, for a plan and `describe` must not wait for a JVM.

A table that is not there is empty. One of a newer version, or one that is damaged, is refused with its remedy: all that
the tables say of logs can be found again from the logs.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from pipeline.control.schemas import SCHEMA_VERSION, VERSION_PROPERTY, ControlTable
from sink.ledger_damage import one_line
from storage_core.errors import CorruptFileError, UnsupportedFormatError
from storage_core.storage.local import storage_errors

__all__ = ["check_table", "has_table", "read_rows", "table_path"]

_DAMAGE = (DeltaError, OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, pa.ArrowException)


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
    """Refuse a table that this release can't use.

    Raises:
        UnsupportedFormatError: a newer release wrote it.
        CorruptFileError: it is damaged.
    """
    if has_table(store, table):
        _open(store, table)


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
    if not has_table(store, table):
        return []
    opened = _open(store, table)
    with _damage_refused(table_path(store, table)):
        found = opened.to_pyarrow_table(columns=table.schema.names, filters=list(filters) or None)
        rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def _open(store: Path, table: ControlTable) -> DeltaTable:
    path = table_path(store, table)
    with _damage_refused(path):
        opened = DeltaTable(path.as_uri())
        found = opened.metadata().configuration.get(VERSION_PROPERTY)
        version = None if found is None else int(found)
        names = set(opened.schema().to_arrow().names)
    if version is not None and version > SCHEMA_VERSION:
        raise UnsupportedFormatError(
            f"the control table has {VERSION_PROPERTY}={version}, this release knows {SCHEMA_VERSION}: path={path};"
            " use a newer release, or make it anew from the logs: maintain --rebuild-control"
        )
    if version is None or set(table.schema.names) - names:
        raise CorruptFileError(_words(path, f"{VERSION_PROPERTY}={found} columns={len(names)}"))
    return opened


@contextmanager
def _damage_refused(path: Path) -> Iterator[None]:
    """Turn what libraries raise over a damaged table into the error that says what to do."""
    try:
        yield
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):
            with storage_errors(path):
                raise
        raise CorruptFileError(_words(path, one_line(error))) from error


def _words(path: Path, what: str) -> str:
    return f"a control table is damaged: path={path}; maintain --rebuild-control makes it anew from the logs ({what})"
