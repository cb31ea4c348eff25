"""Checks logs by tasks of Spark, each some of them: for stores that are large, or far from this machine.

Executors read the store themselves: a folder has to be there on each of them, and a storage takes its credentials from
their environment, too.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sparklog.pipeline.checks.verify_logs import verify_logs
from sparklog.pipeline.checks.verify_objects import CheckedPart, check_parts
from sparklog.pipeline.places.store_view import StoreView, open_logs
from sparklog.sink.objects.ledger_part import LedgerPart, parts_of_ledger
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.sink.spark.errors import SPARK_ERRORS, explain
from sparklog.storage_core.errors import LogDirOfflineError, LogStorageError
from sparklog.storage_core.inspect.verify.findings import LogReport
from sparklog.storage_core.topic_partition import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["logs_on_spark", "parts_on_spark"]

_TASKS_OF_A_CORE = 4

_Work = TypeVar("_Work")
_Found = TypeVar("_Found")


def logs_on_spark(spark: SparkSession, keep_in: Path | None, view: StoreView, *, deep: bool) -> list[LogReport]:
    """Return the report of each log of a folder, in order.

    Raises:
        LogStorageError: a task failed, or does not see what the driver sees.
    """
    tasks = min(len(view.logs), _TASKS_OF_A_CORE * spark.sparkContext.defaultParallelism)
    groups = [{each.log: each.offline for each in view.logs[number::tasks]} for number in range(tasks)]
    kept = None if keep_in is None else keep_in.absolute()
    check = partial(_check_logs, view.root.absolute(), kept, deep=deep)
    found = {log: report for each in _run(spark, groups, check) for log, report in each}
    return [found.get(each.log) or LogReport(each.directory) for each in view.logs]  # one was deleted meanwhile


def parts_on_spark(
    spark: SparkSession, ledger: ObjectLedger, parts: Sequence[Sequence[TopicPartition]], *, deep: bool
) -> Iterator[CheckedPart]:
    """Yield what was found in each list of logs, in order.

    Raises:
        LedgerDamagedError: the ledger can't be read.
        LogStorageError: a task failed.
    """
    for found in _run(spark, parts_of_ledger(ledger, parts), partial(_check_part, deep=deep)):
        yield from found


def _run(spark: SparkSession, works: Sequence[_Work], check: Callable[[_Work], _Found]) -> list[_Found]:
    """Do each work in a task of its own; return the results in order."""
    if not works:
        return []
    context = spark.sparkContext
    context.setJobDescription("sparklog: verify")
    try:
        found: list[Any] = context.parallelize(works, len(works)).map(check).collect()
    except SPARK_ERRORS as error:
        raise LogStorageError(f"the check failed: {explain(error)}") from error
    return found


def _check_logs(
    root: Path, keep_in: Path | None, offline: Mapping[TopicPartition, str | None], *, deep: bool
) -> list[tuple[TopicPartition, LogReport]]:
    """Check some logs.

    Args:
        offline: why the driver can't read each of them; None for the others.

    Raises:
        LogDirOfflineError: this executor can't read a log that the driver can read.
    """
    view = open_logs(root)
    held = tuple(each for each in view.logs if each.log in offline)
    for each in held:
        if each.offline is not None and offline[each.log] is None:
            raise LogDirOfflineError(
                f"an executor does not see a log: host={socket.gethostname()} log={each.log} reason={each.offline}"
            )
    reports = verify_logs(replace(view, logs=held), keep_in, deep=deep, jobs=1)
    return [(each.log, report) for each, report in zip(held, reports, strict=True)]


def _check_part(part: LedgerPart, *, deep: bool) -> list[CheckedPart]:
    return list(check_parts(part, [sorted(part.held_states)], deep=deep, jobs=1))
