"""A contender that writes a frame into a new store, sync and commit included."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame

from benchmarks.rounds import Contender
from sparklog.sink.log_sink import LogSink
from sparklog.sink.metrics import MicroBatchMetrics

__all__ = ["TOPIC", "MicroBatchWriter"]

TOPIC = "bench"


class MicroBatchWriter:
    """Writes one frame again and again, each time as one micro-batch into a new store.

    Attributes:
        metrics: of every micro-batch.
    """

    def __init__(self, name: str, frame: DataFrame, folder: Path, properties: Mapping[str, object]) -> None:
        self.name = name
        self.metrics: list[MicroBatchMetrics] = []
        self._frame = frame
        self._folder = folder
        self._properties = dict(properties)
        self._sink: LogSink

    def contender(self, units: float = 1) -> Contender:
        """Return it as something to be timed: opening and closing the store is not part of a micro-batch."""
        return Contender(name=self.name, units=units, prepare=self._open, run=self._write, clean=self._close)

    def megabytes(self) -> float:
        """Return the log bytes of one micro-batch, in MB."""
        return self.metrics[-1].bytes / 1e6

    def _open(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._sink = LogSink(self._folder, topics={TOPIC: self._properties}, topic=TOPIC)

    def _write(self) -> None:
        self.metrics.append(self._sink.write(self._frame, query_id="bench"))

    def _close(self) -> None:
        self._sink.close()
        shutil.rmtree(self._folder)
