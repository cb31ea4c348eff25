"""The control tables as the maintenance job writes them: through Spark SQL, one MERGE a table and run.

The same MERGE done again changes nothing, so one that lost a race is tried again. What a caller is told to have
written is on the disk: Spark does not sync, and a table that a power cut tore would have to be made anew.
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
    # What is read beside a run is read within seconds; what stays makes each run slower.
    "delta.deletedFileRetentionDuration": "interval 10 minutes",
    "delta.logRetentionDuration": "interval 1 days",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBounds:
    """Above what tables are tidied.

    Attributes:
        run_rows: of `runs`, whose newest ones stay; a MERGE looks at all of them. Months of a small store, days of ten
            thousand logs. Others go once there are twice as many.
        files: in a table's folder, with their sums.
        live_files: of one version, which are put together then.
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
        CorruptFileError: one is damaged.
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
            rows: with all of its columns.
            clauses: what else is to happen, as in `try_merge`.

        Raises:
            LogStorageError: Spark failed, or others kept changing the table.
        """
        if not rows:
            return
        for _ in range(_TRIES):
            if self.try_merge(table, rows, clauses):
                return
        raise LogStorageError(f"others keep changing a control table: path={table_path(self._store, table)}; try again")

    def try_merge(self, table: ControlTable, rows: Sequence[Mapping[str, Any]], clauses: str) -> bool:
        """Merge rows, durably; return whether it was done, or lost a race.

        Args:
            table: to change, `t` in the clauses.
            rows: with all of its columns, `s` in the clauses.
            clauses: what happens to rows that match by keys and to others.
        """
        keys = " AND ".join(f"t.{name} <=> s.{name}" for name in table.keys)
        with self._view(table, rows) as view:
            is_done = self._try(table, f"MERGE INTO {self._name(table)} t USING {view} s ON {keys} {clauses}")
        if is_done:
            self._make_durable(table)
        return is_done

    def try_update(self, table: ControlTable, values: Mapping[str, int], owner: str) -> bool:
        """Change rows as `update_rows` does: a run's tasks may fill all of Spark's slots for longer than this can wait.

        Return whether it was done, or lost a race.
        """
        return update_rows(self._store, table, values, owner)

    def rows(self, table: ControlTable) -> list[dict[str, Any]]:
        """Return the rows that the table has now."""
        return read_rows(self._store, table)

    def tidy(self, bounds: TableBounds) -> None:
        """Put small files together, remove those of old versions and rows of old runs, where there are many.

        Args:
            bounds: above them.
        """
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
        """Run a statement; return whether it was done, or lost a race."""
        try:
            with _translated(self._store, table):
                self._spark.sql(statement)
        except LogStorageError as error:
            if error.__cause__ is None or not _CONFLICT.search(str(error.__cause__)):
                raise
            logger.info("Somebody else changed a control table meanwhile table=%s", table.name)
            return False
        return True

    def _name(self, table: ControlTable) -> str:
        uri = f"file://{table_path(self._store, table)}".replace("`", "``")
        return f"delta.`{uri}`"

    @contextmanager
    def _view(self, table: ControlTable, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """Give rows a name in SQL."""
        name = f"new_{table.name}"
        columns = pa.Table.from_pylist([dict(each) for each in rows], schema=table.schema)
        with _translated(self._store, table):
            frame: DataFrame = self._spark.createDataFrame(columns).coalesce(1)  # a file each would be left
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
    """Turn what Spark raises into one line that names the table."""
    try:
        yield
    except SPARK_ERRORS as error:
        path = table_path(store, table)
        raise LogStorageError(
            f"Spark can't use a control table: path={path}: {explain(error)}; if it is damaged,"
            " maintain --rebuild-control makes it anew from the logs"
        ) from error


def oldest_kept_ms(started_ms: npt.NDArray[np.int64], row_count: int) -> int | None:
    """Return when the oldest run began whose rows are kept, None if all are: the newest rows, of whole runs.

    Args:
        started_ms: (n,) of each row, in any order.
        row_count: that may stay; the newest run stays, however many rows it has.
    """
    if len(started_ms) <= row_count:
        return None
    ordered = np.sort(started_ms)
    return min(int(ordered[-row_count - 1]) + 1, int(ordered[-1]))
