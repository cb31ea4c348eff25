"""Control tables without Spark: made, merged and changed by deltalake, with the rules that leases ask of SQL."""

import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from sparklog.pipeline.control.read_tables import has_table, read_rows, table_path
from sparklog.pipeline.control.schemas import SCHEMA_VERSION, VERSION_PROPERTY, ControlTable
from sparklog.pipeline.control.without_spark import update_rows

__all__ = ["DeltaLeaseTable", "flip_bit", "put_rows", "set_version", "write_side_sums"]


def put_rows(store: Path, table: ControlTable, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows to a table, which is made if it is not there."""
    columns = pa.Table.from_pylist([dict(row) for row in rows], schema=table.schema)
    uri = table_path(store, table).as_uri()
    if not has_table(store, table):
        table_path(store, table).mkdir(parents=True, exist_ok=True)
        properties = {VERSION_PROPERTY: str(SCHEMA_VERSION)}
        DeltaTable.create(uri, table.schema, configuration=properties, raise_if_key_not_exists=False)
    if rows:
        write_deltalake(uri, columns, mode="append")


def flip_bit(file: Path, position: int) -> None:
    """Change one bit of a file."""
    data = bytearray(file.read_bytes())
    data[position] ^= 1
    file.write_bytes(data)


def set_version(store: Path, table: ControlTable, version: int) -> None:
    """Let a table say that another release wrote it."""
    opened = DeltaTable(table_path(store, table).as_uri())
    opened.alter.set_table_properties({VERSION_PROPERTY: str(version)}, raise_if_not_exists=False)


def write_side_sums(store: Path, table: ControlTable) -> None:
    """Let each file have the sums that Spark would have written beside it."""
    path = table_path(store, table)
    for file in (*path.glob("*.parquet"), *(path / "_delta_log").glob("*.json")):
        data = file.read_bytes()
        sums = (struct.pack(">I", zlib.crc32(data[start : start + 512])) for start in range(0, len(data), 512))
        file.with_name(f".{file.name}.crc").write_bytes(b"crc\0" + struct.pack(">I", 512) + b"".join(sums))


class DeltaLeaseTable:
    """The table of leases of a store, with the conditions of its MERGE spelled out; Spark's is held to the same."""

    def __init__(self, store: Path) -> None:
        self._store = store

    def try_merge(self, table: ControlTable, rows: list[dict[str, Any]], clauses: str) -> bool:  # noqa: ARG002
        """Lease; the clauses are those below."""
        if not has_table(self._store, table):
            put_rows(self._store, table, [])
        columns = pa.Table.from_pylist(rows, schema=table.schema)
        taken = {name: f"s.{name}" for name in ("owner", "machine", "acquired_ms", "expires_ms")}
        merge = (
            self._open(table)
            .merge(columns, "t.topic = s.topic AND t.partition = s.partition", source_alias="s", target_alias="t")
            .when_matched_update({"expires_ms": "s.expires_ms"}, "t.owner = s.owner")
            .when_matched_update(
                {**taken, "epoch": "t.epoch + 1"}, "t.expires_ms <= s.acquired_ms OR t.machine = s.machine"
            )
            .when_not_matched_insert_all()
        )
        try:
            merge.execute()
        except DeltaError:
            return False
        return True

    def try_update(self, table: ControlTable, values: Mapping[str, int], owner: str) -> bool:
        """Change rows, as a run does."""
        return update_rows(self._store, table, values, owner)

    def rows(self, table: ControlTable) -> list[dict[str, Any]]:
        """Return the rows."""
        return read_rows(self._store, table)

    def _open(self, table: ControlTable) -> DeltaTable:
        return DeltaTable(table_path(self._store, table).as_uri())
