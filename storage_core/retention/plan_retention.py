"""Which segments of a log may go, and why: by log start offset, then by size, then by age. Decides, touches nothing.

Each rule looks at the segments from the oldest on and stops at the first one that stays; the next rule goes on there.

| rule         | a segment may go if                                                                         |
|--------------|---------------------------------------------------------------------------------------------|
| start-offset | the segment behind it starts at or below the log start offset                               |
| size         | the log keeps at least `retention.bytes` without it                                         |
| time         | its largest timestamp is more than `retention.ms` ago, by the file's time where it has none; |
|              | one that is damaged has an age that nobody knows, and stays                                 |

None of them takes a segment that reaches above the high watermark, nor an empty last one. If all go, the active segment
is rolled first: an empty one at the log's end keeps that end. A log without `delete` among its policies has the first
rule alone.

Source: Kafka UnifiedLog.deleteOldSegments; KIP-405 for the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.quantity_text import duration_text, iso_time, size_text

__all__ = [
    "LogFacts",
    "RetentionPlan",
    "SegmentDeletion",
    "SegmentFacts",
    "after_roll",
    "plan_record_deletion",
    "plan_retention",
    "without_roll",
]

Rule = Literal["start-offset", "size", "time"]


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """What retention knows of one segment.

    Attributes:
        next_offset: where the next segment starts, or the log ends.
        size_bytes: of its `.log`.
    """

    base_offset: int
    next_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What retention knows of one log.

    Attributes:
        segments: in order; the last one is active.
        timestamp_of: the largest timestamp of the segment with a number, or the time its file was changed if no record
            has one. Asked for the oldest first, and only as far as age decides. It may say less where that is young
            enough already. A segment that is damaged raises `CorruptBatchError`.
    """

    segments: Sequence[SegmentFacts]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    timestamp_of: Callable[[int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDeletion:
    """A segment that may go.

    Attributes:
        next_offset: where the next segment starts, or the log ends.
        reason: in words and numbers.
        is_active: whether it has to be rolled first.
        largest_timestamp_ms: of its records, where that is the reason.
    """

    base_offset: int
    next_offset: int
    size_bytes: int
    rule: Rule
    reason: str
    is_active: bool = False
    largest_timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """What retention does to one log.

    Attributes:
        deletions: oldest first.
        log_start_offset: once they are gone.
        held_back: the active segment, due, but not to be rolled by who carries the plan out.
        undecided: the damage that keeps a segment, and all behind it, from the third rule.
    """

    deletions: tuple[SegmentDeletion, ...]
    log_start_offset: int
    held_back: SegmentDeletion | None = None
    undecided: str | None = None

    @property
    def rolls(self) -> bool:
        """Whether the active segment goes, and an empty one takes its place."""
        return bool(self.deletions) and self.deletions[-1].is_active


def plan_retention(log: LogFacts, config: LogConfig, now_ms: int) -> RetentionPlan:
    """Return which segments may go.

    Args:
        log: to look at.
        config: of its topic.
        now_ms: to measure age by.
    """
    found, undecided = list(_below_start(log)), None
    if "delete" in config.cleanup_policies:
        found += _above_size(log, config.retention_bytes, len(found))
        try:
            for each in _too_old(log, config.retention_ms, now_ms, len(found)):
                found.append(each)  # one by one: those in front of damage are too old all the same
        except CorruptBatchError as error:
            undecided = str(error)
    if found and len(found) == len(log.segments):
        found[-1] = replace(found[-1], is_active=True)
    start = max(log.log_start_offset, found[-1].next_offset) if found else log.log_start_offset
    return RetentionPlan(deletions=tuple(found), log_start_offset=start, undecided=undecided)


def plan_record_deletion(log: LogFacts, offset: int) -> RetentionPlan:
    """Return what goes once a log starts at an offset, or later where it does already: segments wholly below it."""
    start = max(offset, log.log_start_offset)
    return RetentionPlan(deletions=tuple(_below_start(replace(log, log_start_offset=start))), log_start_offset=start)


def after_roll(plan: RetentionPlan) -> RetentionPlan:
    """Return what is left of a plan once an empty segment stands behind the active one."""
    return replace(plan, deletions=tuple(replace(each, is_active=False) for each in plan.deletions))


def without_roll(plan: RetentionPlan, log_start_offset: int) -> RetentionPlan:
    """Return what is left of a plan where a running sink keeps the active segment.

    Args:
        plan: of a log.
        log_start_offset: of the log, as it is.
    """
    if not plan.rolls:
        return plan
    active = plan.deletions[-1]
    start = max(log_start_offset, active.base_offset)
    return replace(plan, deletions=plan.deletions[:-1], log_start_offset=start, held_back=active)


def _below_start(log: LogFacts) -> Iterator[SegmentDeletion]:
    start = log.log_start_offset
    for number, segment in _candidates(log, 0):
        if number == len(log.segments) - 1 or segment.next_offset > start:
            return
        yield _deletion(segment, "start-offset", f"ends at offset {segment.next_offset}, the log starts at {start}")


def _above_size(log: LogFacts, limit: int, first: int) -> Iterator[SegmentDeletion]:
    size = sum(each.size_bytes for each in log.segments[first:])
    if limit < 0 or size < limit:
        return
    for _, segment in _candidates(log, first):
        left = size - segment.size_bytes
        if left < limit:
            return
        yield _deletion(segment, "size", _size_reason(size, left, limit))
        size = left


def _too_old(log: LogFacts, limit: int, now_ms: int, first: int) -> Iterator[SegmentDeletion]:
    if limit < 0:
        return
    for number, segment in _candidates(log, first):
        timestamp = log.timestamp_of(number)
        age = now_ms - timestamp
        if age <= limit:
            return
        age_text = f"its latest record is {duration_text(age)} old ({iso_time(timestamp)})"
        deletion = _deletion(segment, "time", f"{age_text}, retention.ms is {duration_text(limit)}")
        yield replace(deletion, largest_timestamp_ms=timestamp)


def _size_reason(size: int, left: int, limit: int) -> str:
    return f"the log has {size_text(size)}, {size_text(left)} without it, retention.bytes is {size_text(limit)}"


def _candidates(log: LogFacts, first: int) -> Iterator[tuple[int, SegmentFacts]]:
    """Yield the segments that a rule may look at, up to the first one that no rule may take."""
    last = len(log.segments) - 1
    for number in range(first, len(log.segments)):
        segment = log.segments[number]
        if log.high_watermark < segment.next_offset or (number == last and segment.size_bytes == 0):
            return
        yield number, segment


def _deletion(segment: SegmentFacts, rule: Rule, reason: str) -> SegmentDeletion:
    return SegmentDeletion(
        base_offset=segment.base_offset,
        next_offset=segment.next_offset,
        size_bytes=segment.size_bytes,
        rule=rule,
        reason=reason,
    )
