"""Cleaning plans against a plain model: Kafka's steps over lists of offsets."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from sparklog.storage_core.cleaner.survey.cleanable import CleanableLog, plan_cleaning
from sparklog.storage_core.cleaner.survey.grouping import group_segments_by_size
from sparklog.storage_core.cleaner.survey.listed_segments import ListedSegment
from sparklog.storage_core.log_config import LogConfig

_NOW = 100


@dataclass
class _Segment:
    base: int
    size: int
    first_time: int
    largest_time: int


@dataclass
class _Log:
    segments: list[_Segment]
    start: int
    end: int
    stable: int
    checkpoint: int | None

    def between(self, low: int, high: int) -> list[_Segment]:
        """Return the segments from the one that holds `low` on, that start below `high`."""
        if low == high:
            return []
        floor = max((each.base for each in self.segments if each.base <= low), default=-1)
        return [each for each in self.segments if floor <= each.base < high]

    def closed_from(self, offset: int) -> list[_Segment]:
        active = self.segments[-1].base
        return [] if offset > active else self.between(offset, active)

    def plan(self, config: LogConfig) -> tuple[int, int, int, int, bool]:
        dirty = self.start if self.checkpoint is None else self.checkpoint
        if not self.start <= dirty <= self.end:
            dirty = self.start
        limits = [self.stable, self.segments[-1].base]
        lag = config.min_compaction_lag_ms
        if lag > 0:
            limits += [each.base for each in self.closed_from(dirty) if each.largest_time > _NOW - lag][:1]
        limit = max(dirty, min(limits))
        closed = self.closed_from(limit)
        uncleanable = closed[0].base if closed else self.segments[-1].base
        clean = sum(each.size for each in self.segments if each.base < dirty)
        cleanable = sum(each.size for each in self.between(min(dirty, uncleanable), uncleanable))
        times = [each.first_time for each in self.closed_from(dirty) if each.first_time > 0]
        is_late = min(times, default=2**63) < _NOW - config.max_compaction_lag_ms
        is_due = (is_late and cleanable > 0) or (
            clean + cleanable > 0 and cleanable / (clean + cleanable) > config.min_cleanable_dirty_ratio
        )
        return dirty, uncleanable, clean, cleanable, is_due


@st.composite
def _logs(draw: st.DrawFn) -> _Log:
    base = draw(st.integers(0, 5))
    segments = []
    for _ in range(draw(st.integers(1, 6))):
        times = sorted(draw(st.tuples(st.integers(-1, _NOW), st.integers(-1, _NOW))))
        segments.append(_Segment(base, draw(st.integers(0, 9)), *times))
        base += draw(st.integers(1, 4))
    start = draw(st.integers(segments[0].base, segments[min(1, len(segments) - 1)].base))
    end = draw(st.integers(segments[-1].base, base))
    start = min(start, end)
    checkpoint = draw(st.none() | st.integers(0, end + 2))
    return _Log(segments, start, end, draw(st.integers(start, end)), checkpoint)


@given(_logs(), st.integers(0, 60), st.integers(60, 110), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_plan_when_compared_with_a_brokers_steps_then_the_same(
    log: _Log, min_lag_ms: int, max_lag_ms: int, ratio: float
) -> None:
    """The same offsets, bytes and decision as a broker's, for any log, checkpoint, transaction and settings."""
    config = LogConfig(
        cleanup_policy="compact",
        min_compaction_lag_ms=min_lag_ms,
        max_compaction_lag_ms=max(max_lag_ms, 1),
        min_cleanable_dirty_ratio=ratio,
    )
    ends = [*(each.base for each in log.segments[1:]), log.end]
    facts = CleanableLog(
        segments=[
            ListedSegment(base_offset=each.base, next_offset=after, size_bytes=each.size, modified_ms=0)
            for each, after in zip(log.segments, ends, strict=True)
        ],
        log_start_offset=log.start,
        log_end_offset=log.end,
        checkpoint=log.checkpoint,
        last_stable_offset=lambda _: log.stable,
        largest_timestamp_of=[each.largest_time for each in log.segments].__getitem__,
        first_timestamp_of=[each.first_time for each in log.segments].__getitem__,
    )
    plan = plan_cleaning(facts, config, _NOW)
    dirty, uncleanable, clean, cleanable, is_due = log.plan(config)

    assert plan.is_due == is_due
    assert plan.first_dirty_offset == dirty
    if is_due:
        assert (plan.first_uncleanable_offset, plan.clean_bytes, plan.cleanable_bytes) == (
            uncleanable,
            clean,
            cleanable,
        )


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40), st.integers(0, 40), st.integers(1, 2**30))))
def test_grouping_when_compared_with_a_brokers_loop_then_the_same(rows: list[tuple[int, int, int, int]]) -> None:
    """Each segment is in one group, in order, and the groups are a broker's."""
    segments, base = [], 0
    for size, index, time_index, count in rows:
        segments.append(
            ListedSegment(
                base_offset=base,
                next_offset=base + count,
                size_bytes=size,
                modified_ms=0,
                index_bytes=index,
                time_index_bytes=time_index,
            )
        )
        base += count
    config = LogConfig(segment_bytes=100, segment_index_bytes=60)
    left, expected = list(segments), []
    while left:
        group = [left.pop(0)]
        while (
            left
            and sum(each.size_bytes for each in [*group, left[0]]) <= 100
            and sum(each.index_bytes for each in [*group, left[0]]) <= 60
            and sum(each.time_index_bytes for each in [*group, left[0]]) <= 60
            and (
                left[0].size_bytes == 0
                or (left[1].base_offset if len(left) > 1 else base) - 1 - group[0].base_offset <= 2**31 - 1
            )
        ):
            group.append(left.pop(0))
        expected.append(group)

    assert group_segments_by_size(segments, config, base) == expected
