"""Executes a maintenance plan: the driver deletes segments in one ledger commit, Spark tasks clean logs in parallel.

    driver                                         Spark tasks
    deletions: one ledger commit, then renames
    remove renamed files whose delay is over
    roll active segments of the plan: a commit
    record how far logs will be compacted: a commit
    logs -> slots                        --------> clean log by log, the largest first
    rows                                 <-------- one row per log
    logs with more keys than a map holds: `offset_map_job`, one after the other

Spark tasks need no coordination: one Spark task cleans a log and holds its lock, and before each step that can't be
undone it checks that its run still owns the store (fencing). A failed log is a row, too. A log is sent with its ledger
row: until the cleaning ends only a sink may change the log, and a sink appends.

The driver deletes, because the renames must come after their commit.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sparklog.pipeline.maintenance.offset_map_job import STOPPED, PartChecks, clean_in_parts
from sparklog.pipeline.maintenance.plan import MaintenancePlan
from sparklog.pipeline.maintenance.runs import TaskResult, result_of_cleaning, result_of_retention
from sparklog.pipeline.maintenance.slots import slots_of
from sparklog.pipeline.maintenance.stop_file import StopFile
from sparklog.pipeline.spark.task_progress import task_progress
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.opening.access import MaintainedStore
from sparklog.sink.operations.clean_logs import (
    CleanerBudget,
    LogCleaning,
    LogCleaningRow,
    announce_cleanings,
    clean_log_with,
    clean_one_log,
    failed_cleaning,
    pending_removals,
)
from sparklog.sink.operations.retain_logs import PendingRemoval, RetentionRun, execute_plans, remove_deleted
from sparklog.sink.operations.roll_active import roll_without_sink
from sparklog.sink.spark.errors import SPARK_ERRORS, explain, raised_in_task
from sparklog.sink.stage.stage_rows import freeze_garbage
from sparklog.storage_core.cleaner.clean_log import UNCLEANABLE, CleanedLog, LogToClean
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import WriterFencedError
from sparklog.storage_core.storage.owned_names import Owner
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["run_plan"]

logger = logging.getLogger(__name__)

_TASKS_PER_SLOT: Final = 4
_ROW_DDL: Final = "row binary"
_LOG_SCHEMA: Final = pa.schema([("slot", pa.int32()), ("log", pa.binary())])


@dataclass(frozen=True, slots=True)
class _LogTask:
    """One log, as it is sent to its Spark task."""

    rank: int
    cleaning: LogCleaning
    state: LogState


@dataclass(frozen=True, slots=True)
class _Shared:
    """What is sent to every Spark task."""

    budget: CleanerBudget
    clock: Clock
    owner: Owner
    stop: StopFile


def run_plan(
    spark: SparkSession,
    maintained: MaintainedStore,
    plan: MaintenancePlan,
    budget: CleanerBudget,
    clock: Clock,
    owner: Owner,
) -> tuple[list[TaskResult], list[PendingRemoval]]:
    """Do the due tasks; return their results, and the files that wait to be removed.

    Args:
        spark: its executors see the store under the same path.
        clock: sent to Spark tasks. Between two logs they check whether the run is to stop (`StopFile`).
        owner: sent to Spark tasks.

    Raises:
        WriterFencedError: another run owns the store.
        LedgerDamagedError: the ledger can't be read.
    """
    stop = StopFile.of(maintained.store.root)
    stop.drop_others()
    results, removals = _delete(maintained, plan, clock)
    removals = _remove_due(removals, clock)
    due = [each for each in plan.due if each.cleaning is not None]
    cleanings = [each.cleaning for each in due if each.cleaning is not None]
    rolls = [each.log for each in cleanings if each.plan is not None and each.plan.rolls]
    roll_without_sink(maintained, rolls, clock)
    states = announce_cleanings(maintained, cleanings, clock)
    shared = _Shared(replace(budget, leaves_large=True), clock, owner, stop)
    tasks = _tasks(cleanings, states)
    rows = _clean_on_spark(spark, tasks, shared)
    for task in tasks:
        if rows[task.cleaning.log].is_large:
            rows[task.cleaning.log] = _stopped(task) if stop.is_asked() else _clean_large(spark, task, shared)
    for planned, cleaning in zip(due, cleanings, strict=True):
        row = rows.get(planned.log) or failed_cleaning(cleaning, "the log is not in the ledger any more")
        _tell(row)
        state = states.get(planned.log, cleaning.state)
        results.append(result_of_cleaning(planned, row, state.log_start_offset))
    removals += pending_removals(cleanings, clock)
    return results, sorted(removals, key=lambda each: each.due_ms)


def _tell(row: LogCleaningRow) -> None:
    """Write one line about a cleaned log to the program's log, as a broker's cleaner does."""
    cleaned = row.cleaned
    if cleaned is None or not cleaned.bytes_before:
        logger.info("Cleaned log=%s outcome=%s duration_ms=%d: %s", row.log, row.outcome, row.duration_ms, row.reason)
        return
    megabytes = cleaned.bytes_before / 1e6
    logger.info(
        "Cleaned log=%s outcome=%s bytes=%d->%d (%.1f %% less) records=%d->%d segments=%d->%d first_dirty_offset=%d"
        " duration_ms=%d (%.1f MB/s): %s",
        *(row.log, row.outcome, cleaned.bytes_before, cleaned.bytes_after),
        100 * (1 - cleaned.bytes_after / cleaned.bytes_before),
        *(cleaned.records_before, cleaned.records_after, cleaned.segments_before, cleaned.segments_after),
        *(row.first_dirty_offset, row.duration_ms, megabytes / max(row.duration_ms, 1) * 1000, row.reason),
    )


def _delete(
    maintained: MaintainedStore, plan: MaintenancePlan, clock: Clock
) -> tuple[list[TaskResult], list[PendingRemoval]]:
    due = [each for each in plan.due if each.retention is not None]
    if not due:
        return [], []
    began_ms = clock.monotonic_ms()
    run = execute_plans(maintained, [each.retention for each in due if each.retention is not None], clock)
    spent_ms, done = clock.monotonic_ms() - began_ms, {each.log: each for each in run.logs}
    return [result_of_retention(each, done[each.log], spent_ms) for each in due], run.pending


def _remove_due(removals: Sequence[PendingRemoval], clock: Clock) -> list[PendingRemoval]:
    """Remove files whose delay is over, as cleanings need the space; return those that still wait, or failed."""
    monotonic_ms = clock.monotonic_ms()
    failures = remove_deleted(RetentionRun([], [each for each in removals if each.due_ms <= monotonic_ms]), clock)
    return [each for each in removals if each.due_ms > monotonic_ms or each.log in failures]


def _tasks(cleanings: Sequence[LogCleaning], states: Mapping[TopicPartition, LogState]) -> list[_LogTask]:
    """Return the logs that are still in the ledger, the largest first."""
    found = [each for each in cleanings if each.plan is not None and each.log in states]
    found.sort(key=_bytes_of, reverse=True)
    return [_LogTask(rank, each, states[each.log]) for rank, each in enumerate(found)]


def _bytes_of(each: LogCleaning) -> int:
    return 0 if each.plan is None else each.plan.clean_bytes + each.plan.cleanable_bytes


def _clean_on_spark(
    spark: SparkSession, tasks: Sequence[_LogTask], shared: _Shared
) -> dict[TopicPartition, LogCleaningRow]:
    """Return a row for each log.

    If a worker dies, all results of its Spark job are lost: both halves of the logs are retried, down to the log at
    fault. A log that was cleaned before is read again and changes little.
    """
    if not tasks:
        return {}

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _run_task(batches, shared)

    sizes = [_bytes_of(each.cleaning) for each in tasks]
    count = min(len(tasks), _TASKS_PER_SLOT * spark.sparkContext.defaultParallelism)
    columns = [pa.array(slots_of(sizes, count), pa.int32()), pa.array([pickle.dumps(each) for each in tasks])]
    try:
        frame: Any = spark.createDataFrame(pa.Table.from_arrays(columns, schema=_LOG_SCHEMA))
        with task_progress(spark, "cleaning", count):
            found = frame.repartitionById(count, F.col("slot")).mapInArrow(run, _ROW_DDL).collect()
    except SPARK_ERRORS as error:
        shared.owner.check()
        if len(tasks) == 1:
            return {tasks[0].cleaning.log: failed_cleaning(tasks[0].cleaning, explain(error))}
        logger.warning("Spark failed with %d logs, retrying each half: %s", len(tasks), explain(error))
        half = len(tasks) // 2
        return _clean_on_spark(spark, tasks[:half], shared) | _clean_on_spark(spark, tasks[half:], shared)
    rows: list[LogCleaningRow | WriterFencedError] = [pickle.loads(each["row"]) for each in found]
    for row in rows:
        if isinstance(row, WriterFencedError):
            raise row
    return {row.log: row for row in rows if isinstance(row, LogCleaningRow)}


def _clean_large(spark: SparkSession, task: _LogTask, shared: _Shared) -> LogCleaningRow:
    """Clean one log with several Spark tasks."""

    def clean(log: LogToClean) -> CleanedLog:
        return clean_in_parts(spark, log, PartChecks(shared.owner, shared.stop.is_asked))

    try:
        return clean_log_with(task.cleaning, task.state, shared.budget, shared.clock, clean)
    except SPARK_ERRORS as error:
        shared.owner.check()
        if shared.stop.is_asked():
            return _stopped(task)
        failed = failed_cleaning(task.cleaning, explain(error))
        raised = raised_in_task(error)
        is_damaged = raised is not None and issubclass(raised, UNCLEANABLE)
        return replace(failed, outcome="uncleanable") if is_damaged else failed


def _stopped(task: _LogTask) -> LogCleaningRow:
    return replace(failed_cleaning(task.cleaning, STOPPED), outcome="skipped")


def _run_task(batches: Iterator[pa.RecordBatch], shared: _Shared) -> Iterator[pa.RecordBatch]:
    """Clean the logs of one Spark task, the largest first, after reading all input."""
    tasks: list[_LogTask] = [pickle.loads(log) for batch in batches for log in batch.column("log").to_pylist()]
    for task in sorted(tasks, key=lambda each: each.rank):
        row: LogCleaningRow | WriterFencedError
        try:
            if shared.stop.is_asked():
                row = _stopped(task)
            else:
                row = clean_one_log(task.cleaning, task.state, shared.budget, shared.clock, shared.owner)
        except WriterFencedError as error:
            row = error
        except Exception as error:  # any failure is a failure of this log only
            logger.exception("A cleaning failed log=%s", task.cleaning.log)
            row = failed_cleaning(task.cleaning, f"{type(error).__name__}: {error}")
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(row)], pa.binary())], names=["row"])
        if isinstance(row, WriterFencedError):
            break
    freeze_garbage()
