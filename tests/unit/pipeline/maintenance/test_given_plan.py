"""A plan that is given is carried out exactly, or what changed in between is said."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from sparklog.pipeline.maintenance.given_plan import PLAN_VERSION, GivenPlan, compare_plans, parse_plan
from sparklog.pipeline.maintenance.plan import Bounds, MaintenancePlan, SurveyedLog, plan_maintenance
from sparklog.pipeline.maintenance.report import PlanReport
from sparklog.storage_core.errors import InvalidConfigError
from tests.build.maintained_logs import NOW_MS, surveyed

_STORE = "a-store"
_NO_BOUNDS = Bounds()


def _plan(logs: Sequence[SurveyedLog], bounds: Bounds = _NO_BOUNDS) -> MaintenancePlan:
    return plan_maintenance(logs, NOW_MS, bounds)


def _given(logs: Sequence[SurveyedLog], bounds: Bounds = _NO_BOUNDS, **values: Any) -> GivenPlan:
    return parse_plan(json.dumps(PlanReport(_plan(logs, bounds), _STORE).as_dict() | values).encode())


def _compared(given: Sequence[SurveyedLog], now: Sequence[SurveyedLog]) -> dict[str, tuple[str, str]]:
    """Return decision and reason of each task, by topic and action."""
    tasks = compare_plans(_given(given), _plan(now)).tasks
    return {f"{each.log.topic} {each.action}": (each.decision, each.reason) for each in tasks}


def test_plans_when_nothing_changed_then_all_is_done() -> None:
    """What was printed is what is carried out, deletions and cleanings."""
    logs = [surveyed("a", "dirty", cleanable_bytes=100), surveyed("b", deleted_bytes=50), surveyed("c", "not-dirty")]
    made = _plan(logs)

    assert compare_plans(_given(logs), made) == made


def test_plans_when_a_work_is_new_or_gone_then_neither_is_done() -> None:
    """What nobody has seen is not done; what is not due any more is said."""
    dirty, clean = surveyed("a", "dirty", cleanable_bytes=100), surveyed("a", "not-dirty")
    old = surveyed("b", deleted_bytes=50)

    found = _compared([dirty, old], [clean, surveyed("b"), surveyed("c", deleted_bytes=9)])
    assert found["a compact"] == ("skip", "is not due any more: it is not-dirty")
    assert found["b delete"] == ("skip", "is not due any more")
    assert found["c delete"][0] == "skip"
    assert found["c delete"][1].startswith("is due only now: 1 segments")


def test_plans_when_a_bound_put_a_work_off_then_it_is_not_done_without_the_bound() -> None:
    """Only what the given plan does is done."""
    logs = [surveyed("a", "dirty", cleanable_bytes=100), surveyed("b", "dirty", cleanable_bytes=90)]
    tasks = compare_plans(_given(logs, Bounds(max_bytes=100)), _plan(logs)).tasks

    assert [(each.log.topic, each.decision) for each in tasks] == [("a", "do"), ("b", "skip")]


def test_plans_when_a_work_is_another_then_what_was_and_what_is() -> None:
    """Range, reason, topic and segments make a task."""
    dirty = surveyed("a", "dirty", cleanable_bytes=100)
    cleaning = dirty.cleaning
    assert cleaning is not None
    assert cleaning.plan is not None
    grown = replace(dirty, cleaning=replace(cleaning, plan=replace(cleaning.plan, first_uncleanable_offset=80)))
    other = replace(dirty, cleaning=replace(cleaning, state=replace(cleaning.state, topic_id="new")))
    small, large = surveyed("b", deleted_bytes=50), surveyed("b", deleted_bytes=60)

    found = _compared([dirty, small], [grown, large])
    assert found["a compact"] == ("skip", "has changed: first_uncleanable_offset=80, was 50")
    assert found["b delete"][1].startswith("has changed: deleted_segments=1 segments of offsets 0..49, was 1 segments")
    assert _compared([dirty], [surveyed("a", "overdue", cleanable_bytes=100)])["a compact"] == (
        "skip",
        "has changed: because=overdue, was dirty",
    )
    assert "topic_id=new, was id-of-a" in _compared([dirty], [other])["a compact"][1]
    assert "forget_requests" in _compared([dirty], [replace(dirty, request_ids=("r1",))])["a compact"][1]


def test_plans_when_a_work_waits_or_fails_by_now_then_that_is_what_it_does() -> None:
    """The run has failures then, as without a given plan."""
    logs = [surveyed("a", "dirty", cleanable_bytes=100), surveyed("b", deleted_bytes=50)]
    found = _compared(logs, [replace(logs[0], leased_by="far"), surveyed("b", failure="gone")])

    assert found["a compact"] == ("wait", "another run has its lease: far")
    assert found["b delete"] == ("fail", "gone")


def test_plan_when_of_another_store_or_too_old_then_both_are_said() -> None:
    """A day is the most."""
    given = _given([surveyed("a", deleted_bytes=50)])

    assert given.problems(_STORE, NOW_MS + 24 * 3_600_000) == []
    first, second = given.problems("other", NOW_MS + 24 * 3_600_000 + 1)
    assert first == "plan: is of another store: store_id=a-store, this one is other"
    assert second.startswith("plan: is too old: 1 day, more than 1 day")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"\xff", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "is not what maintain --json prints"),
        (json.dumps({"plan_version": PLAN_VERSION + 1}).encode(), f"plan_version={PLAN_VERSION + 1}"),
        (json.dumps({"plan_version": PLAN_VERSION, "executed": True}).encode(), "was carried out already"),
        (json.dumps({"plan_version": PLAN_VERSION, "executed": False, "tasks": []}).encode(), "is damaged"),
    ],
)
def test_plan_when_it_is_none_then_refused(text: bytes, problem: str) -> None:
    """Whatever the file holds."""
    with pytest.raises(InvalidConfigError, match=problem):
        parse_plan(text)


def test_plan_when_a_work_has_no_log_then_refused() -> None:
    """Half a plan is none."""
    for task in (1, {}, {"topic": "a", "partition": "0", "action": "delete"}, {"topic": "a", "partition": 0}):
        with pytest.raises(InvalidConfigError, match="a task without"):
            _given([], tasks=[task])
