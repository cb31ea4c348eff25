"""Checks logs by tasks of Spark, each some of them: for stores that are large, or far from this machine.

Executors read the store themselves: a folder has to be there on each of them, and a storage takes its credentials from
their environment, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sparklog.pipeline.checks.verify_logs import verify_logs
from sparklog.pipeline.checks.verify_objects import CheckedPart, check_parts
from sparklog.pipeline.places.store_view import StoreView, open_logs
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.sink.spark.errors import SPARK_ERRORS, explain
from sparklog.storage_core.errors import LogStorageError
from sparklog.storage_core.inspect.verify.findings import LogReport
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.topic_partition import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["logs_on_spark", "parts_on_spark"]

_TASKS_OF_A_CORE = 4

_Logs = Sequence[TopicPartition]
_Found = TypeVar("_Found")


def logs_on_spark(spark: SparkSession, keep_in: Path | None, view: StoreView, *, deep: bool) -> list[LogReport]:
    """Return the report of each log of a folder, in order.

    Raises:
        LogStorageError: a task failed.
    """
    tasks = min(len(view.logs), _TASKS_OF_A_CORE * spark.sparkContext.defaultParallelism)
    logs = [each.log for each in view.logs]
    groups = [logs[number::tasks] for number in range(tasks)]
    check = partial(_check_logs, view.root, keep_in, deep=deep)
    found = {log: report for each in _run(spark, groups, check) for log, report in each}
    return [found.get(each.log) or LogReport(each.directory) for each in view.logs]  # one was deleted meanwhile


def parts_on_spark(
    spark: SparkSession, place: StoragePlace, parts: Sequence[_Logs], *, deep: bool
) -> Iterator[CheckedPart]:
    """Yield what was found in each list of logs, in order.

    Raises:
        LogStorageError: a task failed.
    """
    for found in _run(spark, parts, partial(_check_part, place, deep=deep)):
        yield from found


def _run(spark: SparkSession, groups: Sequence[_Logs], check: Callable[[_Logs], _Found]) -> list[_Found]:
    """Check each group in a task of its own; return the results in order."""
    if not groups:
        return []
    context = spark.sparkContext
    context.setJobDescription(f"sparklog: verify {sum(map(len, groups)):,} logs")
    try:
        found: list[Any] = context.parallelize([list(each) for each in groups], len(groups)).map(check).collect()
    except SPARK_ERRORS as error:
        raise LogStorageError(f"the check failed: {explain(error)}") from error
    return found


def _check_logs(root: Path, keep_in: Path | None, logs: _Logs, *, deep: bool) -> list[tuple[TopicPartition, LogReport]]:
    view, wanted = open_logs(root), set(logs)
    held = tuple(each for each in view.logs if each.log in wanted)
    reports = verify_logs(replace(view, logs=held), keep_in, deep=deep, jobs=1)
    return [(each.log, report) for each, report in zip(held, reports, strict=True)]


def _check_part(place: StoragePlace, logs: _Logs, *, deep: bool) -> list[CheckedPart]:
    return list(check_parts(ObjectLedger.open(place), [logs], deep=deep, jobs=1))
