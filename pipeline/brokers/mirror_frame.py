"""A micro-batch of a mirror as a frame of Spark's Kafka source, and the sink that takes it."""

import json
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from sparklog.pipeline.brokers.client_properties import ClientProperties
from sparklog.pipeline.brokers.plan_ranges import Ranges
from sparklog.sink.config import SinkConfig
from sparklog.sink.log_sink import LogSink
from sparklog.sink.metrics import MicroBatchMetrics
from sparklog.sink.place.end_offsets import PlannedEnds
from sparklog.sink.spark.errors import SPARK_ERRORS, explain
from sparklog.storage_core.errors import LogStorageError
from sparklog.storage_core.storage.owned_names import Owner

__all__ = ["SparkTarget", "source_frame"]

_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_CONSUMERS: Final = {"kafka.max.poll.records": "5000", "kafka.fetch.max.wait.ms": "10"}
"""Unless they are given. A consumer asks for a log's next records while Spark asks for its end, on one connection: with
Kafka's 500 ms each task at the end of a log waits so long."""

_OFFSETS_OF_A_TASK: Final = 50_000
"""A log with more than that is worth two tasks."""

_TASKS_OF_A_CORE: Final = 8
"""More logs than that share tasks: each task takes some milliseconds."""


class SparkTarget:
    """The sink of a mirror that reads with Spark.

    Args:
        properties: of the source's clients.
        config: of the sink.

    Raises:
        LogStorageError: as `LogSink`.
    """

    def __init__(
        self, spark: SparkSession, properties: ClientProperties, config: SinkConfig, *, take_lock_by_force: bool
    ) -> None:
        self._spark = spark
        self._properties = properties
        self._sink = LogSink.from_config(config, take_lock_by_force=take_lock_by_force)

    def write(
        self, ranges: Ranges, ends: PlannedEnds, query_id: str, batch_id: int, check_source: Callable[[], None]
    ) -> MicroBatchMetrics:
        """Commit the source's committed records in these ranges as one micro-batch; see `LogSink.write`.

        Raises:
            LogStorageError: it failed as a whole; nothing of it is visible.
        """
        self._spark.sparkContext.setJobDescription(f"sparklog: micro-batch {batch_id}")
        try:
            frame = source_frame(self._spark, self._properties, ranges)
            return self._sink.write(
                frame, query_id=query_id, batch_id=batch_id, end_offsets=ends, before_commit=check_source
            )
        except SPARK_ERRORS as error:
            problem = self._properties.without_secrets(explain(error))
            raise LogStorageError(
                f"the micro-batch failed, nothing of it is visible: {problem}"
            ) from None  # its text may hold properties

    @property
    def owner(self) -> Owner:
        """The sink's hold of the store."""
        return self._sink.owner

    def close(self) -> None:
        """Release the store."""
        self._sink.close()


def source_frame(spark: SparkSession, properties: ClientProperties, ranges: Ranges) -> DataFrame:
    """Return the committed records in some ranges of offsets, with the sink's columns."""
    if not ranges:
        return spark.createDataFrame(
            [], "topic string, partition int, offset bigint, timestamp timestamp, value binary"
        )
    starts: dict[str, dict[str, int]] = defaultdict(dict)
    ends: dict[str, dict[str, int]] = defaultdict(dict)
    for (topic, partition), (start, end) in sorted(ranges.items()):
        starts[topic][str(partition)], ends[topic][str(partition)] = start, end
    cores = spark.sparkContext.defaultParallelism
    tasks = min(2 * cores, sum(end - start for start, end in ranges.values()) // _OFFSETS_OF_A_TASK)
    options = {
        **({"minPartitions": str(tasks)} if tasks > len(ranges) else {}),
        **_CONSUMERS,
        **properties.of_source(),
        "kafka.isolation.level": "read_committed",
        "assign": json.dumps({topic: [int(each) for each in found] for topic, found in starts.items()}),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "includeHeaders": "true",
    }
    frame = spark.read.format("kafka").options(**options).load().select(*_COLUMNS)
    most = _TASKS_OF_A_CORE * cores
    return frame.coalesce(most) if len(ranges) > most else frame
