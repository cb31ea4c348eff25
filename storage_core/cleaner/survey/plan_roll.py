"""Whether an active segment is to be rolled for a cleaner to get at it, in a log that nobody appends to. Decides only.

A broker rolls when it appends: a log that falls silent keeps its last segment active, and its last records from
compaction, for ever. Whoever maintains a store without a sink does what the next append would do.

Source: Kafka LogSegment.shouldRoll, timeWaitedForRoll; LogConfig.maxSegmentMs.
"""

from __future__ import annotations

from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.quantity_text import duration_text, iso_time

__all__ = ["why_roll"]


def why_roll(first_timestamp: int, modified_ms: int, config: LogConfig, now_ms: int) -> str | None:
    """Return why a segment that is not empty would be rolled by an append at this time; None if it would not.

    Args:
        first_timestamp: of its first batch, the largest one; -1 if it has none.
        modified_ms: when its file was changed; it counts where no timestamp does.
        config: of its topic.
        now_ms: the time, which the next record is taken to have.
    """
    since_ms = first_timestamp if first_timestamp >= 0 else modified_ms
    limit_ms = config.max_segment_ms
    if now_ms - since_ms <= limit_ms:
        return None
    name = "segment.ms" if limit_ms == config.segment_ms else "max.compaction.lag.ms"
    age, limit = duration_text(now_ms - since_ms), duration_text(limit_ms)
    return f"its first record is {age} old ({iso_time(since_ms)}), {name} is {limit}"
