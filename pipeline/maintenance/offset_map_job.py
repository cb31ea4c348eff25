"""Compacts a log with more keys than the offset map of one Spark task holds: one round, several Spark tasks.

    survey of the log -> a row per group of segments          one Spark task
    records -> (digest, group, offset, offset if dirty)       a Spark task per group
            -> the latest dirty offset of each digest         a shuffle by digest, which spills to disk
            -> superseded offsets below it, by group, sorted  a shuffle by group
            -> each group rewritten without these             a Spark task per group
    new segments -> swapped in, one after the other           the driver

A Spark task's memory depends on the chunks that it reads, not on the size of log or group: the superseded offsets of a
group arrive in the order of its records. The driver holds a few facts of each cleaned group, no records.

Spark keeps the survey on an executor's disk during the round. If it is lost with the executor, the round fails: a new
survey would number the groups anew, and some are cleaned already. Reading the keys again gives the same result: the
latest record of each key is still there.

A retried Spark task rewrites its group: no segment is replaced before all Spark tasks are done. If one fails, all
written groups are dropped and the log is unchanged. After a request to stop, Spark tasks do not start further groups;
the groups written until then are swapped in.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from sparklog.pipeline.spark.task_progress import task_progress
from sparklog.sink.spark.errors import SPARK_ERRORS
from sparklog.storage_core.cleaner.cleaning_part import (
    CleanedPart,
    CleaningPart,
    cut_into_parts,
    part_keys,
    result_of_parts,
    swap_in_parts,
    write_part,
)
from sparklog.storage_core.cleaner.cleaning_round import CleanedLog, CleaningRound, EarlyEnd, LogToClean, survey_round
from sparklog.storage_core.cleaner.hold_log import held_alone
from sparklog.storage_core.cleaner.swap import finish_own_swaps, finish_swaps
from sparklog.storage_core.errors import LogStorageError
from sparklog.storage_core.storage.owned_names import Owner

__all__ = ["STOPPED", "PartChecks", "clean_in_parts"]

logger = logging.getLogger(__name__)

STOPPED: Final = "the run was asked to stop"

_SHARED: Final = -1
"""Number of the row with the data that all parts share."""
_FIRST: Final = -1
"""Offset of the row with the part itself: the first of its rows."""

_PARTS_SCHEMA: Final = pa.schema([("part", pa.int32()), ("content", pa.binary())])
_PARTS_DDL: Final = "part int, content binary"
_KEYS_SCHEMA: Final = pa.schema(
    [("high", pa.int64()), ("low", pa.int64()), ("part", pa.int32()), ("offset", pa.int64()), ("dirty", pa.int64())]
)
_KEYS_DDL: Final = "high bigint, low bigint, part int, offset bigint, dirty bigint"


@dataclass(frozen=True, slots=True)
class PartChecks:
    """Checks that Spark tasks make between steps; sent to Spark tasks.

    Attributes:
        owner: of the log: this run, until another run fences it.
        is_stopped: whether the run is to stop.
    """

    owner: Owner
    is_stopped: Callable[[], bool]

    def while_reading(self) -> None:
        """Raise if another run owns the store, or this run is to stop."""
        self.owner.check()
        if self.is_stopped():
            raise InterruptedError(STOPPED)


def clean_in_parts(spark: SparkSession, log: LogToClean, checks: PartChecks) -> CleanedLog:
    """Clean a log's whole dirty range.

    Args:
        checks: sent to Spark tasks.

    Raises:
        PySparkException: a Spark task failed; the log is unchanged.
        CorruptFileError: leftovers of an earlier round are damaged.
        StoreLockedError: another Spark task still cleans the log.
        StorageError: the disk refused; groups swapped in until then stay, and the log is complete.
        WriterFencedError: another run owns the store.
    """
    try:
        with held_alone(log.directory) as let_parts_in:
            finish_own_swaps(log.directory, log.end.segment_base, checks.owner)
            let_parts_in()
            shared, count, written = _write_parts(spark, log, checks)
    except SPARK_ERRORS:
        _drop_written(log, checks)
        raise
    swap_in_parts(shared, written, checks.owner)
    return result_of_parts(shared, count, written)


def _drop_written(log: LogToClean, checks: PartChecks) -> None:
    """Remove the files of a failed round; if that fails, too, the next round does it."""
    try:
        finish_swaps(log.directory, log.end.segment_base, checks.owner)
    except LogStorageError as error:
        logger.warning("Files of a failed round are left to the next one path=%s: %s", log.directory, error)


def _write_parts(
    spark: SparkSession, log: LogToClean, checks: PartChecks
) -> tuple[CleaningRound, int, list[CleanedPart]]:
    """Return the data that all parts share, their number, and the written parts."""
    found = _survey(spark, log)
    shared: CleaningRound = pickle.loads(found.where(F.col("part") == _SHARED).collect()[0]["content"])
    parts = found.where(F.col("part") != _SHARED)
    count = parts.count()
    if not count:
        return shared, 0, []

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for content in [each for batch in batches for each in batch.column("content").to_pylist()]:
            yield from _read_keys(shared, pickle.loads(content), checks)

    def clean(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        done = _write_part(shared, batches, checks)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(done)], pa.binary())], names=["done"])

    keys = parts.repartitionById(count, F.col("part")).mapInArrow(read, _KEYS_DDL)
    latest = F.max("dirty").over(Window.partitionBy("high", "low"))
    superseded = keys.withColumn("latest", latest).where("latest > offset")
    rows_of_parts = superseded.select("part", "offset", F.lit(None).cast("binary").alias("content")).unionByName(
        parts.select("part", F.lit(_FIRST).cast("bigint").alias("offset"), "content")
    )
    by_part = rows_of_parts.repartitionById(count, F.col("part")).sortWithinPartitions("offset")
    with task_progress(spark, f"cleaning {log.directory.name}", count):
        rows = by_part.mapInArrow(clean, "done binary").collect()
    return shared, count, [pickle.loads(row["done"]) for row in rows]


def _survey(spark: SparkSession, log: LogToClean) -> DataFrame:
    """Return a row for each part, and one with the shared data, made by a Spark task and kept on its disk."""

    def survey(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        shared, parts = cut_into_parts(survey_round(log))
        yield _row(_SHARED, shared)
        for part in parts:
            yield _row(part.number, part)

    one: Any = spark.range(1, numPartitions=1)
    found: DataFrame = one.mapInArrow(survey, _PARTS_DDL).localCheckpoint(True, StorageLevel.DISK_ONLY)
    return found


def _row(number: int, content: object) -> pa.RecordBatch:
    columns = [pa.array([number], pa.int32()), pa.array([pickle.dumps(content)], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=_PARTS_SCHEMA)


def _read_keys(shared: CleaningRound, part: CleaningPart, checks: PartChecks) -> Iterator[pa.RecordBatch]:
    """Yield the digests of a part's records; `dirty` is -1 for a record that supersedes no other."""
    for digests, offsets, dirty in part_keys(shared, part, checks.while_reading):
        columns: list[npt.NDArray[Any]] = [
            digests[:, 0].view(np.int64),
            digests[:, 1].view(np.int64),
            np.full(len(offsets), part.number, np.int32),
            offsets,
            dirty,
        ]
        arrays = [pa.array(np.ascontiguousarray(each)) for each in columns]
        yield pa.RecordBatch.from_arrays(arrays, schema=_KEYS_SCHEMA)


def _write_part(shared: CleaningRound, batches: Iterator[pa.RecordBatch], checks: PartChecks) -> CleanedPart:
    """Rewrite the part in the first row, without the offsets of the other rows."""
    first = next(batch for batch in batches if len(batch))
    part: CleaningPart = pickle.loads(first.column("content")[0].as_py())

    def superseded() -> Iterator[npt.NDArray[np.int64]]:
        yield first.column("offset")[1:].to_numpy()
        for batch in batches:
            yield batch.column("offset").to_numpy()

    if checks.is_stopped():
        done = CleanedPart(part.number, part.group, problem=EarlyEnd(STOPPED))
    else:
        done = write_part(shared, part, superseded(), checks.owner)
    for _ in batches:  # Spark ends a worker that leaves some of its input
        pass
    return done
