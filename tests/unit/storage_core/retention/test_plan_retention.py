"""Kafka's rules of retention, each with its edge."""

from collections.abc import Sequence

import pytest

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.quantity_text import duration_text
from sparklog.storage_core.retention.plan_retention import (
    LogFacts,
    RetentionPlan,
    SegmentFacts,
    plan_retention,
    without_roll,
)

_NOW = 1_000_000


def _log(
    segments: Sequence[tuple[int, int, int]], *, start: int = 0, end: int, high_watermark: int | None = None
) -> LogFacts:
    """Return a log of segments given as base offset, size and largest timestamp."""
    ends = [*(base for base, _, _ in segments[1:]), end][: len(segments)]
    return LogFacts(
        segments=[SegmentFacts(base, after, size) for (base, size, _), after in zip(segments, ends, strict=True)],
        log_start_offset=start,
        log_end_offset=end,
        high_watermark=end if high_watermark is None else high_watermark,
        timestamp_of=[timestamp for _, _, timestamp in segments].__getitem__,
    )


def _bases(plan: RetentionPlan) -> list[int]:
    return [each.base_offset for each in plan.deletions]


def _keep_all(**settings: object) -> LogConfig:
    return LogConfig(**{"retention_ms": -1, **settings})  # type: ignore[arg-type]


_FOUR = [(0, 237, 1), (3, 237, 2), (6, 237, 3), (9, 237, 4)]


@pytest.mark.parametrize(
    ("limit", "gone"), [(-1, 0), (0, 4), (236, 3), (237, 3), (238, 2), (300, 2), (474, 2), (948, 0), (949, 0)]
)
def test_size_when_the_log_is_larger_then_at_least_the_limit_is_left(limit: int, gone: int) -> None:
    """Four segments of 237 bytes and a limit of 300: two go, 474 bytes stay."""
    plan = plan_retention(_log(_FOUR, end=12), _keep_all(retention_bytes=limit), _NOW)

    assert _bases(plan) == [0, 3, 6, 9][:gone]
    assert {each.rule for each in plan.deletions} <= {"size"}
    assert plan.log_start_offset == [0, 3, 6, 9, 12][gone]
    assert plan.rolls == (gone == 4)


@pytest.mark.parametrize(("now", "gone"), [(1100, 0), (1104, 0), (1105, 2)])
def test_time_when_the_largest_timestamp_is_older_then_the_segment_goes(now: int, gone: int) -> None:
    """`retention.ms` of 100 and a last timestamp at +4: nothing goes at +100, both segments do at +105."""
    plan = plan_retention(_log([(0, 79, 1004), (1, 79, 1004)], end=2), LogConfig(retention_ms=100), now)

    assert len(plan.deletions) == gone
    assert plan.log_start_offset == gone
    assert plan.rolls == (gone == 2)


def test_time_when_age_equals_the_limit_then_the_segment_stays() -> None:
    """The comparison is strict."""
    log = _log([(0, 10, _NOW - 100), (5, 10, _NOW)], end=9)

    assert _bases(plan_retention(log, LogConfig(retention_ms=100), _NOW)) == []
    assert _bases(plan_retention(log, LogConfig(retention_ms=100), _NOW + 1)) == [0]


def test_time_when_a_timestamp_is_in_the_future_then_all_behind_it_stay() -> None:
    """Segments go from the oldest on, and the first that stays keeps the others."""
    log = _log([(0, 10, _NOW + 5000), (5, 10, 1), (8, 10, 1)], end=9)

    assert _bases(plan_retention(log, LogConfig(retention_ms=100), _NOW)) == []


def test_time_when_size_took_the_young_one_before_then_age_goes_on_behind_it() -> None:
    """Each rule starts where the one before it stopped."""
    log = _log([(0, 100, _NOW), (5, 10, 1), (8, 10, _NOW)], end=9)
    plan = plan_retention(log, LogConfig(retention_ms=100, retention_bytes=20), _NOW)

    assert [(each.base_offset, each.rule) for each in plan.deletions] == [(0, "size"), (5, "time")]


def test_time_when_a_segment_is_young_then_no_later_one_is_asked_for() -> None:
    """Reading an index costs; most logs have nothing to delete."""
    asked: list[int] = []

    def timestamp_of(number: int) -> int:
        asked.append(number)
        return _NOW

    segments = [SegmentFacts(0, 5, 10), SegmentFacts(5, 9, 10)]
    log = LogFacts(segments=segments, log_start_offset=0, log_end_offset=9, high_watermark=9, timestamp_of=timestamp_of)
    plan_retention(log, LogConfig(), _NOW)

    assert asked == [0]


