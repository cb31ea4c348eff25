"""Retention plan: selects the segments of a log to delete, by log start offset, then size, then age. Changes nothing.

Each rule checks the segments from the oldest on, up to the first one that it keeps; the next rule continues there.

| rule         | a segment is deleted if                                                               |
|--------------|---------------------------------------------------------------------------------------|
| start-offset | the next segment starts at or below the log start offset                              |
| size         | the log keeps at least `retention.bytes` without it                                   |
| time         | its largest timestamp, else its file's time, is more than `retention.ms` ago;         |
|              | a damaged segment has an unknown age, and stays                                       |

No rule deletes a segment above the high watermark, or an empty last one. If all are deleted, the active segment is
rolled first: an empty one at the log's end keeps that end. A log without `delete` in its policies has only the first
rule.

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
    """One segment.

    Attributes:
        next_offset: start of the next segment, or the log's end.
    """

    base_offset: int
    next_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """Retention's input of one log.

    Attributes:
        segments: in order; the last one is active.
        timestamp_of: the largest timestamp of the segment with a number, or its file's time if no record has one.
            Called for the oldest first, and only as far as age decides. It may return a lower timestamp that is young
            enough. A damaged segment raises `CorruptBatchError`.
    """

    segments: Sequence[SegmentFacts]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    timestamp_of: Callable[[int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDeletion:
    """A segment to delete.

    Attributes:
        next_offset: start of the next segment, or the log's end.
        is_active: whether it must be rolled first.
        largest_timestamp_ms: of its records, if that is the reason.
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
    """Retention's plan for one log.

    Attributes:
        deletions: oldest first.
        log_start_offset: after the deletions.
        held_back: the active segment, if it is due but a running sink prevents its roll.
        undecided: the damage that stops the third rule at a segment.
    """

    deletions: tuple[SegmentDeletion, ...]
    log_start_offset: int
    held_back: SegmentDeletion | None = None
    undecided: str | None = None

    @property
    def rolls(self) -> bool:
        """Whether an empty segment replaces the active one."""
        return bool(self.deletions) and self.deletions[-1].is_active


def plan_retention(log: LogFacts, config: LogConfig, now_ms: int) -> RetentionPlan:
    """Return a log's plan by the settings of its topic."""
    found, undecided = list(_below_start(log)), None
    if "delete" in config.cleanup_policies:
        found += _above_size(log, config.retention_bytes, len(found))
        try:
            for each in _too_old(log, config.retention_ms, now_ms, len(found)):
                found.append(each)  # one by one, to keep those before a damaged segment
        except CorruptBatchError as error:
            undecided = str(error)
    if found and len(found) == len(log.segments):
        found[-1] = replace(found[-1], is_active=True)
    start = max(log.log_start_offset, found[-1].next_offset) if found else log.log_start_offset
    return RetentionPlan(deletions=tuple(found), log_start_offset=start, undecided=undecided)


def plan_record_deletion(log: LogFacts, offset: int) -> RetentionPlan:
    """Return the plan to raise a log's start to an offset: it deletes the segments wholly below."""
    start = max(offset, log.log_start_offset)
    return RetentionPlan(deletions=tuple(_below_start(replace(log, log_start_offset=start))), log_start_offset=start)


def after_roll(plan: RetentionPlan) -> RetentionPlan:
    """Return the rest of a plan after the roll of the active segment."""
    return replace(plan, deletions=tuple(replace(each, is_active=False) for each in plan.deletions))


def without_roll(plan: RetentionPlan, log_start_offset: int) -> RetentionPlan:
    """Return a plan without the roll, if a running sink keeps the active segment.

    Args:
        log_start_offset: the log's present one.
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
        reason = f"the log has {size_text(size)}, {size_text(left)} without it, retention.bytes is {size_text(limit)}"
        yield _deletion(segment, "size", reason)
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


def _candidates(log: LogFacts, first: int) -> Iterator[tuple[int, SegmentFacts]]:
    """Yield the segments from a number on, up to the first one that no rule may delete."""
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
