"""Reads the input of a cleaning plan from a log directory; timestamps only if they decide.

A plan searches for transactions, by a scan of the dirty part, only in a log with producer snapshots or transaction
indexes of a broker. A cleaning searches every log.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sparklog.storage_core.cleaner.survey.cleanable import CleanableLog, CleaningPlan, plan_cleaning
from sparklog.storage_core.cleaner.survey.listed_segments import ListedSegment, list_cleanable_segments
from sparklog.storage_core.cleaner.survey.plan_roll import roll_reason
from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.log.files.committed_end import CommittedEnd
from sparklog.storage_core.log.files.names import SNAPSHOT, TXNINDEX
from sparklog.storage_core.log.producers.transactions import find_last_stable_offset
from sparklog.storage_core.log.read.largest_timestamp import proven_largest_timestamp
from sparklog.storage_core.log.scan.log_walk import SegmentList
from sparklog.storage_core.log.scan.segment_reader import SEEK_BYTES, SegmentReader
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.storage.local import storage_errors

__all__ = ["LogFacts", "plan_log"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """Facts of a log that need no read.

    Attributes:
        checkpoint: end of the last cleaning; None if unknown.
        may_roll: whether the active segment may be rolled before the cleaning: no sink appends to the log.
        has_erased: whether the active segment has records of keys to erase.
    """

    directory: Path
    end: CommittedEnd
    log_start_offset: int
    checkpoint: int | None = None
    may_roll: bool = False
    has_erased: bool = False


def plan_log(log: LogFacts, config: LogConfig, now_ms: int) -> CleaningPlan:
    """Return a log's plan; only reads, and nothing of a log that is not compacted.

    If `may_roll`, the plan rolls an active segment that is due for a roll in a due log, or has keys to erase.

    Raises:
        CorruptFileError: the active segment is missing, or the files end below the log's end.
        CorruptBatchError: a marker is damaged, a batch has a wrong offset, or a segment's age is unknown.
    """
    if not config.is_compacted:
        return _not_compacted(log, config)
    segments = list_cleanable_segments(log.directory, log.end, log.log_start_offset)
    if log.log_start_offset >= log.end.log_end_offset:  # retention or delete-records drops the active one, too
        segments = [replace(segments[-1], size_bytes=0)]
    plan = _plan(log, segments, config, now_ms)
    active = segments[-1]
    if not log.may_roll or not active.size_bytes:
        return plan
    end_offset = log.end.log_end_offset
    empty = ListedSegment(base_offset=end_offset, next_offset=end_offset, size_bytes=0, modified_ms=now_ms)
    rolled = _plan(log, [*segments, empty], config, now_ms)
    if rolled.first_uncleanable_offset < end_offset or not (rolled.is_due or log.has_erased):
        return plan  # before a timestamp is read: most quiet logs end here
    if log.has_erased:
        why: str | None = "it has keys to erase"
    else:
        why = roll_reason(_first_timestamp(log.directory, active), active.modified_ms, config, now_ms)
    if why is None:
        return plan
    return replace(rolled, reason=f"rolls the active segment first: {why}; {rolled.reason}", rolls=True)


def _plan(log: LogFacts, segments: Sequence[ListedSegment], config: LogConfig, now_ms: int) -> CleaningPlan:
    facts = CleanableLog(
        segments=segments,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.end.log_end_offset,
        checkpoint=log.checkpoint,
        last_stable_offset=lambda dirty: _last_stable_offset(log, dirty),
        largest_timestamp_of=lambda number: _largest_timestamp(log.directory, segments[number]),
        first_timestamp_of=lambda number: _first_timestamp(log.directory, segments[number]),
    )
    return plan_cleaning(facts, config, now_ms)


def _not_compacted(log: LogFacts, config: LogConfig) -> CleaningPlan:
    return CleaningPlan(
        decision="not-compacted",
        reason=f"cleanup.policy={config.cleanup_policy}",
        first_dirty_offset=log.log_start_offset,
        first_uncleanable_offset=log.log_start_offset,
        clean_bytes=0,
        cleanable_bytes=0,
    )


def _last_stable_offset(log: LogFacts, first_dirty_offset: int) -> int:
    with storage_errors(log.directory):
        has_producers = any(name.endswith((SNAPSHOT, TXNINDEX)) for name in os.listdir(log.directory))
    if not has_producers:
        return log.end.log_end_offset
    return find_last_stable_offset(SegmentList(log.directory, log.end.log_end_offset), first_dirty_offset)


def _largest_timestamp(directory: Path, segment: ListedSegment) -> int:
    with SegmentReader(segment.files(directory)) as reader:
        latest = proven_largest_timestamp(reader, segment.next_offset)
    return latest if latest >= 0 else segment.modified_ms


def _first_timestamp(directory: Path, segment: ListedSegment) -> int:
    """Return the first batch's largest timestamp, -1 without one, or if it is damaged: a cleaning reports that."""
    with SegmentReader(segment.files(directory)) as reader:
        try:
            first = next(reader.chunks(first_bytes=SEEK_BYTES), None)
        except CorruptBatchError:
            return -1
    return -1 if first is None else int(first.scan.max_timestamp[0])
