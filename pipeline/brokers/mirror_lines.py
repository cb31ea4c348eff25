"""The lines of a mirror for people: a micro-batch, and how far each log is behind its source."""

from collections.abc import Mapping
from typing import Final

from sparklog.pipeline.streaming.progress import format_line
from sparklog.sink.metrics import MicroBatchMetrics

__all__ = ["mirror_line"]

_MOST_LOGS: Final = 5


def mirror_line(metrics: MicroBatchMetrics, lags: Mapping[tuple[str, int], int]) -> str:
    """Return the line of one micro-batch, with the logs that are furthest behind.

    Args:
        lags: offsets that each log is behind.
    """
    behind = sorted(((lag, log) for log, lag in lags.items() if lag > 0), key=lambda each: (-each[0], each[1]))
    line = format_line(metrics, lag=sum(lag for lag, _ in behind))
    named = [f"{topic}-{partition} {lag:,}" for lag, (topic, partition) in behind[:_MOST_LOGS]]
    more = f" and {len(behind) - _MOST_LOGS:,} more" if behind[_MOST_LOGS:] else ""
    return f"{line} ({', '.join(named)}{more})" if named else line
