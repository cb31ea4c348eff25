"""Cleaning plan: the cleanable part of a log, and whether its cleaning is due. Changes nothing.

    log start         first dirty             first uncleanable           log end
        |--- clean --------|------ cleanable ------|------ uncleanable ------|

| offset            | is                                                                                     |
|-------------------|----------------------------------------------------------------------------------------|
| first dirty       | the end of the last cleaning; the log start if that is unknown, or outside of the log  |
| first uncleanable | the lowest of: the active segment; the last stable offset; the first dirty segment with |
|                   | a record younger than `min.compaction.lag.ms`; lowered to the start of a segment        |

A log is cleaned if more than `min.cleanable.dirty.ratio` of its clean and cleanable bytes are cleanable, or if a dirty
segment has waited for more than `max.compaction.lag.ms` since its first batch. A segment with the first dirty offset
inside counts as clean and as cleanable, as it does for a broker.

Overdue logs come first, then the dirtiest. A broker, whose cleaner never ends, takes the dirtiest first, overdue or
not.

Source: Kafka LogCleanerManager.grabFilthiestCompactedLog, cleanableOffsets, maxCompactionDelay,
calculateCleanableBytes; LogToClean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from sparklog.storage_core.cleaner.survey.listed_segments import ListedSegment
from sparklog.storage_core.log_config import INT64_MAX, LogConfig
from sparklog.storage_core.quantity_text import duration_text, iso_time, size_text

__all__ = ["CleanableLog", "CleaningPlan", "Decision", "by_urgency", "plan_cleaning"]

Decision = Literal["overdue", "dirty", "not-dirty", "nothing-cleanable", "not-compacted"]
"""Why a log is cleaned, or is not."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanableLog:
    """Input of a plan.

    Attributes:
        segments: in order; the last one is active.
        checkpoint: end of the last cleaning; None if unknown.
        last_stable_offset: called, with the first dirty offset, only for a log that would be cleaned otherwise:
            transactions that began below it have ended.
        largest_timestamp_of: the largest timestamp of the segment with a number, or its file's time if no record has
            one.
        first_timestamp_of: the timestamp of a segment's first batch, -1 if it has none.
    """

    segments: Sequence[ListedSegment]
    log_start_offset: int
    log_end_offset: int
    checkpoint: int | None
    last_stable_offset: Callable[[int], int]
    largest_timestamp_of: Callable[[int], int]
    first_timestamp_of: Callable[[int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningPlan:
    """A cleaner's plan for a log.

    Attributes:
        decision: whether it is cleaned, and why.
        reason: the same, for people.
        first_uncleanable_offset: end of the cleaning; always the start of a segment.
        clean_bytes: of segments that start below the first dirty offset.
        cleanable_bytes: of segments in the cleanable part.
        compaction_delay_ms: time by which the oldest dirty batch is overdue; 0 if it is not.
        is_checkpoint_invalid: whether the checkpoint lies outside the log and was ignored.
        rolls: whether the active segment must be rolled before this plan; the reason has it, too.
    """

    decision: Decision
    reason: str
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    compaction_delay_ms: int = 0
    is_checkpoint_invalid: bool = False
    rolls: bool = False

    @property
    def is_due(self) -> bool:
        """Whether the log is to be cleaned."""
        return self.decision in ("overdue", "dirty")

    @property
    def dirty_ratio(self) -> float:
        """Cleanable bytes among clean and cleanable ones; 0 if there are none."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0


def plan_cleaning(log: CleanableLog, config: LogConfig, now_ms: int) -> CleaningPlan:
    """Return a log's plan by the settings of its topic."""
    first_dirty, is_invalid = _first_dirty_offset(log)
    limit, what = _limit_without_transactions(log, config, first_dirty, now_ms)
    ranges = _ranges(log.segments, first_dirty, limit)
    plan = _decide(log, config, now_ms, ranges, what)
    if plan.is_due and (stable := log.last_stable_offset(first_dirty)) < limit:
        limit, what = max(stable, first_dirty), f"a transaction is open since offset {stable}"
        plan = _decide(log, config, now_ms, _ranges(log.segments, first_dirty, limit), what)
    if is_invalid:
        reason = f"{plan.reason}; the checkpoint {log.checkpoint} lies outside the log"
        return replace(plan, reason=reason, is_checkpoint_invalid=True)
    return plan


def by_urgency(logs: Iterable[_T], plan_of: Callable[[_T], CleaningPlan]) -> list[_T]:
    """Return the due logs in cleaning order: overdue ones first, then by dirty ratio."""
    due = [each for each in logs if plan_of(each).is_due]
    return sorted(due, key=lambda each: (plan_of(each).decision == "overdue", plan_of(each).dirty_ratio), reverse=True)


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Borders and sizes of a log's clean and cleanable parts."""

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int


def _first_dirty_offset(log: CleanableLog) -> tuple[int, bool]:
    """Return the offset, and whether the checkpoint was ignored."""
    if log.checkpoint is None:
        return log.log_start_offset, False
    is_valid = log.log_start_offset <= log.checkpoint <= log.log_end_offset
    return (log.checkpoint if is_valid else log.log_start_offset), not is_valid


def _limit_without_transactions(log: CleanableLog, config: LogConfig, first_dirty: int, now_ms: int) -> tuple[int, str]:
    """Return the end of a cleaning, apart from transactions, and its cause."""
    active = log.segments[-1].base_offset
    limit, what = active, f"offset {active} is the active segment's"
    lag_ms = config.min_compaction_lag_ms
    if lag_ms > 0:
        for number in _dirty_closed(log.segments, first_dirty):
            timestamp = log.largest_timestamp_of(number)
            if timestamp > now_ms - lag_ms:
                limit = log.segments[number].base_offset
                what = (
                    f"the segment at offset {limit} has the time {iso_time(timestamp)}, younger than"
                    f" min.compaction.lag.ms, {duration_text(lag_ms)}"
                )
                break
    return max(limit, first_dirty), what


def _dirty_closed(segments: Sequence[ListedSegment], first_dirty: int) -> range:
    """Return the numbers of the closed segments from the one with the first dirty offset on."""
    return range(_floor(segments, first_dirty), len(segments) - 1)


def _ranges(segments: Sequence[ListedSegment], first_dirty: int, limit: int) -> _Ranges:
    """Lower the first uncleanable offset to the start of a segment, and count bytes."""
    end = _floor(segments, limit)
    first_uncleanable = segments[end].base_offset
    start = min(_floor(segments, min(first_dirty, first_uncleanable)), end)
    return _Ranges(
        first_dirty=first_dirty,
        first_uncleanable=first_uncleanable,
        clean_bytes=sum(each.size_bytes for each in segments if each.base_offset < first_dirty),
        cleanable_bytes=sum(each.size_bytes for each in segments[start:end]),
    )


def _floor(segments: Sequence[ListedSegment], offset: int) -> int:
    """Return the number of the last segment that starts at or below an offset; 0 without one."""
    starts = (number for number in range(len(segments) - 1, 0, -1) if segments[number].base_offset <= offset)
    return next(starts, 0)


def _decide(log: CleanableLog, config: LogConfig, now_ms: int, ranges: _Ranges, what: str) -> CleaningPlan:
    total = ranges.clean_bytes + ranges.cleanable_bytes
    delay_ms = 0
    decision: Decision
    if not config.is_compacted:
        decision, reason = "not-compacted", f"cleanup.policy={config.cleanup_policy}"
    elif ranges.cleanable_bytes == 0:
        decision, reason = "nothing-cleanable", f"nothing is cleanable from offset {ranges.first_dirty} on: {what}"
    else:
        delay_ms, oldest_ms = _compaction_delay(log, config, ranges.first_dirty, now_ms)
        ratio, limit = ranges.cleanable_bytes / total, config.min_cleanable_dirty_ratio
        share = f"{size_text(ranges.cleanable_bytes)} of {size_text(total)} are dirty, {ratio:.3f}"
        if delay_ms > 0:
            lag, delay = duration_text(config.max_compaction_lag_ms), duration_text(delay_ms)
            decision = "overdue"
            reason = f"dirty since {iso_time(oldest_ms)}, {delay} longer than max.compaction.lag.ms, {lag}; {share}"
        elif ratio > limit:
            decision, reason = "dirty", f"{share}, more than min.cleanable.dirty.ratio={limit}"
        else:
            decision, reason = "not-dirty", f"{share}, not more than min.cleanable.dirty.ratio={limit}"
        reason += f"; {what}"
    return CleaningPlan(
        decision=decision,
        reason=reason,
        first_dirty_offset=ranges.first_dirty,
        first_uncleanable_offset=ranges.first_uncleanable,
        clean_bytes=ranges.clean_bytes,
        cleanable_bytes=ranges.cleanable_bytes,
        compaction_delay_ms=delay_ms,
    )


def _compaction_delay(log: CleanableLog, config: LogConfig, first_dirty: int, now_ms: int) -> tuple[int, int]:
    """Return the time by which the oldest dirty segment is overdue, and its first batch's time.

    Segments whose first batch has no timestamp, or 0, are skipped.
    """
    if config.max_compaction_lag_ms >= INT64_MAX:
        return 0, -1
    found = [log.first_timestamp_of(number) for number in _dirty_closed(log.segments, first_dirty)]
    oldest_ms = min((each for each in found if each > 0), default=INT64_MAX)
    return max(now_ms - config.max_compaction_lag_ms - oldest_ms, 0), oldest_ms
