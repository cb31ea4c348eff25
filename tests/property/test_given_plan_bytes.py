"""A plan that is given comes from a file: any bytes are a plan or refused, and any plan can be compared."""

import contextlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sparklog.pipeline.maintenance.given_plan import PLAN_VERSION, compare_plans, parse_plan
from sparklog.pipeline.maintenance.plan import plan_maintenance
from sparklog.storage_core.errors import InvalidConfigError
from tests.build.maintained_logs import NOW_MS, surveyed

_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_TASK = st.fixed_dictionaries(
    {"topic": st.just("a") | _ANY, "partition": st.just(0) | _ANY, "action": st.sampled_from(["delete", "compact"])},
    optional=dict.fromkeys(("decision", "topic_id", "because", "first_dirty_offset", "deleted_segments"), _ANY),
)
_PLAN = st.fixed_dictionaries(
    {"tasks": st.lists(_TASK | _ANY, max_size=3)},
    optional=dict.fromkeys(("plan_version", "executed", "store_id", "made_ms"), _ANY),
)


@given(st.binary(max_size=60) | _ANY.map(lambda value: json.dumps(value).encode()))
def test_plan_when_it_is_any_bytes_then_a_plan_or_refused(data: bytes) -> None:
    """Nothing but the error that says so."""
    with contextlib.suppress(InvalidConfigError):
        parse_plan(data)


@given(_PLAN)
def test_plans_when_the_given_one_has_any_values_then_they_are_compared(found: dict[str, Any]) -> None:
    """What is done is never more than what is due."""
    whole = {"plan_version": PLAN_VERSION, "executed": False, "store_id": "s", "made_ms": 1}
    made = plan_maintenance([surveyed("a", "dirty", cleanable_bytes=9, deleted_bytes=5)], NOW_MS)
    try:
        plan = parse_plan(json.dumps(whole | found).encode())
    except InvalidConfigError:
        return
    assert {id(each) for each in compare_plans(plan, made).due} <= {id(each) for each in made.due}
