"""Reads start and end offsets of a Kafka source for a micro-batch, from Spark's plan in the checkpoint.

The last offsets of a topic may hold no record for Spark: transaction markers, aborted or compacted records. So the rows
of a micro-batch do not show the end of its source. Spark's plan does: Spark writes `offsets/<batch id>` before the
micro-batch runs, and keeps it for a retry. A later query to the broker may return offsets above this micro-batch.

| line of the file | content |
|---|---|
| 1 | version of the format, `v1` |
| 2 | watermark, time and settings of the micro-batch |
| 3 | end offsets of the source: `{"topic":{"partition":next offset}}` |

A micro-batch starts at the end offsets of the one before. The start of the first one is in `sources/0/0`: a zero byte,
the version's line, and a line like the third one. Both lack a partition that Spark finds while planning.

Source: Spark OffsetSeqLog, OffsetSeq, JsonUtils.partitionOffsets, KafkaSourceInitialOffsetWriter.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import SparkSession

from sparklog.pipeline.settings.stream_settings import RecordSettings, Settings
from sparklog.sink.place.end_offsets import PlannedEnds
from sparklog.sink.spark.errors import SPARK_ERRORS, explain
from sparklog.storage_core.errors import StorageError

__all__ = ["SourceEnds", "find_source_ends", "parse_ends", "parse_starts"]

logger = logging.getLogger(__name__)

SourceEnds = Callable[[SparkSession, int], PlannedEnds]
"""Returns start and end offsets of the mirror's logs in a micro-batch, by topic and partition."""

_Offsets = dict[tuple[str, int], int]

_BEGINNING = "sources/0/0"
_VERSION = "v1"
_REMEDY = "restore the file, or use a new checkpoint, with `startingOffsets` at the ends of the store's logs"


def find_source_ends(settings: Settings) -> SourceEnds:
    """Return the function that returns the end offsets of a micro-batch; none if the job is no mirror.

    A job is a mirror if offsets are preserved and come unchanged from a Kafka source, with the partition, and either
    with the topic or from one topic into one topic.
    """
    if settings.offsets != "preserved" or settings.source.format != "kafka":
        return lambda _spark, _batch_id: PlannedEnds({})
    if not _is_mirror(settings.records):
        logger.warning(
            "Logs may end below their sources, whose last offsets may hold no record: records.offset,"
            " records.partition or records.topic is not the source's own column"
        )
        return lambda _spark, _batch_id: PlannedEnds({})
    fixed_topic = settings.records.fixed_topic
    logs = {(name, number) for name, each in settings.topics.items() for number in range(_partitions(each))}

    def known(offsets: _Offsets) -> _Offsets:
        return {log: offset for log, offset in offsets.items() if log in logs}

    def read(spark: SparkSession, batch_id: int) -> PlannedEnds:
        def parsed(parse: Callable[[str, str, str | None], _Offsets], name: str) -> _Offsets:
            text = _read(spark, settings.checkpoint, name)
            return known(parse(f"{settings.checkpoint}/{name}", text, fixed_topic))

        ends = parsed(parse_ends, f"offsets/{batch_id}")
        is_first = batch_id == 0
        starts = parsed(parse_starts, _BEGINNING) if is_first else parsed(parse_ends, f"offsets/{batch_id - 1}")
        return PlannedEnds(ends, starts)

    return read


def parse_ends(file: str, plan: str, fixed_topic: str | None) -> dict[tuple[str, int], int]:
    """Return the end offsets of a plan, by topic and partition.

    Args:
        file: path of the plan, for the message.
        fixed_topic: the topic of every row; None: each row keeps its topic. If several source topics go to one topic,
            the result is empty.

    Raises:
        StorageError: the file is not a plan of a Kafka source.
    """
    version, *rest = plan.splitlines() or [""]
    return _parse([version, *rest[1:]], fixed_topic, f"ends: file={file}")


def parse_starts(file: str, beginning: str, fixed_topic: str | None) -> dict[tuple[str, int], int]:
    """Return the start offsets of the first micro-batch, by topic and partition; see `parse_ends`."""
    return _parse(beginning.removeprefix("\0").splitlines(), fixed_topic, f"starts: file={file}")


def _parse(lines: Sequence[str], fixed_topic: str | None, what: str) -> _Offsets:
    """Return the offsets from the version's line and the source's line."""
    try:
        version, source = lines
        if version != _VERSION:
            raise ValueError(version)
        topics = {
            topic: {int(partition): int(offset) for partition, offset in partitions.items()}
            for topic, partitions in json.loads(source).items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise StorageError(f"Spark's checkpoint does not show where the source {what}; {_REMEDY}") from error
    if fixed_topic is not None:
        topics = {fixed_topic: next(iter(topics.values()))} if len(topics) == 1 else {}
    return {(topic, partition): offset for topic, offsets in topics.items() for partition, offset in offsets.items()}


def _is_mirror(records: RecordSettings) -> bool:
    return (
        _is_column(records.offset, "offset")
        and _is_column(records.partition, "partition")
        and (records.fixed_topic is not None or _is_column(records.topic, "topic"))
    )


def _is_column(expression: str | None, name: str) -> bool:
    return expression is not None and expression.strip().strip("`").lower() == name


def _partitions(topic: Mapping[str, object]) -> int:
    partitions = topic.get("partitions", 1)
    return partitions if isinstance(partitions, int) else 1


def _read(spark: SparkSession, checkpoint: str, name: str) -> str:
    """Read a file of the checkpoint with Spark's filesystem."""
    try:
        path = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(checkpoint, name)
        stream = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).open(path)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()
    except SPARK_ERRORS as error:
        raise StorageError(f"can't read Spark's plan of a micro-batch: {explain(error)} file={name}") from error
