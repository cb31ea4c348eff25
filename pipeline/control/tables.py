"""Writes the control tables of a maintenance run, through Spark SQL: one MERGE per table and run.

A MERGE is idempotent, so it is retried after a conflict. Each write is synced before it is reported: Spark does not
fsync, and a table torn by a power cut would have to be rebuilt.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from sparklog.pipeline.control.read_tables import check_table, has_table, read_columns, read_rows, table_path
from sparklog.pipeline.control.schemas import CONTROL_TABLES, RUNS, SCHEMA_VERSION, VERSION_PROPERTY, ControlTable
from sparklog.pipeline.control.without_spark import drop_old_files, file_count, live_file_count, update_rows
from sparklog.sink.spark.errors import SPARK_ERRORS, explain
from sparklog.storage_core.errors import LogStorageError
from sparklog.storage_core.storage.local import make_directory, storage_errors
from sparklog.storage_core.storage.write_back import sync_filesystems

__all__ = ["ControlTables", "TableBounds", "oldest_kept_ms"]

logger = logging.getLogger(__name__)

_TRIES: Final = 4
_CONFLICT: Final = re.compile(
    r"Concurrent(?:Append|DeleteRead|DeleteDelete|Transaction|Write|Modification)Exception"
    r"|(?:MetadataChanged|ProtocolChanged)Exception"
    r"|DELTA_CONCURRENT_\w+|DELTA_(?:METADATA|PROTOCOL)_CHANGED"
)
_UPSERT: Final = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
_SESSION_CONF: Final = {
    "spark.sql.session.timeZone": "UTC",
    # Tables of a few thousand rows: compiling and splitting a query costs many times its work.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.stats.collect": "false",
    "spark.databricks.delta.merge.materializeSource": "none",
}
_PROPERTIES: Final = {
    VERSION_PROPERTY: str(SCHEMA_VERSION),
    "delta.enableDeletionVectors": "false",  # deltalake can't read them
    # Readers beside a run take seconds; kept versions slow down each run.
    "delta.deletedFileRetentionDuration": "interval 10 minutes",
    "delta.logRetentionDuration": "interval 1 days",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBounds:
    """Limits above which tables are tidied.

    Attributes:
        run_rows: newest rows of `runs` to keep: months of a small store, days of ten thousand logs. A MERGE reads all
            rows, so older ones are deleted when there are twice as many.
        files: in a table's folder, with checksum files.
        live_files: data files of one version; more are merged.
    """

    run_rows: int = 100_000
    files: int = 100
    live_files: int = 20


class ControlTables:
    """The tables of one store, for its maintenance run.

    Args:
        spark: with Delta's extension; the tables get a session of their own in it.
        store: folder of the store.

    Raises:
        UnsupportedFormatError: a newer release wrote one of the tables.
        CorruptFileError: a table is damaged.
    """

    def __init__(self, spark: SparkSession, store: Path) -> None:
        for table in CONTROL_TABLES:
            check_table(store, table)
        self._store = store
        self._spark = spark.newSession()
        for name, value in _SESSION_CONF.items():
            self._spark.conf.set(name, value)
        for table in CONTROL_TABLES:
            self._create(table)

    def put(self, table: ControlTable, rows: Sequence[Mapping[str, Any]], clauses: str = _UPSERT) -> None:
        """Add rows, or replace those of the same keys, durably.

        Args:
            table: to change.
            rows: with all columns.
            clauses: of the MERGE, see `try_merge`.

        Raises:
            LogStorageError: Spark failed, or other writers kept changing the table.
        """
        if not rows:
            return
        for _ in range(_TRIES):
            if self.try_merge(table, rows, clauses):
                return
        raise LogStorageError(f"a control table keeps changing: path={table_path(self._store, table)}; try again")

    def try_merge(self, table: ControlTable, rows: Sequence[Mapping[str, Any]], clauses: str) -> bool:
        """Merge rows, durably; return False if another commit came first.

        Args:
            table: to change, `t` in the clauses.
            rows: with all columns, `s` in the clauses.
            clauses: actions for rows with matching keys and for others.
        """
        keys = " AND ".join(f"t.{name} <=> s.{name}" for name in table.keys)
        with self._view(table, rows) as view:
            is_done = self._try(table, f"MERGE INTO {self._name(table)} t USING {view} s ON {keys} {clauses}")
        if is_done:
            self._make_durable(table)
        return is_done

    def try_update(self, table: ControlTable, values: Mapping[str, int], owner: str) -> bool:
        """Update rows without Spark, whose slots may be busy for long; return False if another commit came first."""
        return update_rows(self._store, table, values, owner)

    def rows(self, table: ControlTable) -> list[dict[str, Any]]:
        """Return the table's present rows."""
        return read_rows(self._store, table)

    def tidy(self, bounds: TableBounds) -> None:
        """Merge small files, and remove files of old versions and rows of old runs, above the limits."""
        started_ms = read_columns(self._store, RUNS, ["started_ms"]).column("started_ms").to_numpy()
        oldest_ms = oldest_kept_ms(started_ms, bounds.run_rows)
        if oldest_ms is not None and len(started_ms) >= 2 * bounds.run_rows:
            self._try(RUNS, f"DELETE FROM {self._name(RUNS)} WHERE started_ms < {oldest_ms}")
            self._make_durable(RUNS)
        for table in CONTROL_TABLES:
            if file_count(self._store, table) <= bounds.files:
                continue
            if live_file_count(self._store, table) > bounds.live_files:
                self._try(table, f"OPTIMIZE {self._name(table)}")
            drop_old_files(self._store, table)
            self._make_durable(table)

    def _create(self, table: ControlTable) -> None:
        if has_table(self._store, table):
            return
        path = table_path(self._store, table)
        with storage_errors(path):
            make_directory(path)
        properties = ", ".join(f"'{name}' = '{value}'" for name, value in _PROPERTIES.items())
        self._try(
            table,
            f"CREATE TABLE IF NOT EXISTS {self._name(table)} ({table.columns_sql}) USING DELTA"
            f" TBLPROPERTIES ({properties})",
        )
        self._make_durable(table)

    def _try(self, table: ControlTable, statement: str) -> bool:
        """Run a statement; return False if another commit came first."""
        try:
            with _translated(self._store, table):
                self._spark.sql(statement)
        except LogStorageError as error:
            if error.__cause__ is None or not _CONFLICT.search(str(error.__cause__)):
                raise
            logger.info("Another writer changed a control table meanwhile table=%s", table.name)
            return False
        return True

    def _name(self, table: ControlTable) -> str:
        uri = f"file://{table_path(self._store, table)}".replace("`", "``")
        return f"delta.`{uri}`"

    @contextmanager
    def _view(self, table: ControlTable, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """Yield a SQL name for rows."""
        name = f"new_{table.name}"
        columns = pa.Table.from_pylist([dict(each) for each in rows], schema=table.schema)
        with _translated(self._store, table):
            frame: DataFrame = self._spark.createDataFrame(columns).coalesce(1)  # otherwise one file per partition
            frame.createOrReplaceTempView(name)
        try:
            yield name
        finally:
            self._spark.catalog.dropTempView(name)

    def _make_durable(self, table: ControlTable) -> None:
        path = table_path(self._store, table)
        with storage_errors(path):
            sync_filesystems([path])


@contextmanager
def _translated(store: Path, table: ControlTable) -> Iterator[None]:
    """Turn errors of Spark into one line that names the table."""
    try:
        yield
    except SPARK_ERRORS as error:
        path = table_path(store, table)
        raise LogStorageError(
            f"Spark can't use a control table: path={path}: {explain(error)}; if it is damaged,"
            " maintain --rebuild-control rebuilds it from the logs"
        ) from error


def oldest_kept_ms(started_ms: npt.NDArray[np.int64], row_count: int) -> int | None:
    """Return the start of the oldest run to keep, so that whole runs stay; None to keep all.

    Args:
        started_ms: (n,) of each row, in any order.
        row_count: most rows to keep; the newest run stays with all of its rows.
    """
    if len(started_ms) <= row_count:
        return None
    ordered = np.sort(started_ms)
    return min(int(ordered[-row_count - 1]) + 1, int(ordered[-1]))
