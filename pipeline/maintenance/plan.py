"""Plans a maintenance run: the tasks on a store's logs, their reasons and their order. A pure decision.

Order: deletions, which read nothing and leave less to clean; overdue logs, the longest first; the dirtiest logs; logs
with keys to erase. Bounds limit the bytes that cleanings read, and their expected time at the speed of former runs. A
log that exceeds what is left of a bound is deferred; smaller logs after it are not. The first log is always cleaned:
otherwise a bound below its size would keep it dirty for ever.

| decision | means                                                                                               |
|----------|-----------------------------------------------------------------------------------------------------|
| do       | the run does the task                                                                               |
| defer    | due, but over a bound                                                                               |
| wait     | it failed not long ago, or another run has the lease                                                |
| keep     | not due                                                                                             |
| fail     | can't be planned: the log can't be read, or its topic's settings are unknown                        |
| skip     | differs from the given plan (`given_plan`)                                                          |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from sparklog.pipeline.control.cleaner_checkpoints import CleanerCheckpoint
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.operations.clean_logs import LogCleaning
from sparklog.sink.operations.retain_logs import LogRetention
from sparklog.storage_core.quantity_text import duration_text, iso_time, size_text
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["Action", "Bounds", "FormerRuns", "MaintenancePlan", "PlannedTask", "SurveyedLog", "plan_maintenance"]

Action = Literal["delete", "compact", "erase"]
Decision = Literal["do", "defer", "wait", "keep", "fail", "skip"]

_DEFAULT_BYTES_PER_S: Final = 50_000_000
_DELETION_MS: Final = 2
"""Of one segment: some renames."""
_CLEANING_MS: Final = 10
"""Of one log, however small: files are opened, synced and renamed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedLog:
    """One log of a store before a run.

    Attributes:
        retention: plan of its retention, or the failure of that.
        cleaning: plan of its cleaning; None if its topic is not compacted.
        checkpoint: its state after former runs.
        leased_by: another run that has its lease, and until when; None if no run has.
        request_ids: of waiting requests to forget keys of its topic.
    """

    retention: LogRetention
    cleaning: LogCleaning | None = None
    checkpoint: CleanerCheckpoint | None = None
    leased_by: str | None = None
    request_ids: tuple[str, ...] = ()

    @property
    def log(self) -> TopicPartition:
        """The log's name."""
        return self.retention.log


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of a run.

    Attributes:
        max_bytes: most bytes that cleanings read.
        max_time_ms: longest expected duration of the run.
    """

    max_bytes: int | None = None
    max_time_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerRuns:
    """Measurements of former runs.

    Attributes:
        bytes_per_s: read speed of cleanings; None before the first one.
        kept_shares: share of its bytes that a log's last cleaning kept.
    """

    bytes_per_s: float | None = None
    kept_shares: Mapping[TopicPartition, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTask:
    """One task on one log.

    Attributes:
        reason: in words and numbers.
        read_bytes: bytes that it reads.
        freed_bytes: bytes that it is expected to free; None if unknown.
        expected_ms: its expected duration.
        retention, cleaning: the plan to carry out; one of them, by the action.
        request_ids: requests whose keys the cleaning erases.
    """

    log: TopicPartition
    action: Action
    decision: Decision
    reason: str
    read_bytes: int = 0
    freed_bytes: int | None = None
    expected_ms: int = 0
    retention: LogRetention | None = None
    cleaning: LogCleaning | None = None
    request_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePlan:
    """The plan of a run.

    Attributes:
        now_ms: time of the plan.
        logs_checked: number of logs.
        tasks: those to do, in order, then the others.
        bounds: of the run.
    """

    now_ms: int
    logs_checked: int
    tasks: tuple[PlannedTask, ...]
    bounds: Bounds = Bounds()

    @property
    def due(self) -> list[PlannedTask]:
        """The tasks to do, in order."""
        return [each for each in self.tasks if each.decision == "do"]

    def rows_after(self) -> dict[TopicPartition, LogState]:
        """Return the ledger rows of logs that the tasks change, as they will be."""
        rows: dict[TopicPartition, LogState] = {}
        for task in self.due:
            if task.retention is not None and task.retention.plan is not None:
                row = rows.get(task.log, task.retention.state)
                rows[task.log] = replace(row, log_start_offset=task.retention.plan.log_start_offset)
            elif task.cleaning is not None and task.cleaning.plan is not None:
                row = rows.get(task.log, task.cleaning.state)
                compacted_offset = max(row.compacted_offset, task.cleaning.plan.first_uncleanable_offset)
                rows[task.log] = replace(row, compacted_offset=compacted_offset)
        return rows

    def with_leases(self, leased_by: Mapping[TopicPartition, str]) -> MaintenancePlan:
        """Return the plan in which tasks on logs that other runs have leased wait.

        Args:
            leased_by: the run that has a log, and until when.
        """
        tasks = (_not_leased(each, leased_by.get(each.log)) for each in self.tasks)
        return replace(self, tasks=tuple(tasks))


def plan_maintenance(
    logs: Sequence[SurveyedLog],
    now_ms: int,
    bounds: Bounds = Bounds(),
    former: FormerRuns = FormerRuns(),
    erased_logs: Collection[TopicPartition] = (),
) -> MaintenancePlan:
    """Return the plan of a run.

    Args:
        former: speed and yield of former runs.
        erased_logs: logs with records of keys to erase, whatever the dirty ratio.
    """
    deletions = [task for each in logs if (task := _deletion(each))]
    cleanings = [task for each in logs if (task := _cleaning(each, now_ms, former, erased_logs))]
    cleanings.sort(key=_urgency)
    tasks = [*deletions, *_within(bounds, cleanings, sum(_cost_ms(each) for each in deletions))]
    tasks.sort(key=lambda each: each.decision != "do")
    return MaintenancePlan(now_ms=now_ms, logs_checked=len(logs), tasks=tuple(tasks), bounds=bounds)


def _deletion(each: SurveyedLog) -> PlannedTask | None:
    """Return the deletion task of a log; None if retention keeps all."""
    found = each.retention
    task = PlannedTask(log=each.log, action="delete", decision="do", reason="", retention=found)
    if found.failure is not None:
        return replace(task, decision="fail", reason=found.failure)
    plan = found.plan
    if plan is None or not (found.is_due or found.waiting):
        if plan is not None and plan.held_back is not None:
            return replace(task, decision="keep", reason=f"only a sink may roll: {plan.held_back.reason}")
        return None
    waiting_bytes = sum(file.size_bytes for file in found.waiting)
    freed = sum(one.size_bytes for one in plan.deletions) + waiting_bytes
    parts = []
    if plan.deletions:
        reasons = plan.deletions[0].rule, plan.deletions[0].reason
        first, last = plan.deletions[0].base_offset, plan.deletions[-1].next_offset - 1
        rolls = "; the active one is rolled first" if plan.rolls else ""
        count = len(plan.deletions)
        parts.append(f"{count} segments, offsets {first}..{last}, the first by {': '.join(reasons)}{rolls}")
    if found.waiting:
        parts.append(f"{len(found.waiting)} files of a former run wait to be removed")
    what = "; ".join(parts) or "the log start rises, or a former run left files below it"
    task = replace(task, reason=what, freed_bytes=freed, expected_ms=_DELETION_MS * len(plan.deletions))
    return _not_leased(task, each.leased_by)


def _cleaning(
    each: SurveyedLog, now_ms: int, former: FormerRuns, erased_logs: Collection[TopicPartition]
) -> PlannedTask | None:
    """Return the cleaning task of a log; None if its topic is not compacted."""
    found, known = each.cleaning, each.checkpoint
    if found is None:
        return None
    task = PlannedTask(
        log=each.log, action="compact", decision="keep", reason="", cleaning=found, request_ids=each.request_ids
    )
    if found.plan is None:
        return replace(task, decision="fail", reason=found.failure or "there is no plan")
    plan = found.plan
    if plan.decision == "not-compacted":
        return None
    read = plan.clean_bytes + plan.cleanable_bytes
    speed = former.bytes_per_s or _DEFAULT_BYTES_PER_S
    share = former.kept_shares.get(each.log)
    task = replace(
        task,
        reason=plan.reason,
        read_bytes=read,
        freed_bytes=None if share is None else round(plan.cleanable_bytes * (1 - share)),
        expected_ms=_CLEANING_MS + round(1000 * read / speed),
    )
    if not plan.is_due and each.log not in erased_logs:
        return replace(task, freed_bytes=0)
    if not plan.is_due:
        task = replace(task, action="erase", reason=f"has keys to erase; {plan.reason}")
    if known is not None and _is_put_off(known, now_ms):
        return replace(task, decision="wait", reason=_waits(known))
    return _not_leased(replace(task, decision="do"), each.leased_by)


def _is_put_off(known: CleanerCheckpoint, now_ms: int) -> bool:
    """Whether a failed log still waits for its retry; not if the failure is in the future: the clock was set back."""
    return known.retry_at_ms is not None and known.updated_ms <= now_ms < known.retry_at_ms


def _waits(known: CleanerCheckpoint) -> str:
    what = known.uncleanable_reason or "it failed"
    return f"failed {known.failure_count} times, retry at {iso_time(known.retry_at_ms or 0)}: {what}"


def _not_leased(task: PlannedTask, leased_by: str | None) -> PlannedTask:
    if leased_by is None or task.decision != "do":
        return task
    return replace(task, decision="wait", reason=f"another run has its lease: {leased_by}")


def _urgency(task: PlannedTask) -> tuple[int, int, float, TopicPartition]:
    plan = task.cleaning.plan if task.cleaning else None
    if plan is None:
        return 3, 0, 0.0, task.log
    rank = 0 if plan.decision == "overdue" else 2 if task.action == "erase" else 1 if plan.is_due else 3
    return rank, -plan.compaction_delay_ms, -plan.dirty_ratio, task.log


def _cost_ms(task: PlannedTask) -> int:
    return task.expected_ms if task.decision == "do" else 0


def _within(bounds: Bounds, tasks: Sequence[PlannedTask], spent_ms: int) -> list[PlannedTask]:
    """Defer the tasks that exceed the bounds."""
    found, read, is_first = [], 0, True
    for task in tasks:
        if task.decision == "do":
            over = None if is_first else _over(bounds, read + task.read_bytes, spent_ms + task.expected_ms)
            if over is None:
                is_first, read, spent_ms = False, read + task.read_bytes, spent_ms + task.expected_ms
            else:
                task = replace(task, decision="defer", reason=f"{over}; {task.reason}")  # noqa: PLW2901
        found.append(task)
    return found


def _over(bounds: Bounds, read: int, spent_ms: int) -> str | None:
    """Return the exceeded bound and the value that exceeds it, as a reason; None if there is none."""
    if bounds.max_bytes is not None and read > bounds.max_bytes:
        return f"the run would read {size_text(read)} with it, the bound is {size_text(bounds.max_bytes)}"
    if bounds.max_time_ms is not None and spent_ms > bounds.max_time_ms:
        return f"the run would take {duration_text(spent_ms)} with it, the bound is {duration_text(bounds.max_time_ms)}"
    return None
