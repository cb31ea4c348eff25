"""`spark.read.format("kafka-log")` on a real local Spark."""

import base64
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparklog import LogSink
from sparklog.pipeline.places.store_view import open_logs
from tests.build.cut_store import HOUR_MS, NOON_MS, append_by_clock, forget_past
from tests.build.golden import GoldenLog, golden_logs
from tests.build.sink_store import in_process, numbers, open_events
from tests.build.written_log import Batch, write_log

pytestmark = pytest.mark.spark

_COLUMNS = [
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("timestampType", "int"),
]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _expected(case: GoldenLog) -> list[dict[str, Any]]:
    """What the consumer read, as rows."""
    return [
        {
            "offset": record["offset"],
            "key": _bytes(record["key"]),
            "value": _bytes(record["value"]),
            "us": record["timestamp"] * 1000,
            "timestampType": _TIMESTAMP_TYPES[record["timestamp_type"]],
            "headers": [{"key": key, "value": _bytes(value)} for key, value in record["headers"]] or None,
        }
        for record in case.expected["records"]
    ]


_TIMESTAMP_TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    columns = ("offset", "key", "value", F.unix_micros("timestamp").alias("us"), "timestampType", "headers")
    rows = [row.asDict(recursive=True) for row in frame.select(*columns).orderBy("offset").collect()]
    return [{**row, "key": _plain(row["key"]), "value": _plain(row["value"])} for row in rows]


def _load(spark: SparkSession, path: Path, **options: object) -> DataFrame:
    """Return a frame; a reader of Spark's keeps the options of the frame before."""
    return spark.read.format("kafka-log").options(**options).load(str(path))


def _plain(data: bytearray | bytes | None) -> bytes | None:
    return None if data is None else bytes(data)


@pytest.mark.parametrize("case", golden_logs())
def test_frame_when_a_broker_wrote_the_log_then_rows_are_what_its_consumer_read(
    spark: SparkSession, case: GoldenLog
) -> None:
    """Offsets, keys, values, timestamps and their types, headers: as read by Kafka's own consumer, in both levels."""
    starting = json.dumps({case.expected["topic"]: {"0": case.expected["log_start_offset"]}})
    options = {"includeHeaders": "true", "startingOffsets": starting}

    found = _rows(_load(spark, case.directory, **options))
    committed = _rows(_load(spark, case.directory, **options, **{"kafka.isolation.level": "read_committed"}))

    assert found == _expected(case)
    assert [row["offset"] for row in committed] == case.expected["read_committed_offsets"]


def test_frame_when_loaded_then_columns_are_the_connectors(spark: SparkSession, tmp_path: Path) -> None:
    """The same names, types and order, so a query moves from one to the other by its format alone."""
    write_log(tmp_path / "t-0", [[Batch([1, 2, 3])]])

    assert _load(spark, tmp_path).dtypes == _COLUMNS
    with_headers = _load(spark, tmp_path, includeHeaders=True)
    assert with_headers.dtypes == [*_COLUMNS, ("headers", "array<struct<key:string,value:binary>>")]


def test_frame_when_a_sink_wrote_the_store_then_its_rows_come_back(spark: SparkSession, tmp_path: Path) -> None:
    """A store read back is the frame that was written, whatever its tasks."""
    values = spark.range(20_000).selectExpr("cast(id % 100 as string) as key", "cast(id as string) as value")
    topics = {"t": {"partitions": 3, "compression.type": "zstd", "segment.bytes": 100_000, "batch.size": 2000}}
    with LogSink(tmp_path / "store", topics=topics, topic="t") as sink:
        sink.write(values, query_id="q")

    frame = _load(spark, tmp_path / "store", minPartitions=10)

    assert frame.rdd.getNumPartitions() >= 10
    found = frame.selectExpr("cast(key as string)", "cast(value as string)")
    assert found.exceptAll(values).count() == 0
    assert found.count() == 20_000
    offsets = frame.groupBy("partition").agg(F.count("*"), F.min("offset"), F.max("offset"), F.countDistinct("offset"))
    assert all(count == distinct == last + 1 and first == 0 for _, count, first, last, distinct in offsets.collect())


def test_frame_when_logs_are_empty_then_it_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing to read is an empty frame, not an error."""
    (tmp_path / "t-0").mkdir()

    assert _load(spark, tmp_path).count() == 0


def test_frame_when_used_in_sql_then_filters_and_joins_hold(spark: SparkSession, tmp_path: Path) -> None:
    """Queries on one frame don't disturb one another, whatever they filter by."""
    for partition in (0, 1, 2):
        write_log(tmp_path / f"t-{partition}", [[Batch([partition] * (10 + partition))]])
    frame = _load(spark, tmp_path)

    assert frame.where("partition = 2").count() == 12
    assert dict(frame.groupBy("partition").count().collect()) == {0: 10, 1: 11, 2: 12}
    both = frame.where("partition = 1").union(frame.where("partition = 2"))
    assert dict(both.groupBy("partition").count().collect()) == {1: 11, 2: 12}
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW logs USING `kafka-log` OPTIONS (path '{tmp_path}', subscribe 't')")
    assert spark.sql("SELECT count(*) FROM logs WHERE offset >= 10").collect()[0][0] == 3


