"""Retention in a store of objects, by the ledger alone: extents have their sizes and largest timestamps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sparklog.sink.ledger.rows import LedgerRows, LogState
from sparklog.sink.objects.extents import Extent
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.retention.plan_retention import LogFacts, RetentionPlan, SegmentFacts, plan_retention
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["ObjectRetention", "plan_object_retention", "raise_starts"]


@dataclass(frozen=True, slots=True)
class ObjectRetention:
    """A log's extents to drop, as segments of one extent each."""

    log: TopicPartition
    plan: RetentionPlan

    @property
    def size_bytes(self) -> int:
        """Of the extents."""
        return sum(each.size_bytes for each in self.plan.deletions)


def plan_object_retention(
    states: Mapping[TopicPartition, LogState],
    extents: Mapping[TopicPartition, Sequence[Extent]],
    configs: Mapping[str, LogConfig],
    now_ms: int,
) -> list[ObjectRetention]:
    """Return the retention of each log that has any; logs of topics with unknown settings have none."""
    found = []
    for log, state in sorted(states.items()):
        held, config = extents.get(log, ()), configs.get(log.topic)
        if not held or config is None:
            continue
        plan = plan_retention(_facts(state, held, now_ms), config, now_ms)
        if plan.deletions:
            found.append(ObjectRetention(log, plan))
    return found


def raise_starts(
    rows: LedgerRows, extents: dict[TopicPartition, list[Extent]], starts: Mapping[TopicPartition, int]
) -> LedgerRows:
    """Return rows with raised log starts, and drop the extents below them."""
    starts = {log: start for log, start in starts.items() if log in rows.number_of}
    for log, start in starts.items():
        extents[log] = [each for each in extents.get(log, ()) if each.end_offset > start]
    numbers = np.array([rows.number_of[log] for log in starts], np.int64)
    return rows.with_risen(numbers, {"log_start_offset": np.array(list(starts.values()), np.int64)})


def _facts(state: LogState, extents: Sequence[Extent], now_ms: int) -> LogFacts:
    nexts = [*(each.base_offset for each in extents[1:]), state.log_end_offset]
    segments = [
        SegmentFacts(each.base_offset, after, each.size_bytes) for each, after in zip(extents, nexts, strict=True)
    ]

    def timestamp_of(number: int) -> int:
        found = extents[number].max_timestamp_ms
        return found if found >= 0 else now_ms  # without a timestamp its age is unknown, and it stays

    return LogFacts(
        segments=segments,
        log_start_offset=state.log_start_offset,
        log_end_offset=state.log_end_offset,
        high_watermark=state.log_end_offset,
        timestamp_of=timestamp_of,
    )
