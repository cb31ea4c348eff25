"""Which part of a log is cleaned, and when: each rule by itself."""

from collections.abc import Sequence

import pytest

from sparklog.storage_core.cleaner.survey.cleanable import CleanableLog, CleaningPlan, by_urgency, plan_cleaning
from sparklog.storage_core.cleaner.survey.listed_segments import ListedSegment
from sparklog.storage_core.log_config import LogConfig

_NOW = 1_000_000
_COMPACT = LogConfig(cleanup_policy="compact")


def _log(
    sizes: Sequence[int] = (100, 100, 100, 50),
    *,
    checkpoint: int | None = None,
    start: int = 0,
    stable: int | None = None,
    ages: Sequence[int] | None = None,
) -> CleanableLog:
    """Return a log whose segments have ten offsets each; ages are of both timestamps, in ms."""
    bases = [10 * number for number in range(len(sizes))]
    end = 10 * len(sizes)
    segments = [
        ListedSegment(base_offset=base, next_offset=base + 10, size_bytes=size, modified_ms=0)
        for base, size in zip(bases, sizes, strict=True)
    ]
    times = [_NOW - age for age in ages or [0] * len(sizes)]
    return CleanableLog(
        segments=segments,
        log_start_offset=start,
        log_end_offset=end,
        checkpoint=checkpoint,
        last_stable_offset=lambda _: end if stable is None else stable,
        largest_timestamp_of=times.__getitem__,
        first_timestamp_of=times.__getitem__,
    )


def _offsets(plan: CleaningPlan) -> tuple[int, int]:
    return plan.first_dirty_offset, plan.first_uncleanable_offset


def test_plan_when_never_cleaned_then_all_but_the_active_segment() -> None:
    """Without a checkpoint a log is dirty from its start to its active segment."""
    plan = plan_cleaning(_log(), _COMPACT, _NOW)

    assert _offsets(plan) == (0, 30)
    assert (plan.clean_bytes, plan.cleanable_bytes, plan.dirty_ratio) == (0, 300, 1.0)
    assert plan.decision == "dirty"
    assert plan.reason == (
        "300 bytes of 300 bytes are dirty, 1.000, more than min.cleanable.dirty.ratio=0.5;"
        " offset 30 is the active segment's"
    )


@pytest.mark.parametrize(("ratio", "decision"), [(0.66, "dirty"), (2 / 3, "not-dirty"), (0.7, "not-dirty")])
def test_plan_when_the_ratio_is_compared_then_strictly(ratio: float, decision: str) -> None:
    """A log as dirty as the limit waits; the active segment's bytes do not count."""
    config = LogConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=ratio)
    plan = plan_cleaning(_log(checkpoint=10), config, _NOW)

    assert plan.dirty_ratio == 200 / 300
    assert plan.decision == decision


@pytest.mark.parametrize("checkpoint", [4, 41, 2**60])
def test_plan_when_the_checkpoint_lies_outside_then_the_log_start(checkpoint: int) -> None:
    """Below the log start, or behind the log's end, a checkpoint says nothing."""
    plan = plan_cleaning(_log(checkpoint=checkpoint, start=5), _COMPACT, _NOW)

    assert plan.is_checkpoint_invalid
    assert plan.first_dirty_offset == 5
    assert f"the checkpoint {checkpoint} lies outside the log" in plan.reason


def test_plan_when_the_checkpoint_is_at_an_end_of_the_log_then_valid() -> None:
    """The log start and the log's end are both inside."""
    for checkpoint in (0, 40):
        plan = plan_cleaning(_log(checkpoint=checkpoint), _COMPACT, _NOW)
        assert plan.first_dirty_offset == checkpoint
        assert not plan.is_checkpoint_invalid


def test_plan_when_the_dirty_part_begins_inside_a_segment_then_its_bytes_count_on_both_sides() -> None:
    """As a broker counts, a segment that was mapped in part is clean and cleanable."""
    plan = plan_cleaning(_log(checkpoint=15), _COMPACT, _NOW)

    assert (plan.clean_bytes, plan.cleanable_bytes) == (200, 200)


def test_plan_when_a_transaction_is_open_then_stops_at_its_segment() -> None:
    """Nothing at or behind the last stable offset is cleaned; the end moves down to a segment's base."""
    plan = plan_cleaning(_log(stable=25), _COMPACT, _NOW)

    assert _offsets(plan) == (0, 20)
    assert plan.cleanable_bytes == 200
    assert "a transaction is open since offset 25" in plan.reason


