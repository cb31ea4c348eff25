"""Metrics of a stream as a Prometheus text file, replaced after each micro-batch.

Alert on `sparklog_stream_running` and on the age of the last commit. Kafka sources have a lag in records; metrics of
other sources, such as Delta's `numBytesOutstanding`, keep their names.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from sparklog.pipeline.prometheus import Samples, figure_lines, make_metrics_folder, try_replace
from sparklog.sink.metrics import MicroBatchMetrics
from sparklog.storage_core.clock import Clock, SystemClock
from sparklog.storage_core.errors import InvalidConfigError, StorageError, StoreLockedError

__all__ = ["StreamMetrics", "figures_of"]

_PREFIX: Final = "sparklog_stream"
_NUMBER: Final = re.compile(r"[0-9]+(\.[0-9]+)?")


class StreamMetrics:
    """Counts of a stream since its start, and their file.

    Args:
        clock: tells the time of a commit.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._is_running = False
        self._batches = self._records = self._bytes = self._quarantined = 0
        self._commit_ms: int | None = None
        self._committed_at_ms: int | None = None
        self._lag: int | None = None
        self._source: Mapping[str, float] = {}

    def begin(self) -> None:
        """Write that the stream runs."""
        self._is_running = True
        self._write()

    def commit(self, metrics: MicroBatchMetrics) -> None:
        """Count a micro-batch; called by the thread that committed it."""
        if metrics.replayed:
            return
        self._batches += 1
        self._records += metrics.records
        self._bytes += metrics.bytes
        self._quarantined += metrics.quarantined
        self._commit_ms, self._committed_at_ms = metrics.total_ms, self._clock.now_ms()

    def progress(self, lag: int | None, source: Mapping[str, str]) -> None:
        """Take Spark's metrics of the source, and write the file.

        Args:
            lag: unread records in the source; None if unknown.
            source: the source's own metrics; values that are no numbers are skipped.
        """
        self._lag = lag
        self._source = {name: float(value) for name, value in source.items() if _NUMBER.fullmatch(value)}
        self._write()

    def end(self) -> None:
        """Write that the stream has ended."""
        self._is_running = False
        self._write()

    def _write(self) -> None:
        try_replace(self._path, "".join(self._lines()))

    def _lines(self) -> Iterator[str]:
        yield from _figure("running", "1 while the stream runs", float(self._is_running))
        yield from _figure("micro_batches_total", "micro-batches committed", self._batches, "counter")
        yield from _figure("records_total", "records committed", self._records, "counter")
        yield from _figure("bytes_total", "bytes appended to the logs", self._bytes, "counter")
        yield from _figure("quarantined_total", "rows diverted to quarantine", self._quarantined, "counter")
        if self._commit_ms is not None and self._committed_at_ms is not None:
            yield from _figure("commit_duration_seconds", "last micro-batch: time in the sink", self._commit_ms / 1000)
            yield from _figure("last_commit_timestamp_seconds", "time of the last commit", self._committed_at_ms / 1000)
        if self._lag is not None:
            yield from _figure("lag_records", "unread records in the source", self._lag)
        if self._source:
            samples: Samples = [({"name": name}, value) for name, value in sorted(self._source.items())]
            yield from figure_lines(f"{_PREFIX}_source", "metrics of the source, by their own names", samples)


@contextmanager
def figures_of(path: Path | None) -> Iterator[StreamMetrics | None]:
    """Yield the metrics of a stream, and write at the end that it does not run; None without a file.

    A stream that finds the store locked by another writer keeps that writer's file.

    Raises:
        InvalidConfigError: the file can't be written.
    """
    if path is None:
        yield None
        return
    try:
        make_metrics_folder(path)
    except StorageError as error:
        raise InvalidConfigError(f"--metrics-file: {error}") from error
    figures = StreamMetrics(path, SystemClock())
    try:
        yield figures
    except StoreLockedError:
        raise
    except BaseException:
        figures.end()
        raise
    figures.end()


def _figure(name: str, words: str, value: float, kind: Literal["gauge", "counter"] = "gauge") -> Iterator[str]:
    return figure_lines(f"{_PREFIX}_{name}", words, [({}, value)], kind)
