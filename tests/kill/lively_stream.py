"""`sparklog stream` as the writer of a lively store: a file for each micro-batch, with the rows that it must have."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.kill.harness import SparkJob
from tests.kill.lively_store import TOPICS, columns_of

__all__ = ["LivelyStream"]

_FILES = 400
_FIRST_S = 1_600_000_000
_FILLING_BYTES = 256
"""A file is larger than those after it. A kill between Spark's list of files and its offset lets a micro-batch take two
of them, and Spark reads the larger one first."""


class LivelyStream:
    """The stream, which can be killed and started again.

    Args:
        folder: of the job; one that is there goes on.
        store: to write.
    """

    def __init__(self, folder: Path, store: Path) -> None:
        self._folder = folder
        if not folder.exists():
            self._prepare(store)
        self._job = self._start()

    def is_alive(self) -> bool:
        """Whether it runs; where a maintenance held the store for a moment it is started again."""
        if self._job.has_ended and "holds the store" in self._job.told:
            self._job = self._start()
        return not self._job.has_ended

    def kill(self) -> None:
        """Kill driver, JVM and workers of a stream that runs."""
        self.is_alive()
        self._job.kill()

    def exit_code(self) -> int:
        """Return the driver's, which has ended."""
        return self._job.kill()

    def _prepare(self, store: Path) -> None:
        folder = self._folder
        (folder / "input").mkdir(parents=True)
        for number in range(_FILES):  # Spark takes files in the order of their times
            path = folder / "input" / f"{number:05}.parquet"
            filling = {"filling": "x" * (_FILLING_BYTES * (_FILES - number))}
            pq.write_table(pa.Table.from_batches([columns_of(number)]).replace_schema_metadata(filling), path)
            os.utime(path, (_FIRST_S + number, _FIRST_S + number))
        settings = {
            "store": str(store),
            "checkpoint": str(folder / "checkpoint"),
            "source": {
                "format": "parquet",
                "path": str(folder / "input"),
                "schema": "topic string, partition bigint, key binary, value binary",
                "options": {"maxFilesPerTrigger": 1},
            },
            "records": {"topic": "topic", "partition": "partition", "key": "key", "value": "value"},
            "topics": TOPICS,
            "spark": {
                "spark.master": "local[2]",
                "spark.driver.memory": "600m",
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            },
        }
        (folder / "settings.yaml").write_text(json.dumps(settings))

    def _start(self) -> SparkJob:
        return SparkJob(self._folder, str(self._folder / "settings.yaml"), module="tests.kill.stream_job")
