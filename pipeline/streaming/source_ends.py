"""Where a Kafka source's logs start and end in a planned micro-batch, as Spark has written it down.

A topic's last offsets may hold no record that Spark brings: transaction markers, aborted or compacted records. So the
rows of a micro-batch do not tell where its source ends. Spark's plan does: it is in the checkpoint, as
`offsets/<batch id>`, before the micro-batch runs, and stays the same when it runs again. A later question to the broker
would be answered with offsets whose records this micro-batch lacks.

| line of the file | what |
|---|---|
| 1 | the format's version, `v1` |
| 2 | watermark, time and settings of the micro-batch |
| 3 | where the source ends: `{"topic":{"partition":next offset}}` |

A micro-batch starts where the one before ended. The first one's start is in `sources/0/0`: a zero byte, the version's
line, and a line like the third one. Neither knows a partition that Spark finds while it plans the micro-batch.

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
"""Tells where the mirror's logs start and end in a micro-batch, by topic and partition."""

_Offsets = dict[tuple[str, int], int]

_BEGINNING = "sources/0/0"
_VERSION = "v1"
_REMEDY = "restore the file, or take a new checkpoint, with `startingOffsets` at the ends of the store's logs"


def find_source_ends(settings: Settings) -> SourceEnds:
    """Return what tells the end offsets of each micro-batch; of a job that is no mirror it knows none.

    A job is a mirror if offsets are preserved and come from a Kafka source as they are, each with its partition, and
    either with its topic or from one topic into one topic.
    """
    if settings.offsets != "preserved" or settings.source.format != "kafka":
        return lambda _spark, _batch_id: PlannedEnds({})
    if not _is_mirror(settings.records):
        logger.warning(
            "Logs may end below their sources, which may end in offsets without a record: records.offset,"
            " records.partition or records.topic is not the source's own"
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
    """Return the end offsets that a plan tells, by topic and partition.

    Args:
        file: where it lies, for the message.
        plan: text of the file.
        fixed_topic: the topic of every row; None: each keeps its own. Nothing is known of a topic that several ones
            are written to.

    Raises:
        StorageError: the file is none of a Kafka source's.
    """
    version, *rest = plan.splitlines() or [""]
    return _parse([version, *rest[1:]], fixed_topic, f"ends: file={file}")


def parse_starts(file: str, beginning: str, fixed_topic: str | None) -> dict[tuple[str, int], int]:
    """Return where the first micro-batch starts, by topic and partition; see `parse_ends`."""
    return _parse(beginning.removeprefix("\0").splitlines(), fixed_topic, f"starts: file={file}")


def _parse(lines: Sequence[str], fixed_topic: str | None, what: str) -> _Offsets:
    """Return the offsets of a version's line and a source's one."""
    try:
        version, source = lines
        if version != _VERSION:
            raise ValueError(version)
        topics = {
            topic: {int(partition): int(offset) for partition, offset in partitions.items()}
            for topic, partitions in json.loads(source).items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise StorageError(f"Spark's checkpoint does not tell where the source {what}; {_REMEDY}") from error
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
    """Read a file of the checkpoint as Spark does, wherever that lies."""
    try:
        path = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(checkpoint, name)
        stream = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).open(path)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()
    except SPARK_ERRORS as error:
        raise StorageError(f"can't read Spark's plan of a micro-batch: {explain(error)} file={name}") from error
