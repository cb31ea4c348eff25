"""When an append rolls, one rule at a time; the plan as a whole is compared with a model in tests/property."""

from typing import Any

import numpy as np
import pytest

from sparklog.storage_core.errors import InvalidRecordError
from sparklog.storage_core.log.append.roll import (
    APPEND_STATE,
    ROLL_LIMITS,
    AppendPlan,
    BackwardOffsetError,
    BatchColumns,
    plan_appends,
)

_NO_LIMIT = 1 << 40


def _plan(
    *batches: tuple[int, int, int],
    state: dict[str, int] | None = None,
    limits: dict[str, int] | None = None,
    preserved: list[int] | None = None,
    now_ms: int = 0,
) -> AppendPlan:
    """Plan batches of (size, records, max timestamp) for one log."""
    columns = np.array(batches, np.int64).reshape(-1, 3)
    row, limit = np.zeros(1, APPEND_STATE), np.zeros(1, ROLL_LIMITS)
    fresh = {"first_timestamp": -1, "max_timestamp": -1, "last_entry_timestamp": -1}
    for name, value in {**fresh, **(state or {})}.items():
        row[name] = value
    for name in ROLL_LIMITS.names or ():
        limit[name] = {"max_jitter_ms": 0, **(limits or {})}.get(name, _NO_LIMIT)
    log = np.zeros(len(columns), np.int64)
    offsets = np.array(preserved or [-1] * len(columns), np.int64)
    batch_columns = BatchColumns(log, columns[:, 0].copy(), columns[:, 1] - 1, columns[:, 2].copy(), offsets)
    return plan_appends(row, limit, batch_columns, now_ms, 1)


def test_plan_appends_when_a_batch_just_fits_then_does_not_roll() -> None:
    """A segment may be exactly as large as `segment.bytes`."""
    plan = _plan((60, 1, 5), (40, 1, 5), (1, 1, 5), limits={"segment_bytes": 100})

    assert plan.segment_base.tolist() == [0, 0, 2]
    assert plan.position.tolist() == [0, 60, 0]
    assert plan.rolls == 1


def test_plan_appends_when_the_first_batch_is_larger_than_a_segment_then_it_gets_one_alone() -> None:
    """An empty segment never rolls for its size."""
    assert _plan((500, 1, 5), (1, 1, 5), limits={"segment_bytes": 100}).segment_base.tolist() == [0, 1]


def test_plan_appends_when_record_time_has_passed_then_rolls_with_the_final_time_entry() -> None:
    """Time is that of the records, from the largest timestamp of the first batch; jitter makes it shorter."""
    batches = [(10, 1, 1000), (10, 1, 1090), (10, 1, 1091), (10, 1, 2000)]

    plan = _plan(*batches, state={"jitter_ms": 10}, limits={"segment_ms": 100})

    assert plan.segment_base.tolist() == [0, 0, 2, 3]
    assert plan.time_entries.tolist() == [[0, 0, 1090, 1], [0, 2, 1091, 0]]


def test_plan_appends_when_the_first_batch_has_no_timestamp_then_the_clock_counts() -> None:
    """Kafka then waits from the segment's creation."""
    state = {"segment_size": 10, "next_offset": 1, "created_ms": 1000}

    assert _plan((10, 1, -1), state=state, limits={"segment_ms": 100}, now_ms=1100).rolls == 0
    assert _plan((10, 1, -1), state=state, limits={"segment_ms": 100}, now_ms=1101).rolls == 1


@pytest.mark.parametrize(("kind", "most"), [("max_offset_entries", 2), ("max_time_entries", 3)])
def test_plan_appends_when_an_index_is_full_then_rolls(kind: str, most: int) -> None:
    """One slot of the time index is kept for the final entry."""
    batches = [(10, 1, number) for number in range(6)]

    plan = _plan(*batches, limits={"index_interval_bytes": 0, kind: most})

    assert plan.segment_base.tolist() == [0, 0, 0, 3, 3, 3]
    per_segment = [int((plan.time_entries[:, 1] == base).sum()) for base in (0, 3)]
    assert per_segment == [2, 2]


def test_plan_appends_when_there_is_no_segment_yet_then_starts_one_at_the_first_offset() -> None:
    """A log of preserved offsets begins where its records do, and that is no roll."""
    plan = _plan((10, 2, 5), (10, 1, 5), state={"segment_base": -1}, preserved=[42, 50])

    assert plan.base_offset.tolist() == [42, 50]
    assert plan.segment_base.tolist() == [42, 42]
    assert (plan.rolls, int(plan.state["next_offset"][0])) == (0, 51)


@pytest.mark.parametrize(("offsets", "batch"), [([5, 4], 1), ([5, 6], 1), ([3, 9], 0)])
def test_plan_appends_when_a_preserved_offset_goes_back_then_names_the_batch(offsets: list[int], batch: int) -> None:
    """Also one inside the range of the batch before, and one below what is committed."""
    with pytest.raises(BackwardOffsetError) as error:
        _plan((10, 2, 5), (10, 2, 5), state={"next_offset": 4}, preserved=offsets)

    assert error.value.batch == batch
    assert isinstance(error.value, InvalidRecordError)


def test_plan_appends_when_nothing_is_appended_then_changes_nothing() -> None:
    """The state given is never written to."""
    given: dict[str, Any] = {"next_offset": 7, "segment_size": 3}

    plan = _plan(state=given)

    assert (plan.rolls, len(plan.base_offset), len(plan.offset_entries), len(plan.time_entries)) == (0, 0, 0, 0)
    assert {name: int(plan.state[name][0]) for name in given} == given
