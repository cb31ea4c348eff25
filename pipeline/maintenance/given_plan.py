"""A plan that was printed as JSON and is given back to be carried out: exactly that, or what changed in between.

The plan is made anew, and of its works those are done that the given one has as well: the same work on the same log of
the same topic, for the same reason, of the same offsets, with the same requests to forget keys. Nothing is done that
nobody has seen: each other work, of either plan, stays undone and says why.

| the given plan        | the one made now      | then                                            |
|-----------------------|-----------------------|-------------------------------------------------|
| does it               | does the same         | it is done                                      |
| does it               | does it otherwise     | skip: what was, what is                         |
| does it               | has it not, or keeps it | skip: it is not due any more                  |
| does it               | defers, waits, fails  | as it is now                                    |
| has it not, or not so | does it               | skip: newly due                                 |
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, get_args

from sparklog.pipeline.maintenance.plan import Action, MaintenancePlan, PlannedWork
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.quantity_text import duration_text
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["PLAN_VERSION", "GivenPlan", "GivenWork", "compare_plans", "parse_plan", "read_plan", "work_facts"]

PLAN_VERSION: Final = 1
"""Of the JSON that a plan is printed as."""

_OLDEST_MS: Final = 24 * 3_600_000

_Key = tuple[TopicPartition, Action]


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenWork:
    """A work of a given plan.

    Attributes:
        facts: as `work_facts` gave them.
    """

    decision: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenPlan:
    """A plan that was made before.

    Attributes:
        store_id: of the store that it is of.
        made_ms: when.
        works: by log and action.
    """

    store_id: str
    made_ms: int
    works: Mapping[_Key, GivenWork]

    def problems(self, store_id: str, now_ms: int) -> list[str]:
        """Return why it can't be carried out.

        Args:
            store_id: of the store that it is to be carried out on.
            now_ms: the time.
        """
        found = []
        if self.store_id != store_id:
            found.append(f"plan: is of another store: store_id={self.store_id}, this one is {store_id}")
        if (age_ms := now_ms - self.made_ms) > _OLDEST_MS:
            found.append(
                f"plan: is too old: {duration_text(age_ms)}, more than {duration_text(_OLDEST_MS)}; make it anew"
            )
        return found


def work_facts(work: PlannedWork) -> dict[str, Any]:
    """Return what makes two works the same, for JSON."""
    if work.retention is not None and work.retention.plan is not None:
        plan = work.retention.plan
        return {
            "topic_id": work.retention.state.topic_id,
            "because": ", ".join(dict.fromkeys(each.rule for each in plan.deletions)),
            "log_start_offset": plan.log_start_offset,
            "deleted_segments": [[each.base_offset, each.next_offset, each.size_bytes] for each in plan.deletions],
        }
    if work.cleaning is not None and work.cleaning.plan is not None:
        return {
            "topic_id": work.cleaning.state.topic_id,
            "because": work.cleaning.plan.decision,
            "first_dirty_offset": work.cleaning.plan.first_dirty_offset,
            "first_uncleanable_offset": work.cleaning.plan.first_uncleanable_offset,
            "forget_requests": list(work.request_ids),
        }
    return {}


def read_plan(path: Path) -> GivenPlan:
    """Return the plan in a file, as `parse_plan` does.

    Raises:
        InvalidConfigError: it can't be read, or holds no plan.
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
        InvalidConfigError: they are no such plan.
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
    store_id, made_ms, works = found.get("store_id"), found.get("made_ms"), found.get("works")
    if not isinstance(store_id, str) or type(made_ms) is not int or not isinstance(works, list):
        raise InvalidConfigError("plan: is damaged: store_id, made_ms and works are not all there")
    return GivenPlan(store_id=store_id, made_ms=made_ms, works=dict(map(_parse_work, works)))


def compare_plans(given: GivenPlan, made: MaintenancePlan) -> MaintenancePlan:
    """Return the plan that was made, without what the given one does not have so.

    Args:
        given: what is to be done.
        made: what would be done now.
    """
    known = {(each.log, each.action) for each in made.works}
    works = [_compared(given.works.get((each.log, each.action)), each) for each in made.works]
    works += [
        PlannedWork(log=log, action=action, decision="skip", reason="is not due any more")
        for (log, action), each in given.works.items()
        if each.decision == "do" and (log, action) not in known
    ]
    works.sort(key=lambda each: each.decision != "do")
    return replace(made, works=tuple(works))


def _compared(given: GivenWork | None, work: PlannedWork) -> PlannedWork:
    was_due = given is not None and given.decision == "do"
    if work.decision == "keep" and was_due:
        return replace(work, decision="skip", reason=f"is not due any more: {work.reason}")
    if work.decision != "do":
        return work
    if given is None or not was_due:
        return replace(work, decision="skip", reason=f"is due only now: {work.reason}")
    facts = work_facts(work)
    changes = [f"{name}={_said(facts[name])}, was {_said(given.facts.get(name))}" for name in _changed(given, facts)]
    return replace(work, decision="skip", reason=f"has changed: {'; '.join(changes)}") if changes else work


def _changed(given: GivenWork, facts: Mapping[str, Any]) -> list[str]:
    return [name for name, value in facts.items() if given.facts.get(name) != value]


def _said(value: Any) -> str:
    """Return a fact in words: of segments how many, and which offsets; of anything else its JSON."""
    try:
        return f"{len(value)} segments of offsets {value[0][0]}..{value[-1][1] - 1}"
    except (TypeError, LookupError):
        return value if isinstance(value, str) else json.dumps(value)


def _parse_work(found: Any) -> tuple[_Key, GivenWork]:
    fields = found if isinstance(found, dict) else {}
    topic, partition = fields.get("topic"), fields.get("partition")
    actions = [each for each in get_args(Action) if each == fields.get("action")]
    if not isinstance(topic, str) or type(partition) is not int or not actions:
        raise InvalidConfigError("plan: is damaged: a work without topic, partition or action")
    return (TopicPartition(topic, partition), actions[0]), GivenWork(decision=str(fields.get("decision")), facts=fields)
