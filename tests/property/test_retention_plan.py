"""Retention plans against a plain model: Kafka's three passes over a list that shrinks."""

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.retention.plan_retention import LogFacts, SegmentFacts, plan_retention

_NOW = 1000


@dataclass
class _Segment:
    base: int
    size: int
    timestamp: int


@dataclass
class _Log:
    """A log as a broker holds it; its segments are taken off one by one."""

    segments: list[_Segment]
    start: int
    end: int
    high_watermark: int
    rolled: bool = False

    def delete(self, may_go: Callable[[_Segment, _Segment | None], bool]) -> list[int]:
        gone: list[_Segment] = []
        for number, segment in enumerate(self.segments):
            following = self.segments[number + 1] if number + 1 < len(self.segments) else None
            upper_bound = following.base if following else self.end
            if self.high_watermark < upper_bound or not may_go(segment, following):
                break
            if following is None and segment.size == 0:
                break
            gone.append(segment)
        if gone and len(gone) == len(self.segments):
            self.segments.append(_Segment(self.end, 0, _NOW))
            self.rolled = True
        self.segments = self.segments[len(gone) :]
        if gone:
            self.start = max(self.start, self.segments[0].base)
        return [segment.base for segment in gone]

    def retain(self, config: LogConfig) -> list[int]:
        gone = self.delete(lambda _, following: following is not None and following.base <= self.start)
        if "delete" not in config.cleanup_policies:
            return gone
        size = sum(each.size for each in self.segments)
        if 0 <= config.retention_bytes <= size:
            surplus = size - config.retention_bytes

            def is_above(segment: _Segment, _following: _Segment | None) -> bool:
                nonlocal surplus
                if surplus - segment.size < 0:
                    return False
                surplus -= segment.size
                return True

            gone += self.delete(is_above)
        if config.retention_ms >= 0:
            gone += self.delete(lambda segment, _: _NOW - segment.timestamp > config.retention_ms)
        return gone


@st.composite
def _logs(draw: st.DrawFn) -> _Log:
    count = draw(st.integers(1, 6))
    base, segments = draw(st.integers(0, 5)), []
    for number in range(count):
        size = draw(st.integers(0 if number == count - 1 else 1, 9))
        segments.append(_Segment(base, size, draw(st.integers(_NOW - 30, _NOW + 5))))
        base += draw(st.integers(1, 4)) if size else 0
    first = segments[0].base
    start = draw(st.integers(first, base))
    return _Log(segments, start, base, draw(st.integers(start, base)))


@given(
    _logs(),
    st.integers(-1, 40),
    st.integers(-1, 30),
    st.sampled_from(["delete", "compact", "compact,delete"]),
)
def test_plan_when_compared_with_a_brokers_passes_then_the_same(
    log: _Log, retention_bytes: int, retention_ms: int, policy: str
) -> None:
    """The same segments go in the same order, the log starts at the same offset, and is rolled where a broker does."""
    ends = [*(each.base for each in log.segments[1:]), log.end]
    facts = LogFacts(
        segments=[SegmentFacts(each.base, after, each.size) for each, after in zip(log.segments, ends, strict=True)],
        log_start_offset=log.start,
        log_end_offset=log.end,
        high_watermark=log.high_watermark,
        timestamp_of=[each.timestamp for each in log.segments].__getitem__,
    )
    config = LogConfig(retention_bytes=retention_bytes, retention_ms=retention_ms, cleanup_policy=policy)
    plan = plan_retention(facts, config, _NOW)

    assert [each.base_offset for each in plan.deletions] == log.retain(config)
    assert plan.log_start_offset == log.start
    assert plan.rolls == log.rolled