@pytest.mark.parametrize(("limit", "gone"), [(-1, ["time"]), (15, ["size", "size"])])
def test_time_when_a_segment_is_damaged_then_it_stays_and_the_other_rules_go_on(limit: int, gone: list[str]) -> None:
    """Nobody knows how old its records are; how large it is, and where the log starts, is known."""

    def timestamp_of(number: int) -> int:
        if number:
            raise CorruptBatchError("wrong CRC", 7)
        return 1

    segments = [SegmentFacts(0, 5, 10), SegmentFacts(5, 7, 10), SegmentFacts(7, 9, 15)]
    log = LogFacts(segments=segments, log_start_offset=0, log_end_offset=9, high_watermark=9, timestamp_of=timestamp_of)
    plan = plan_retention(log, LogConfig(retention_ms=100, retention_bytes=limit), _NOW)

    assert [each.rule for each in plan.deletions] == gone
    assert plan.undecided == "wrong CRC position=7"


def test_start_offset_when_inside_a_segment_then_only_those_wholly_below_go() -> None:
    """A segment goes once the next one starts at or below the log start; the active one has no next."""
    segments = [(0, 10, _NOW), (5, 10, _NOW), (8, 10, _NOW)]

    assert _bases(plan_retention(_log(segments, start=4, end=9), LogConfig(), _NOW)) == []
    assert _bases(plan_retention(_log(segments, start=5, end=9), LogConfig(), _NOW)) == [0]
    at_end = plan_retention(_log(segments, start=9, end=9), LogConfig(), _NOW)
    assert (_bases(at_end), at_end.log_start_offset, at_end.rolls) == ([0, 5], 9, False)


def test_start_offset_when_the_policy_is_compact_then_it_is_the_only_rule() -> None:
    """A compacted log loses nothing to size and age; `compact,delete` has all three rules."""
    log = _log([(0, 10, 1), (5, 10, 1), (8, 10, 1)], start=5, end=9)
    settings = {"retention_bytes": 0, "retention_ms": 1}

    assert _bases(plan_retention(log, LogConfig(cleanup_policy="compact", **settings), _NOW)) == [0]  # type: ignore[arg-type]
    assert len(plan_retention(log, LogConfig(cleanup_policy="compact,delete", **settings), _NOW).deletions) == 3  # type: ignore[arg-type]


def test_rules_when_all_apply_then_start_offset_size_and_age_in_this_order() -> None:
    """The counts of the three add up, and each segment says which one took it."""
    log = _log([(0, 10, 1), (2, 10, 1), (4, 10, 1), (6, 10, _NOW)], start=3, end=9)
    plan = plan_retention(log, LogConfig(retention_bytes=20, retention_ms=100), _NOW)

    assert [each.rule for each in plan.deletions] == ["start-offset", "size", "time"]
    assert [each.reason for each in plan.deletions] == [
        "ends at offset 2, the log starts at 3",
        "the log has 30 bytes, 20 bytes without it, retention.bytes is 20 bytes",
        f"its latest record is {duration_text(_NOW - 1)} old (1970-01-01T00:00:00.001Z), retention.ms is 100 ms",
    ]
    assert plan.log_start_offset == 6


def test_active_segment_when_everything_is_due_then_rolled() -> None:
    """A log that is emptied keeps its end offset."""
    plan = plan_retention(_log([(0, 10, 1), (5, 10, 2)], end=9), LogConfig(retention_ms=1), _NOW)

    assert plan.rolls
    assert [each.is_active for each in plan.deletions] == [False, True]
    assert plan.log_start_offset == 9


def test_active_segment_when_it_is_empty_then_no_candidate() -> None:
    """An emptied log is not rolled again."""
    only = plan_retention(_log([(9, 0, 1)], start=9, end=9), LogConfig(retention_ms=1, retention_bytes=0), _NOW)
    last = plan_retention(_log([(0, 10, 1), (9, 0, 1)], end=9), LogConfig(retention_ms=1, retention_bytes=0), _NOW)

    assert only.deletions == ()
    assert (_bases(last), last.rolls, last.log_start_offset) == ([0], False, 9)


def test_active_segment_when_a_sink_keeps_it_then_held_back() -> None:
    """Closed segments go all the same."""
    plan = plan_retention(_log([(0, 10, 1), (5, 10, 2)], end=9), LogConfig(retention_ms=1), _NOW)
    left = without_roll(plan, 0)

    assert (_bases(left), left.log_start_offset, left.rolls) == ([0], 5, False)
    assert left.held_back == plan.deletions[1]
    assert without_roll(left, 0) is left


@pytest.mark.parametrize(("high_watermark", "gone"), [(4, []), (5, [0]), (8, [0, 5]), (9, [0, 5, 8])])
def test_high_watermark_when_below_a_segments_end_then_the_segment_stays(high_watermark: int, gone: list[int]) -> None:
    """What is not replicated yet is not deleted."""
    log = _log([(0, 10, 1), (5, 10, 1), (8, 10, 1)], end=9, high_watermark=high_watermark)

    assert _bases(plan_retention(log, LogConfig(retention_ms=1), _NOW)) == gone


def test_log_when_it_has_no_segment_then_nothing_to_do() -> None:
    """A log whose offsets are preserved has no segment before its first record."""
    assert plan_retention(_log([], end=0), LogConfig(), _NOW).deletions == ()
