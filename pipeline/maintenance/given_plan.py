"""A given plan: `maintain --execute --plan` does only tasks of a plan that was printed as JSON and reviewed.

The run makes a new plan, and does the tasks that both plans have: same log, topic id, reason, offsets and requests to
forget keys. Every other task of either plan is skipped, with a reason.

| task in the given plan | in the new plan        | result                                          |
|------------------------|------------------------|-------------------------------------------------|
| do                     | do, same facts         | done                                            |
| do                     | do, other facts        | skip: has changed, with old and new facts       |
| do                     | absent, or keep        | skip: is not due any more                       |
| do                     | defer, wait, fail      | as in the new plan                              |
| absent, or other       | do                     | skip: is due only now                           |
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, get_args

from sparklog.pipeline.maintenance.plan import Action, MaintenancePlan, PlannedTask
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.quantity_text import duration_text
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["PLAN_VERSION", "GivenPlan", "GivenTask", "compare_plans", "parse_plan", "read_plan", "task_facts"]

PLAN_VERSION: Final = 2
"""Of a plan's JSON. Version 1 called the tasks `works`."""

_OLDEST_MS: Final = 24 * 3_600_000

_Key = tuple[TopicPartition, Action]


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenTask:
    """A task of a given plan.

    Attributes:
        facts: those of `task_facts`.
    """

    decision: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenPlan:
    """A plan that was printed earlier.

    Attributes:
        store_id: of its store.
        made_ms: time of the plan.
        tasks: by log and action.
    """

    store_id: str
    made_ms: int
    tasks: Mapping[_Key, GivenTask]

    def problems(self, store_id: str, now_ms: int) -> list[str]:
        """Return the reasons to refuse the plan.

        Args:
            store_id: of the store of the run.
        """
        found = []
        if self.store_id != store_id:
            found.append(f"plan: is of another store: store_id={self.store_id}, this one is {store_id}")
        if (age_ms := now_ms - self.made_ms) > _OLDEST_MS:
            found.append(
                f"plan: is too old: {duration_text(age_ms)}, more than {duration_text(_OLDEST_MS)}; make it anew"
            )
        return found


def task_facts(task: PlannedTask) -> dict[str, Any]:
    """Return the facts, for JSON, that are equal in both plans if a task is the same."""
    if task.retention is not None and task.retention.plan is not None:
        plan = task.retention.plan
        return {
            "topic_id": task.retention.state.topic_id,
            "because": ", ".join(dict.fromkeys(each.rule for each in plan.deletions)),
            "log_start_offset": plan.log_start_offset,
            "deleted_segments": [[each.base_offset, each.next_offset, each.size_bytes] for each in plan.deletions],
        }
    if task.cleaning is not None and task.cleaning.plan is not None:
        return {
            "topic_id": task.cleaning.state.topic_id,
            "because": task.cleaning.plan.decision,
            "first_dirty_offset": task.cleaning.plan.first_dirty_offset,
            "first_uncleanable_offset": task.cleaning.plan.first_uncleanable_offset,
            "forget_requests": list(task.request_ids),
        }
    return {}


def read_plan(path: Path) -> GivenPlan:
    """Return the plan in a file, as `parse_plan` does.

    Raises:
        InvalidConfigError: the file can't be read, or holds no plan.
    """
    try:
        return parse_plan(path.read_bytes())
    except OSError as error:
        raise InvalidConfigError(f"plan: can't be read: file={path}: {error.strerror}") from error


def parse_plan(data: bytes) -> GivenPlan:
    """Return the plan that `maintain --json` printed.

    Args:
        data: any bytes.

    Raises:
        InvalidConfigError: the bytes are no such plan.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidConfigError(f"plan: is not JSON: {error}") from error
    if not isinstance(found, dict) or "plan_version" not in found:
        raise InvalidConfigError("plan: is not what maintain --json prints")
    if found["plan_version"] != PLAN_VERSION:
        raise InvalidConfigError(f"plan: has plan_version={found['plan_version']}, this release knows {PLAN_VERSION}")
    if found.get("executed") is not False:
        raise InvalidConfigError("plan: was carried out already; make it anew")
    store_id, made_ms, tasks = found.get("store_id"), found.get("made_ms"), found.get("tasks")
    if not isinstance(store_id, str) or type(made_ms) is not int or not isinstance(tasks, list):
        raise InvalidConfigError("plan: is damaged: store_id, made_ms and tasks are not all there")
    return GivenPlan(store_id=store_id, made_ms=made_ms, tasks=dict(map(_parse_task, tasks)))


def compare_plans(given: GivenPlan, made: MaintenancePlan) -> MaintenancePlan:
    """Return the new plan; tasks that differ from the given plan are skipped."""
    known = {(each.log, each.action) for each in made.tasks}
    tasks = [_compared(given.tasks.get((each.log, each.action)), each) for each in made.tasks]
    tasks += [
        PlannedTask(log=log, action=action, decision="skip", reason="is not due any more")
        for (log, action), each in given.tasks.items()
        if each.decision == "do" and (log, action) not in known
    ]
    tasks.sort(key=lambda each: each.decision != "do")
    return replace(made, tasks=tuple(tasks))


def _compared(given: GivenTask | None, task: PlannedTask) -> PlannedTask:
    was_due = given is not None and given.decision == "do"
    if task.decision == "keep" and was_due:
        return replace(task, decision="skip", reason=f"is not due any more: {task.reason}")
    if task.decision != "do":
        return task
    if given is None or not was_due:
        return replace(task, decision="skip", reason=f"is due only now: {task.reason}")
    facts = task_facts(task)
    changes = [f"{name}={_text(facts[name])}, was {_text(given.facts.get(name))}" for name in _changed(given, facts)]
    return replace(task, decision="skip", reason=f"has changed: {'; '.join(changes)}") if changes else task


def _changed(given: GivenTask, facts: Mapping[str, Any]) -> list[str]:
    return [name for name, value in facts.items() if given.facts.get(name) != value]


def _text(value: Any) -> str:
    """Return a fact for people: the number and offsets of segments; any other value as JSON."""
    try:
        return f"{len(value)} segments of offsets {value[0][0]}..{value[-1][1] - 1}"
    except (TypeError, LookupError):
        return value if isinstance(value, str) else json.dumps(value)


def _parse_task(found: Any) -> tuple[_Key, GivenTask]:
    fields = found if isinstance(found, dict) else {}
    topic, partition = fields.get("topic"), fields.get("partition")
    actions = [each for each in get_args(Action) if each == fields.get("action")]
    if not isinstance(topic, str) or type(partition) is not int or not actions:
        raise InvalidConfigError("plan: is damaged: a task without topic, partition or action")
    return (TopicPartition(topic, partition), actions[0]), GivenTask(decision=str(fields.get("decision")), facts=fields)
