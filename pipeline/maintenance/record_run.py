"""Records a maintenance run: a MERGE into `runs`, one into `cleaner_checkpoints`, and brokers' checkpoint files.

A checkpoint is written after its task, never before. A missing checkpoint costs a cleaning with little to do; one that
is too high would leave records uncleaned for ever. So the limits that truncations set for checkpoints are lifted last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sparklog.pipeline.control.cleaner_checkpoints import CleanerCheckpoint, after_task
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
"""In place of an offset: the log is deleted."""
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
    done: tuple[RunFacts, MaintenancePlan, Sequence[TaskResult]],
) -> None:
    """Record a run, durably.

    Args:
        before: checkpoints of its logs before the run.
        gone: logs with a row that are deleted.
        done: the run, its plan, and its results.

    Raises:
        LogStorageError: Spark failed, or other writers kept changing the tables.
    """
    store = maintained.store
    run, plan, finished = done
    results = [*finished, *failures_of(plan)]
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
    """Return the new checkpoints of the logs that had tasks, each after all of its tasks."""
    by_log: dict[TopicPartition, list[TaskResult]] = defaultdict(list)
    for each in results:
        by_log[each.log].append(each)
    found = {}
    for log, tasks in by_log.items():
        known = before.get(log)
        for each in tasks:
            known = after_task(known, each.as_log_result(), run_id, now_ms)
        if known is not None:
            found[log] = known
    return found


def _gone(log: TopicPartition) -> dict[str, Any]:
    nothing = CleanerCheckpoint(
        topic=log.topic, partition=log.partition, topic_id="", first_dirty_offset=_GONE, log_start_offset=0
    )
    return nothing.as_dict()