def test_frame_when_asked_for_an_earlier_version_then_later_records_are_not_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    """`asOfVersion` reads the store as its ledger was."""
    with closing(open_events(tmp_path / "store")) as writer:
        for batch in range(3):
            writer.append("q", batch, in_process(numbers(batch * 10, batch * 10 + 10)))
    newest = open_logs(tmp_path / "store").ledger_version or 0

    counts = [_load(spark, tmp_path / "store", asOfVersion=newest - back).count() for back in (2, 1, 0)]

    assert counts == [10, 20, 30]


def test_frame_when_as_of_a_time_then_it_is_the_newest_cut_not_later(spark: SparkSession, tmp_path: Path) -> None:
    """The ledger keeps its own past for a minute; an hour back there is a cut."""
    append_by_clock(tmp_path / "s", [10, 70, 130, 190])
    forget_past(tmp_path / "s")

    frames = [_load(spark, tmp_path / "s", asOfTimestamp=NOON_MS + hour * HOUR_MS + 1) for hour in (1, 2, 3)]

    assert [frame.count() for frame in frames] == [10, 20, 30]
    assert [frames[1].agg({"offset": name}).first()[0] for name in ("min", "max")] == [0, 19]


def test_frame_when_its_store_grows_then_it_stays_as_it_was_planned(spark: SparkSession, tmp_path: Path) -> None:
    """All queries on one frame see one state of the store; a new frame sees the newest."""
    with closing(open_events(tmp_path / "store")) as writer:
        writer.append("q", 0, in_process(numbers(0, 10)))
        frame = _load(spark, tmp_path / "store")
        counts = [frame.count()]
        writer.append("q", 1, in_process(numbers(10, 30)))
        counts += [frame.count(), frame.where("offset >= 0").count(), _load(spark, tmp_path / "store").count()]

    assert counts == [10, 10, 10, 30]


def test_frame_when_a_range_is_asked_for_then_only_that_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """Offsets and times bound what is read, at both ends."""
    write_log(tmp_path / "t-0", [[Batch(list(range(0, 100, 10)))], [Batch(list(range(100, 200, 10)))]])

    offsets = _load(spark, tmp_path, startingOffsets='{"t": {"0": 3}}', endingOffsets='{"t": {"0": 15}}')
    times = _load(spark, tmp_path, subscribe="t", startingTimestamp=55, endingTimestamp=155)

    assert [row.offset for row in offsets.orderBy("offset").collect()] == list(range(3, 15))
    assert [row.offset for row in times.orderBy("offset").collect()] == list(range(6, 16))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"kafka.bootstrap.servers": "x:1", "subscribe": " "}, "there is no broker"),
        ({"kafka.bootstrap.servers": "x:1", "subscribe": " "}, "names no topic"),
        ({"subscribe": "nope"}, "topics that do not exist: nope topics=t"),
        ({"startingOffsets": '{"t": {"0": 99}}'}, "log=t-0 offset=99 start=0 end=3"),
        ({"maxOffsetsPerTrigger": "1"}, "only a stream has triggers"),
    ],
)
def test_frame_when_options_are_wrong_then_the_error_says_so(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], what: str
) -> None:
    """The message that reaches the user names the option or the offset."""
    write_log(tmp_path / "t-0", [[Batch([1, 2, 3])]])

    with pytest.raises(PySparkException) as caught:
        _load(spark, tmp_path, **options).count()

    assert what in str(caught.value)


def test_frame_when_a_byte_is_flipped_then_the_error_names_the_file_unless_loss_is_allowed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Damage never gives wrong rows: the query fails, or goes on without the batch."""
    log = write_log(tmp_path / "t-0", [[Batch([1] * 10)] * 5])
    path, position, size, *_ = log.batches[2]
    data = bytearray(path.read_bytes())
    data[position + size - 1] ^= 1
    path.write_bytes(data)

    with pytest.raises(PySparkException) as caught:
        _load(spark, tmp_path).count()

    assert f"file={path} position={position}" in str(caught.value)
    assert _load(spark, tmp_path, failOnDataLoss=False).count() == 40


def test_frame_when_given_other_columns_then_they_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The columns are fixed, as the connector's are."""
    write_log(tmp_path / "t-0", [[Batch([1])]])

    with pytest.raises(PySparkException) as caught:
        spark.read.format("kafka-log").schema("value string").load(str(tmp_path)).count()

    assert "the columns of kafka-log are fixed" in str(caught.value)
