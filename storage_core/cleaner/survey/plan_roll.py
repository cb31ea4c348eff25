"""Decides whether maintenance rolls the active segment of a log without appends, so that a cleaner can clean it.

A broker rolls only at an append: a quiet log keeps its last segment active and uncleaned for ever. A maintenance run
without a sink rolls as the next append would.

Source: Kafka LogSegment.shouldRoll, timeWaitedForRoll; LogConfig.maxSegmentMs.
"""

from __future__ import annotations

from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.quantity_text import duration_text, iso_time

__all__ = ["roll_reason"]


def roll_reason(first_timestamp: int, modified_ms: int, config: LogConfig, now_ms: int) -> str | None:
    """Return why an append at this time would roll a non-empty segment; None if it would not.

    Args:
        first_timestamp: largest one of its first batch; -1 without one.
        modified_ms: time of its file; used without a timestamp.
        now_ms: timestamp of the assumed record.
    """
    since_ms = first_timestamp if first_timestamp >= 0 else modified_ms
    limit_ms = config.max_segment_ms
    if now_ms - since_ms <= limit_ms:
        return None
    name = "segment.ms" if limit_ms == config.segment_ms else "max.compaction.lag.ms"
    age, limit = duration_text(now_ms - since_ms), duration_text(limit_ms)
    return f"its first record is {age} old ({iso_time(since_ms)}), {name} is {limit}"
