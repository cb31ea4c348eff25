"""The output of `maintain`: the plan as a table, the results of a run, and both as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sparklog.pipeline.maintenance.forget import ForgetReport
from sparklog.pipeline.maintenance.given_plan import PLAN_VERSION, task_facts
from sparklog.pipeline.maintenance.plan import MaintenancePlan, PlannedTask
from sparklog.pipeline.maintenance.run import MaintenanceRun
from sparklog.pipeline.maintenance.runs import TaskResult
from sparklog.pipeline.terminal import PeopleTable, say
from sparklog.storage_core.quantity_text import duration_text, size_text

__all__ = ["PlanReport", "RunReport", "print_plan", "result_line"]

_WIDE = 200
_LOG_SHARE = 4
"""Names of logs may take 1/4 of a line, so that long ones leave room for the reasons."""
_MOST_ROWS = 200
"""Rows of a table without `--all`."""


@dataclass(frozen=True, slots=True)
class PlanReport:
    """A plan for the store with this id; `print_plan` prints its tasks."""

    plan: MaintenancePlan
    store_id: str
    overtaken: str | None = None

    def lines(self) -> tuple[str, ...]:
        """Return what the plan means for cuts."""
        return () if self.overtaken is None else (self.overtaken,)

    def verdict(self) -> str:
        """Return the last line of a plan for people."""
        plan = self.plan
        counts = {name: sum(each.decision == name for each in plan.tasks) for name in ("do", "defer", "wait", "fail")}
        rest = "".join(
            f"; {counts[name]:,} {words}"
            for name, words in (("defer", "deferred"), ("wait", "wait"), ("fail", "can't be planned"))
            if counts[name]
        )
        if not counts["do"]:
            return f"nothing to do in {plan.logs_checked:,} logs{rest}"
        read = sum(each.read_bytes for each in plan.due)
        freed = sum(each.freed_bytes or 0 for each in plan.due)
        more = " and what cleaning removes" if any(each.freed_bytes is None for each in plan.due) else ""
        took_ms = sum(each.expected_ms for each in plan.due)
        return (
            f"planned: {counts['do']:,} tasks on {plan.logs_checked:,} logs, {size_text(read)} to read,"
            f" {size_text(freed)} to free{more}, about {duration_text(took_ms)}{rest}; --execute does it"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the plan for JSON, also tasks that are not due; `given_plan` reads it."""
        return {
            "plan_version": PLAN_VERSION,
            "store_id": self.store_id,
            "made_ms": self.plan.now_ms,
            "executed": False,
            "logs_checked": self.plan.logs_checked,
            "tasks": [_task_as_dict(each) for each in self.plan.tasks],
        }


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run on the store with this id. If it carried out a given plan, the tasks that differed are shown, too."""

    run: MaintenanceRun
    store_id: str
    has_given_plan: bool = False

    def lines(self) -> Iterator[str]:
        """Yield a line for each task, and for each request to forget keys."""
        yield from map(result_line, self.run.results)
        undone = (each for each in self.run.plan.tasks if each.decision not in ("do", "keep"))
        if self.has_given_plan:
            yield from (f"{each.log} {each.action} {each.decision}: {each.reason}" for each in undone)
        yield from ForgetReport(self.run.erasures).lines()

    def verdict(self) -> str:
        """Return the last line of a run for people."""
        run = self.run
        waiting = sum(each.decision == "wait" for each in run.plan.tasks)
        waits = f"; {waiting:,} wait" if waiting else ""
        if not run.results:
            return f"nothing was done in {run.plan.logs_checked:,} logs{waits}; run {run.run_id}"
        before = sum(each.bytes_before or 0 for each in run.results)
        after = sum(each.bytes_after or 0 for each in run.results)
        done = sum(each.outcome in ("done", "stopped") for each in run.results)
        failed = len(run.results) - done
        rest = f"; {failed:,} not done" if failed else ""
        return f"done: {done:,} tasks, {size_text(before)} -> {size_text(after)}{rest}{waits}; run {run.run_id}"

    def as_dict(self) -> dict[str, Any]:
        """Return the run for JSON: its plan, and the result of each task."""
        return PlanReport(self.run.plan, self.store_id).as_dict() | {
            "executed": True,
            "run_id": self.run.run_id,
            "results": [_result_as_dict(each) for each in self.run.results],
            "unremoved": {str(log): why for log, why in self.run.unremoved.items()},
            "forgotten": ForgetReport(self.run.erasures).as_dict(),
        }


def print_plan(plan: MaintenancePlan, *, with_kept: bool) -> None:
    """Print a row per task.

    Args:
        with_kept: also tasks that are not due.
    """
    tasks = [each for each in plan.tasks if with_kept or each.decision != "keep"]
    table = PeopleTable(_WIDE)
    table.folded("log", table.width // _LOG_SHARE)
    table.texts("task", "decision")
    table.numbers("reads", "frees", "takes")
    table.folded("why")
    shown = tasks if with_kept else tasks[:_MOST_ROWS]
    for each in shown:
        table.row(str(each.log), each.action, each.decision, *_figures(each), each.reason)
    table.print()
    if len(shown) < len(tasks):
        say(f"and {len(tasks) - len(shown):,} more: --all and --json show them")


def result_line(each: TaskResult) -> str:
    """Return the line of one task's result."""
    sizes = f": {size_text(each.bytes_before)} -> {size_text(each.bytes_after or 0)}" if each.bytes_before else ""
    records = f", {each.records_before:,} -> {each.records_after or 0:,} records" if each.records_before else ""
    segments = ", ".join(f"{count:,} in segment {base_offset}" for base_offset, count in sorted(each.erased.items()))
    erased = f", of forgotten keys {segments}" if segments else ""
    why = "" if each.outcome == "done" else f": {each.reason}"
    return f"{each.log} {each.action} {each.outcome}{sizes}{records}{erased}{why}"


def _figures(each: PlannedTask) -> tuple[str, str, str]:
    if each.decision in ("wait", "fail", "skip"):
        return "-", "-", "-"
    freed = "?" if each.freed_bytes is None else size_text(each.freed_bytes)
    return size_text(each.read_bytes), freed, duration_text(each.expected_ms)


def _task_as_dict(each: PlannedTask) -> dict[str, Any]:
    found: dict[str, Any] = {
        "topic": each.log.topic,
        "partition": each.log.partition,
        "action": each.action,
        "decision": each.decision,
        "reason": each.reason,
        "read_bytes": each.read_bytes,
        "freed_bytes": each.freed_bytes,
        "expected_ms": each.expected_ms,
    }
    found |= task_facts(each)
    plan = each.cleaning.plan if each.cleaning else None
    if plan is None:
        return found
    return found | {
        "clean_bytes": plan.clean_bytes,
        "cleanable_bytes": plan.cleanable_bytes,
        "dirty_ratio": round(plan.dirty_ratio, 6),
        "compaction_delay_ms": plan.compaction_delay_ms,
    }


def _result_as_dict(each: TaskResult) -> dict[str, Any]:
    return {
        "topic": each.log.topic,
        "partition": each.log.partition,
        "action": each.action,
        "outcome": each.outcome,
        "reason": each.reason,
        "first_dirty_offset": each.first_dirty_offset,
        "log_start_offset": each.log_start_offset,
        "bytes_before": each.bytes_before,
        "bytes_after": each.bytes_after,
        "records_before": each.records_before,
        "records_after": each.records_after,
        "erased": {str(base_offset): count for base_offset, count in sorted(each.erased.items())},
        "duration_ms": each.duration_ms,
    }
