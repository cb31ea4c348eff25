"""Results of a run's tasks, their rows in the table `runs`, and the speed and yield that these rows show the next run.

A run has a row of its own, without topic, and a row for each task that it did, deferred, or could not do. Logs without
a due task are only counted in the run's row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.pipeline.control.cleaner_checkpoints import LogTaskResult
from sparklog.pipeline.control.schemas import RUNS
from sparklog.pipeline.maintenance.plan import Action, FormerRuns, MaintenancePlan, PlannedTask
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.operations.clean_logs import LogCleaningRow
from sparklog.sink.operations.retain_logs import LogRetention
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = [
    "FORMER_COLUMNS",
    "RunFacts",
    "TaskResult",
    "failures_of",
    "former_runs",
    "result_of_cleaning",
    "result_of_retention",
    "rows_of_run",
]

Outcome = Literal["done", "stopped", "skipped", "uncleanable", "failed"]
"""All is done; a part is; nothing is, as the log changed since the plan; the log can't be cleaned; the disk refused or
is full, and a retry may help."""

_MEASURED: Final = ("done", "stopped")
FORMER_COLUMNS: Final = (
    *("topic", "partition", "action", "outcome"),
    *("bytes_before", "bytes_after", "started_ms", "duration_ms"),
)
"""The columns of `runs` that `former_runs` reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """The result of one task.

    Attributes:
        state: of the log, as in the plan.
        reason: the reason for the task, or its failure, or the change since the plan.
        log_start_offset: of the log now.
        first_dirty_offset: start of the next cleaning; None without a cleaning.
        bytes_before, bytes_after: of the segments read and written; of a deletion, of the whole log.
        erased: number of erased records with forgotten keys, by base offset of their segment.
    """

    log: TopicPartition
    state: LogState
    action: Action
    outcome: Outcome
    reason: str
    log_start_offset: int
    first_dirty_offset: int | None = None
    bytes_before: int | None = None
    bytes_after: int | None = None
    records_before: int | None = None
    records_after: int | None = None
    erased: Mapping[int, int] = field(default_factory=dict)
    duration_ms: int = 0

    @property
    def is_failure(self) -> bool:
        """Whether the task needs an operator or a retry."""
        return self.outcome in ("uncleanable", "failed")

    def as_log_result(self) -> LogTaskResult:
        """Return the facts that the next run needs."""
        is_cleaning = self.action != "delete"
        return LogTaskResult(
            state=self.state,
            log_start_offset=self.log_start_offset,
            first_dirty_offset=self.first_dirty_offset if is_cleaning and self.outcome in _MEASURED else None,
            is_cleaned=is_cleaning and self.outcome == "done",
            uncleanable=self.reason if self.outcome == "uncleanable" else None,
            failure=self.reason if is_cleaning and self.outcome == "failed" else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Facts that all rows of a run share.

    Attributes:
        epochs: of its leases.
        duration_ms: of the whole run up to now.
        failure: the error that ended it; None without one.
    """

    run_id: str
    started_ms: int
    duration_ms: int
    epochs: Mapping[TopicPartition, int]
    failure: str | None = None


def result_of_cleaning(task: PlannedTask, row: LogCleaningRow, log_start_offset: int) -> TaskResult:
    """Return the result of a cleaning."""
    if task.cleaning is None:
        raise ValueError(f"no plan of a cleaning: log={task.log}")
    cleaned = row.cleaned
    return TaskResult(
        log=task.log,
        state=task.cleaning.state,
        action=task.action,
        outcome="done" if row.outcome == "cleaned" else row.outcome,
        reason=row.reason,
        log_start_offset=log_start_offset,
        first_dirty_offset=row.first_dirty_offset,
        bytes_before=cleaned.bytes_before if cleaned else None,
        bytes_after=cleaned.bytes_after if cleaned else None,
        records_before=cleaned.records_before if cleaned else None,
        records_after=cleaned.records_after if cleaned else None,
        erased=cleaned.erased if cleaned else {},
        duration_ms=row.duration_ms,
    )


def result_of_retention(task: PlannedTask, done: LogRetention, duration_ms: int) -> TaskResult:
    """Return the result of a deletion.

    Args:
        done: the log's retention after its execution.
        duration_ms: of all deletions together, which are one commit.
    """
    planned = task.retention
    if planned is None or planned.listed is None:
        raise ValueError(f"no plan of a deletion: log={task.log}")
    before = sum(each.size_bytes for each in planned.listed.segments)
    freed = 0 if done.plan is None or done.failure else sum(each.size_bytes for each in done.plan.deletions)
    is_rolled = planned.plan is not None and planned.plan.rolls
    is_held = done.plan is not None and done.plan.held_back is not None
    start = planned.state.log_start_offset if done.plan is None or done.failure else done.plan.log_start_offset
    reason = f"{task.reason}; a sink holds the active segment, which stays" if is_rolled and is_held else task.reason
    outcome: Outcome = "done"
    if done.failure is not None:
        outcome, reason = ("skipped" if done.is_outdated else "failed"), done.failure
    return TaskResult(
        log=task.log,
        state=planned.state,
        action="delete",
        outcome=outcome,
        reason=reason,
        log_start_offset=start,
        bytes_before=before,
        bytes_after=before - freed,
        duration_ms=duration_ms,
    )


def failures_of(plan: MaintenancePlan) -> list[TaskResult]:
    """Return a result for each cleaning that could not be planned: its log can't be read."""
    return [
        TaskResult(
            log=each.log,
            state=each.cleaning.state,
            action=each.action,
            outcome="uncleanable",
            reason=each.reason,
            log_start_offset=each.cleaning.state.log_start_offset,
        )
        for each in plan.tasks
        if each.decision == "fail" and each.cleaning is not None
    ]


def rows_of_run(run: RunFacts, plan: MaintenancePlan, results: Sequence[TaskResult]) -> list[dict[str, Any]]:
    """Return the rows of `runs`: of the run, and of each task that was due or could not be planned."""
    by_task = {(each.log, each.action): each for each in results}
    recorded = [each for each in plan.tasks if each.decision != "keep"]
    return [
        _run_row(run, plan, results),
        *(_task_row(run, each, by_task.get((each.log, each.action))) for each in recorded),
    ]


def former_runs(rows: pa.Table) -> FormerRuns:
    """Return speed and yield of former runs.

    Args:
        rows: of `runs`, in any order, with `FORMER_COLUMNS`.
    """
    is_measured = (pc.field("action") == "compact") & pc.field("outcome").isin(_MEASURED)
    found = rows.filter(is_measured & (pc.field("bytes_before") > 0)).sort_by("started_ms")
    read, spent_ms = (pc.sum(found.column(name)).as_py() for name in ("bytes_before", "duration_ms"))
    sizes = [("bytes_before", "last"), ("bytes_after", "last")]
    last = found.group_by(["topic", "partition"], use_threads=False).aggregate(sizes)
    shares = {
        TopicPartition(row["topic"], row["partition"]): row["bytes_after_last"] / row["bytes_before_last"]
        for row in last.to_pylist()
    }
    return FormerRuns(bytes_per_s=1000 * read / spent_ms if spent_ms else None, kept_shares=shares)


def _run_row(run: RunFacts, plan: MaintenancePlan, results: Sequence[TaskResult]) -> dict[str, Any]:
    counts = {
        name: sum(each.decision == name for each in plan.tasks) for name in ("do", "defer", "wait", "fail", "skip")
    }
    facts = {
        "logs_checked": plan.logs_checked,
        **counts,
        "max_bytes": plan.bounds.max_bytes,
        "max_time_ms": plan.bounds.max_time_ms,
    }
    failed = sum(each.is_failure for each in results)
    is_whole = run.failure is None and not failed and not counts["fail"]
    return {
        **_row(run),
        "plan": json.dumps(facts),
        "decision": "do" if counts["do"] else "keep",
        "reason": f"{counts['do']} tasks on {plan.logs_checked} logs",
        "outcome": "done" if is_whole else "failed",
        "error": run.failure or (f"{failed} tasks failed" if failed else None),
        "bytes_before": _sum(results, "bytes_before"),
        "bytes_after": _sum(results, "bytes_after"),
        "records_before": _sum(results, "records_before"),
        "records_after": _sum(results, "records_after"),
        "duration_ms": run.duration_ms,
    }


def _task_row(run: RunFacts, task: PlannedTask, result: TaskResult | None) -> dict[str, Any]:
    failure = {"fail": task.reason, "do": run.failure}.get(task.decision)  # unknown which tasks a lost run did
    planned = {"read_bytes": task.read_bytes, "freed_bytes": task.freed_bytes, "expected_ms": task.expected_ms}
    found: dict[str, Any] = {
        **_row(run),
        "topic": task.log.topic,
        "partition": task.log.partition,
        "action": task.action,
        "lease_epoch": run.epochs.get(task.log),
        "plan": json.dumps(planned),
        "decision": task.decision,
        "reason": task.reason,
        "outcome": "skipped" if failure is None else "failed",
        "error": failure,
        "duration_ms": 0,
    }
    if result is None:
        return found
    return found | {
        "outcome": result.outcome,
        "error": None if result.outcome == "done" else result.reason,
        "bytes_before": result.bytes_before,
        "bytes_after": result.bytes_after,
        "records_before": result.records_before,
        "records_after": result.records_after,
        "duration_ms": result.duration_ms,
    }


def _row(run: RunFacts) -> dict[str, Any]:
    empty: dict[str, Any] = dict.fromkeys(RUNS.schema.names)
    return {**empty, "run_id": run.run_id, "started_ms": run.started_ms}


def _sum(results: Sequence[TaskResult], name: str) -> int:
    return sum(getattr(each, name) or 0 for each in results)
