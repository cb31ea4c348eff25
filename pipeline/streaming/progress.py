"""Progress of a stream: one line per micro-batch, from the sink's counts and Spark's metrics of the source."""

import json
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sparklog.pipeline.streaming.metrics import StreamMetrics
from sparklog.sink.metrics import MicroBatchMetrics

__all__ = ["ProgressLines", "format_line", "source_lag"]

_PATIENCE_S = 2.0
"""Spark reports a micro-batch just after its commit; after this time the line is printed without Spark's part."""


class ProgressLines:
    """Reports a line for each committed micro-batch, after Spark has reported it, too.

    Args:
        figures: gets the same numbers as metrics.

    Attributes:
        records: of all micro-batches so far.
        batches: number of micro-batches.
    """

    def __init__(self, report: Callable[[str], None], figures: StreamMetrics | None = None) -> None:
        self._report = report
        self._figures = figures
        self._waiting: deque[tuple[float, MicroBatchMetrics]] = deque()
        self.records = 0
        self.batches = 0

    def add(self, metrics: MicroBatchMetrics) -> None:
        """Take the metrics of one micro-batch; called by the thread that runs it."""
        self._waiting.append((time.monotonic(), metrics))
        if self._figures is not None:
            self._figures.commit(metrics)

    @property
    def are_waiting(self) -> bool:
        """Whether micro-batches wait for `flush`."""
        return bool(self._waiting)

    def flush(self, recent: Sequence[Any], *, is_last: bool = False) -> None:
        """Report micro-batches that Spark has reported, or that have waited too long, and at the end all.

        Args:
            recent: the query's `recentProgress`.
            is_last: whether Spark will report no more.
        """
        known = {int(each.batchId): each for each in recent}
        while self._waiting:
            since, metrics = self._waiting[0]
            progress = known.get(metrics.batch_id)
            if progress is None and not is_last and time.monotonic() - since < _PATIENCE_S:
                return
            self._waiting.popleft()
            self.batches += 1
            self.records += metrics.records
            lag = source_lag([(each.endOffset, each.latestOffset) for each in progress.sources]) if progress else None
            duration_ms = progress.durationMs.get("triggerExecution") if progress else None
            self._report(format_line(metrics, duration_ms, lag))
            if self._figures is not None:
                self._figures.progress(lag, _source_figures(progress) if progress else {})


def _source_figures(progress: Any) -> dict[str, str]:
    """Return the own metrics of a micro-batch's sources."""
    return {str(name): str(value) for each in progress.sources for name, value in (each.metrics or {}).items()}


def format_line(metrics: MicroBatchMetrics, duration_ms: int | None = None, lag: int | None = None) -> str:
    """Return the line of one micro-batch.

    Args:
        duration_ms: of the whole trigger; None for the duration in the sink.
        lag: unread records in the source; None if unknown.
    """
    if metrics.replayed:
        return f"batch {metrics.batch_id}: was committed before, nothing to do"
    seconds = max(duration_ms or metrics.total_ms, 1) / 1000
    parts = [
        f"batch {metrics.batch_id}: {metrics.records:,} records in {seconds:.2f} s",
        f"{metrics.records / seconds:,.0f} records/s",
        f"{metrics.bytes / 1e6 / seconds:.1f} MB/s",
        f"{metrics.rolls:,} rolls",
    ]
    if metrics.quarantined:
        parts.append(f"{metrics.quarantined:,} quarantined")
    if lag is not None:
        parts.append(f"lag {lag:,}")
    return ", ".join(parts)


def source_lag(offsets: list[tuple[str | None, str | None]]) -> int | None:
    """Return the number of unread records in the sources, from (end offset, latest offset) pairs.

    None unless every source has both in the form of Kafka's connector, `{"topic": {"partition": next offset}}`.
    """
    total = 0
    for end, latest in offsets:
        ends, latests = _partition_offsets(end), _partition_offsets(latest)
        if ends is None or latests is None:
            return None
        total += sum(max(0, offset - ends.get(partition, 0)) for partition, offset in latests.items())
    return total if offsets else None


def _partition_offsets(text: str | None) -> dict[tuple[str, str], int] | None:
    try:
        topics = json.loads(text) if text else None
    except ValueError:
        return None
    if not isinstance(topics, Mapping) or not all(isinstance(each, Mapping) for each in topics.values()):
        return None
    offsets = {
        (topic, partition): offset for topic, partitions in topics.items() for partition, offset in partitions.items()
    }
    return offsets if all(isinstance(offset, int) for offset in offsets.values()) else None