def test_plan_when_a_transaction_is_open_in_the_first_segment_then_nothing_is_cleanable() -> None:
    """A long transaction holds all cleaning back."""
    plan = plan_cleaning(_log(stable=5), _COMPACT, _NOW)

    assert plan.decision == "nothing-cleanable"
    assert not plan.is_due


def test_plan_when_not_due_then_transactions_are_not_looked_for() -> None:
    """What costs a scan is asked last."""

    def fail(_first_dirty: int) -> int:
        raise AssertionError

    log = _log(checkpoint=30)
    plan = plan_cleaning(
        CleanableLog(
            segments=log.segments,
            log_start_offset=0,
            log_end_offset=40,
            checkpoint=30,
            last_stable_offset=fail,
            largest_timestamp_of=log.largest_timestamp_of,
            first_timestamp_of=log.first_timestamp_of,
        ),
        _COMPACT,
        _NOW,
    )

    assert plan.decision == "nothing-cleanable"


@pytest.mark.parametrize(("lag", "end"), [(0, 30), (299, 30), (300, 30), (301, 20), (1000, 20), (1001, 0)])
def test_plan_when_records_are_young_then_their_segment_and_all_behind_it_wait(lag: int, end: int) -> None:
    """A segment's largest timestamp decides; as old as min.compaction.lag.ms is old enough."""
    config = LogConfig(cleanup_policy="compact", min_compaction_lag_ms=lag)
    plan = plan_cleaning(_log(ages=(1000, 1000, 300, 0)), config, _NOW)

    assert plan.first_uncleanable_offset == end


def test_plan_when_an_older_segment_lies_behind_a_young_one_then_it_waits_too() -> None:
    """The first young segment ends the cleanable part."""
    config = LogConfig(cleanup_policy="compact", min_compaction_lag_ms=500)
    plan = plan_cleaning(_log(ages=(1000, 0, 1000, 0)), config, _NOW)

    assert plan.first_uncleanable_offset == 10
    assert "younger than min.compaction.lag.ms, 500 ms" in plan.reason


@pytest.mark.parametrize(("lag", "delay"), [(999, 1), (1000, 0)])
def test_plan_when_dirty_for_too_long_then_overdue_whatever_the_ratio(lag: int, delay: int) -> None:
    """More than max.compaction.lag.ms since the first batch of any dirty segment makes a log due."""
    config = LogConfig(cleanup_policy="compact", max_compaction_lag_ms=lag, min_cleanable_dirty_ratio=1.0)
    plan = plan_cleaning(_log(ages=(5000, 500, 1000, 9000), checkpoint=10), config, _NOW)

    assert plan.compaction_delay_ms == delay
    assert plan.decision == ("overdue" if delay else "not-dirty")


def test_plan_when_batches_have_no_time_then_never_overdue() -> None:
    """Times of 0 and below say nothing of how long a segment has been dirty."""
    config = LogConfig(cleanup_policy="compact", max_compaction_lag_ms=1, min_cleanable_dirty_ratio=1.0)
    plan = plan_cleaning(_log(ages=(_NOW, _NOW + 1, _NOW, _NOW)), config, _NOW)

    assert plan.decision == "not-dirty"


def test_plan_when_not_compacted_then_left_alone() -> None:
    """The policy decides; both together are cleaned and retained."""
    assert plan_cleaning(_log(), LogConfig(), _NOW).decision == "not-compacted"
    assert plan_cleaning(_log(), LogConfig(cleanup_policy="compact,delete"), _NOW).decision == "dirty"


def test_plan_when_segments_are_empty_then_nothing_is_cleanable() -> None:
    """A log without bytes has no ratio."""
    plan = plan_cleaning(_log((0, 0)), _COMPACT, _NOW)

    assert (plan.decision, plan.dirty_ratio) == ("nothing-cleanable", 0.0)


def test_order_when_several_are_due_then_overdue_ones_first_and_then_the_dirtiest() -> None:
    """A run that ends early has done what could wait least."""
    late = LogConfig(cleanup_policy="compact", max_compaction_lag_ms=10)
    plans = {
        "half": plan_cleaning(_log(checkpoint=10), _COMPACT, _NOW),
        "full": plan_cleaning(_log(), _COMPACT, _NOW),
        "clean": plan_cleaning(_log(checkpoint=20), _COMPACT, _NOW),
        "late": plan_cleaning(_log(checkpoint=20, ages=(20, 20, 20, 20)), late, _NOW),
    }

    assert by_urgency(plans, plans.__getitem__) == ["late", "full", "half"]
