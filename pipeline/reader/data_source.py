"""`format("kafka-log")`: Kafka's log directories as a Spark data source, with the columns and options of its connector.

Spark pickles these objects, and makes new ones, in several processes: they hold only the options.

Spark filters rows itself: with filters in a Python data source it may mix up those of two queries on one frame.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sparklog.pipeline.places.past_logs import past_of, require_readable
from sparklog.pipeline.places.store_view import StoreView, open_logs, open_stored
from sparklog.pipeline.reader.columns import kafka_columns
from sparklog.pipeline.reader.log_bounds import find_bounds, resolve_ends, resolve_starts
from sparklog.pipeline.reader.options import ReaderOptions, parse_options
from sparklog.pipeline.reader.plan import ReadTask, plan_tasks
from sparklog.pipeline.reader.read_task import read_task
from sparklog.pipeline.reader.selection import choose_logs
from sparklog.sink.spark.worker_python import prepare_workers
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.objects.open_storage import StoragePlace

__all__ = ["KafkaLogSource", "register"]


def register(spark: SparkSession) -> None:
    """Register `format("kafka-log")` in a session.

    If executors run another Python, one Spark task checks that it can import this package.

    Raises:
        InvalidConfigError: it can't.
    """
    context = SparkContext._active_spark_context
    if context is not None:  # Spark Connect has none
        prepare_workers(context)
    spark.dataSource.register(KafkaLogSource)


class KafkaLogSource(DataSource):
    """The data source, as Spark calls it."""

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return "kafka-log"

    def schema(self) -> StructType:
        """Return the columns for the options.

        Raises:
            InvalidConfigError: options are wrong; names every problem.
        """
        return kafka_columns(include_headers=parse_options(self.options).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of a frame."""
        options = parse_options(self.options, "batch")
        _check_columns(schema, options)
        return _FrameReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return a reader of a stream.

        Raises:
            InvalidConfigError: this is Spark 4.1, which has no limit on micro-batches for data sources in Python.
        """
        try:
            from sparklog.pipeline.reader.stream_reader import KafkaLogStreamReader
        except ModuleNotFoundError as error:
            if error.name != "pyspark.sql.streaming.datasource":
                raise
            raise InvalidConfigError('streams of format("kafka-log") need Spark 4.2; frames do not') from error
        options = parse_options(self.options, "stream")
        _check_columns(schema, options)
        return KafkaLogStreamReader(options)


class _FrameReader(DataSourceReader):
    """Reads the records that exist when the query is planned."""

    def __init__(self, options: ReaderOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return the tasks; an empty one if there is nothing to read, as Spark would invent a partition."""
        options = self._options
        view = _open(options)
        logs = choose_logs(view, options)
        require_readable(view, logs)
        bounds = find_bounds(logs, options)
        starts, ends = resolve_starts(bounds, options), resolve_ends(bounds, options)
        wanted = {log: (starts[log], ends[log]) for log in bounds}
        nothing = ReadTask((), options.include_headers, options.fail_on_data_loss)
        tasks = plan_tasks(wanted, bounds, options)
        if view.past is not None:
            tasks = [replace(each, past=past_of(view, [bounds[log].view for log in each.logs])) for each in tasks]
        return [*(tasks or [nothing])]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        return read_task(partition)


def _open(options: ReaderOptions) -> StoreView:
    if isinstance(options.path, StoragePlace):
        return open_stored(options.path, options.as_of)
    return open_logs(options.path, options.as_of)


def _check_columns(schema: StructType, options: ReaderOptions) -> None:
    """Refuse columns other than the source's own, as the connector does."""
    own = kafka_columns(include_headers=options.include_headers)
    if [(each.name, each.dataType) for each in schema] != [(each.name, each.dataType) for each in own]:
        raise InvalidConfigError(
            f"the columns of kafka-log are fixed: leave out schema(...); they are {own.simpleString()}"
        )
