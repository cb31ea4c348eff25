"""A run is told: one MERGE into `runs`, one into `cleaner_checkpoints`, and the files that brokers read.

Checkpoints come behind the tasks they speak of, never before: one that is missing costs a cleaning that finds little to
do, one that runs ahead would leave records uncleaned for ever. So what caps them, truncations, is forgotten last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sparklog.pipeline.control.cleaner_checkpoints import CleanerCheckpoint, after_work
from sparklog.pipeline.control.schemas import CLEANER_CHECKPOINTS, RUNS
from sparklog.pipeline.control.tables import ControlTables, TableBounds
from sparklog.pipeline.maintenance.plan import MaintenancePlan
from sparklog.pipeline.maintenance.runs import RunFacts, TaskResult, failures_of, rows_of_run
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.opening.access import MaintainedStore
from sparklog.sink.operations.cleaner_limits import lift_cleaner_limits
from sparklog.sink.store.cleaner_checkpoint_files import write_cleaner_checkpoints
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["record_run"]

_GONE: Final = -1
"""In the place of an offset: the row is of a log that is no more."""
_CLAUSES: Final = f"""
WHEN MATCHED AND s.first_dirty_offset = {_GONE} THEN DELETE
WHEN MATCHED THEN UPDATE SET *
WHEN NOT MATCHED AND s.first_dirty_offset <> {_GONE} THEN INSERT *
"""


def record_run(
    tables: ControlTables,
    maintained: MaintainedStore,
    before: Mapping[TopicPartition, CleanerCheckpoint],
    gone: Sequence[TopicPartition],
    told: tuple[RunFacts, MaintenancePlan, Sequence[TaskResult]],
) -> None:
    """Write down what a run did, durably.

    Args:
        tables: of the store.
        maintained: the store.
        before: what was known of its logs.
        gone: logs that were known and are no more.
        told: the run, its plan, and what came of it.

    Raises:
        LogStorageError: Spark failed, or others kept changing the tables.
    """
    store = maintained.store
    run, plan, done = told
    results = [*done, *failures_of(plan)]
    now_ms = run.started_ms + run.duration_ms
    tables.put(RUNS, rows_of_run(run, plan, results))
    changed = changed_checkpoints(before, results, run.run_id, now_ms)
    rows = [each.as_dict() for each in changed.values()]
    rows += [_gone(log) for log in gone if log not in changed]
    tables.put(CLEANER_CHECKPOINTS, rows, _CLAUSES)
    tables.tidy(TableBounds())
    known = {**before, **changed}
    cleaned = {log: each.first_dirty_offset for log, each in known.items() if each.last_cleaned_ms is not None}
    states = Ledger.open(store.ledger_path).states()
    lift_cleaner_limits(store, changed.keys())
    write_cleaner_checkpoints(store, states, cleaned, maintained.lock)


def changed_checkpoints(
    before: Mapping[TopicPartition, CleanerCheckpoint], results: Sequence[TaskResult], run_id: str, now_ms: int
) -> dict[TopicPartition, CleanerCheckpoint]:
    """Return what is known of the logs that were worked on, each with all of its tasks."""
    by_log: dict[TopicPartition, list[TaskResult]] = defaultdict(list)
    for each in results:
        by_log[each.log].append(each)
    found = {}
    for log, tasks in by_log.items():
        known = before.get(log)
        for each in tasks:
            known = after_work(known, each.as_log_work(), run_id, now_ms)
        if known is not None:
            found[log] = known
    return found


def _gone(log: TopicPartition) -> dict[str, Any]:
    nothing = CleanerCheckpoint(
        topic=log.topic, partition=log.partition, topic_id="", first_dirty_offset=_GONE, log_start_offset=0
    )
    return nothing.as_dict()
