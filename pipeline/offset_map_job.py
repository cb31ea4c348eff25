"""A log whose keys exceed the memory of one task's map, cleaned in one round by several tasks.

    records -> (digest, group, offset, offset if dirty)       a task for each segment
            -> the latest dirty offset of each digest         a shuffle by digest, which spills to disks
            -> what is older than that, by group              a shuffle by group
            -> each group cleaned with a map of its own       a task for each group

A group's map holds only keys that have a later record, and only those of its records: its size is bounded by a segment,
whatever the log's is. All other records survive without being in any map, as in a map that knows them as the latest.

A group may be done while one in front of it is not: its task died, or the disk was full. So a tombstone of the dirty
part stays, old or to be erased: what it deletes may lie in that other group. One of the clean part has nothing in front
of it any more, and goes as always; so does one of today's dirty part in the round after this one.

Only logs without transactions are cleaned so: whether a marker may go depends on the groups in front of it. A task that
Spark runs again behind its swap misses the segments that are gone, and fails: the log is a whole one, its first dirty
offset stays, and the next run goes on.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from pipeline.task_progress import task_progress
from storage_core.cleaner.build_map import BuiltMap, DirtyRange
from storage_core.cleaner.clean_segments import CleanedSegment
from storage_core.cleaner.cleaned_transactions import CleanedTransactions
from storage_core.cleaner.cleaning_round import CleanedLog, CleaningRound, lacks_room, result_of_round
from storage_core.cleaner.dirty_keys import iter_dirty_keys
from storage_core.cleaner.hold_log import held_group
from storage_core.cleaner.listed_segments import ListedSegment
from storage_core.cleaner.offset_map import OffsetMap

__all__ = ["clean_in_parts"]

_KEYS_SCHEMA: Final = pa.schema(
    [("high", pa.int64()), ("low", pa.int64()), ("part", pa.int32()), ("offset", pa.int64()), ("dirty", pa.int64())]
)
_KEYS_DDL: Final = "high bigint, low bigint, part int, offset bigint, dirty bigint"

Check = Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Part:
    """A group as it came out of its task; without segment, it did not fit on the disk."""

    number: int
    cleaned: CleanedSegment | None
    problem: str | None


def clean_in_parts(spark: SparkSession, round_: CleaningRound, check_owner: Check) -> CleanedLog:
    """Clean all of a round.

    Args:
        spark: to work with.
        round_: of a log without transactions that ended.
        check_owner: travels to tasks.

    Raises:
        PySparkException: a task failed; groups that were done stay done, and the log is a whole one.
    """
    groups = round_.groups(round_.end_offset)
    segments = [(part, segment) for part, group in enumerate(groups) for segment in group]

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = [number for batch in batches for number in batch.column("number").to_pylist()]
        for number in numbers:
            part, segment = segments[number]
            yield from _read_keys(round_, part, segment, check_owner)

    def clean(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        part = _clean_part(round_, groups, TaskContext.get().partitionId(), batches, check_owner)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(part)], pa.binary())], names=["part"])

    numbers: Any = spark.createDataFrame(pa.table({"number": pa.array(range(len(segments)), pa.int32())}))
    keys = numbers.repartitionById(len(segments), F.col("number")).mapInArrow(read, _KEYS_DDL)
    latest = F.max("dirty").over(Window.partitionBy("high", "low"))
    superseded = keys.withColumn("latest", latest).where("latest > offset").select("part", "high", "low", "latest")
    with task_progress(spark, f"cleaning {round_.log.directory.name}", len(groups)):
        rows = superseded.repartitionById(len(groups), F.col("part")).mapInArrow(clean, "part binary").collect()
    parts: list[_Part] = sorted((pickle.loads(row["part"]) for row in rows), key=lambda each: each.number)
    return _result(round_, groups, parts)


def _result(round_: CleaningRound, groups: Sequence[Sequence[ListedSegment]], parts: Sequence[_Part]) -> CleanedLog:
    written = [(groups[each.number], each.cleaned) for each in parts if each.cleaned is not None]
    problem = next((each.problem for each in parts if each.problem), None)
    built = BuiltMap(end_offset=round_.end_offset, is_full=False, bytes_read=0, records_read=0)
    if problem is not None or len(written) < len(groups):
        return result_of_round(written, round_.first_dirty_offset, built, problem or "a group was not cleaned")
    return result_of_round(written, round_.end_offset, built, round_.open_transaction)


def _read_keys(
    round_: CleaningRound, part: int, segment: ListedSegment, check_owner: Check
) -> Iterator[pa.RecordBatch]:
    """Yield the digests of a segment's records; `dirty` is -1 where a record says nothing of others."""
    whole = round_.dirty
    one = DirtyRange(
        segments=[segment.files(round_.log.directory)],
        first_dirty_offset=whole.first_dirty_offset,
        first_uncleanable_offset=segment.next_offset,
        aborted=whole.aborted,
    )
    for digests, offsets, dirty in iter_dirty_keys(one, round_.log.hash_key, check_owner):
        columns: list[npt.NDArray[Any]] = [
            digests[:, 0].view(np.int64),
            digests[:, 1].view(np.int64),
            np.full(len(offsets), part, np.int32),
            offsets,
            dirty,
        ]
        arrays = [pa.array(np.ascontiguousarray(each)) for each in columns]
        yield pa.RecordBatch.from_arrays(arrays, schema=_KEYS_SCHEMA)


def _clean_part(
    round_: CleaningRound,
    groups: Sequence[Sequence[ListedSegment]],
    number: int,
    batches: Iterator[pa.RecordBatch],
    check_owner: Check,
) -> _Part:
    """Clean one group with a map of its superseded keys."""
    offset_map = _map_of(batches, round_)
    group = groups[number]
    check_owner()
    if problem := lacks_room(round_.log.directory, group):
        return _Part(number, None, problem)
    request = replace(round_.request(), tombstones_stay_from=round_.first_dirty_offset)
    shared = CleanedTransactions(round_.surveyed.aborted), request
    with held_group(round_.log.directory, group[0].base_offset):
        return _Part(number, round_.clean(group, offset_map, shared, check_owner), None)


def _map_of(batches: Iterator[pa.RecordBatch], round_: CleaningRound) -> OffsetMap:
    digests, offsets = [np.empty((0, 2), np.uint64)], [np.empty(0, np.int64)]
    for batch in batches:
        high, low, latest = (batch.column(name).to_numpy() for name in ("high", "low", "latest"))
        digests.append(np.stack([high.view(np.uint64), low.view(np.uint64)], axis=1))
        offsets.append(latest)
    return OffsetMap.from_columns(
        np.concatenate(digests), np.concatenate(offsets), round_.end_offset - 1, round_.log.hash_key
    )
