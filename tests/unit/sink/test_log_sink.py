"""The sink as a Spark program meets it: frames and their columns, streams, errors."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparklog
from sparklog.sink.config import SinkConfig
from sparklog.sink.stage.frame_schema import select_columns
from sparklog.storage_core.errors import InvalidConfigError, InvalidRecordError
from tests.build.sink_store import contents, read_store

pytestmark = pytest.mark.spark

_HEADERS = "array<struct<key:string,value:binary>>"


def _config(**options: Any) -> SinkConfig:
    return SinkConfig.from_options("store", {"events": {"partitions": 2}}, **{"topic": "events", **options})


def _frame(spark: SparkSession, **columns: str) -> DataFrame:
    """Return an empty frame with these columns and types."""
    return spark.createDataFrame([], ", ".join(f"{name} {kind}" for name, kind in columns.items()))


@pytest.mark.parametrize(
    ("options", "columns", "problems"),
    [
        ({}, {"key": "string"}, ["column 'value' is missing"]),
        ({}, {"value": "int"}, ["column 'value' is int, wanted binary or string"]),
        (
            {"topic": None, "offsets": "preserved"},
            {"value": "string"},
            ["column 'topic' is missing", "column 'offset' is missing"],
        ),
        (
            {"topic": None},
            {"value": "double", "topic": "int", "partition": "string", "key": "bigint", "timestamp": "string"},
            ["'topic' is int", "'partition' is string", "'timestamp' is string", "'key' is big", "'value' is double"],
        ),
        ({}, {"value": "string", "timestamp": "date"}, ["column 'timestamp' is date, wanted timestamp, or bigint ms"]),
        ({}, {"value": "string", "headers": "map<string,binary>"}, ["column 'headers' is map<string,binary>"]),
        ({}, {"value": "string", "headers": "array<struct<name:string,value:binary>>"}, ["column 'headers' is"]),
    ],
)
def test_select_columns_when_the_frame_does_not_fit_then_lists_every_problem(
    spark: SparkSession, options: dict[str, Any], columns: dict[str, str], problems: list[str]
) -> None:
    """A frame without a required column, or with one of another type, never gets to an executor."""
    with pytest.raises(InvalidConfigError) as refusal:
        select_columns(_frame(spark, **columns), _config(**options))

    assert all(problem in str(refusal.value) for problem in problems)


def test_select_columns_when_columns_are_not_the_sinks_then_leaves_them_out(spark: SparkSession) -> None:
    """Also a topic column where the topic is fixed, and an offset column where offsets are assigned."""
    frame = _frame(
        spark, extra="int", offset="int", headers=_HEADERS, value="string", partition="smallint", topic="string"
    )

    assert select_columns(frame, _config()).dtypes == [
        ("partition", "bigint"),
        ("value", "string"),
        ("headers", _HEADERS),
    ]
    assert "topic" in select_columns(frame, _config(topic=None)).columns
    assert "offset" in select_columns(frame, _config(offsets="preserved")).columns


@pytest.mark.parametrize("value", ["binary", "string"])
def test_select_columns_when_records_have_no_headers_then_their_list_is_empty(spark: SparkSession, value: str) -> None:
    """A null list, as of Spark's Kafka source, makes its Arrow writer walk over the batch once more for each row."""
    kind = f"array<struct<key:string,value:{value}>>"
    frame = spark.createDataFrame([("a", None), ("b", []), ("c", [("h", None)])], f"value string, headers {kind}")

    selected = select_columns(frame, _config())

    assert not selected.schema["headers"].nullable
    assert selected.dtypes == [("value", "string"), ("headers", kind)]
    assert [row["headers"] for row in selected.collect()] == [[], [], [("h", None)]]


def test_write_when_a_frame_has_every_column_then_stores_it(spark: SparkSession, memory_path: Path) -> None:
    """Timestamps are taken to the millisecond, rounded down; strings are their UTF-8 bytes."""
    frame = spark.sql(
        """
        select 'events' as topic, 1 as partition, 'ключ' as key, cast('v' as binary) as value,
               timestamp '1969-12-31 23:59:59.999999Z' + interval 1 second as timestamp,
               array(struct('h' as key, cast('x' as binary) as value)) as headers
        """
    )
    with sparklog.LogSink(memory_path, topics={"events": {"partitions": 2}}) as sink:
        metrics = sink.write(frame, query_id="batch")

    (record,) = read_store(memory_path)["events-1"]
    assert (record.offset, record.timestamp, record.key, record.value) == (0, 999, "ключ".encode(), b"v")
    assert (metrics.records, metrics.logs, metrics.replayed) == (1, 1, False)


def test_write_when_rows_lie_in_many_splits_then_their_order_is_the_splits(
    spark: SparkSession, memory_path: Path
) -> None:
    """Inside a log: split by split, row by row; a split without rows, or without a file, is no gap."""
    wanted = "id % 1000 > 5 and id not between 1100 and 2300"
    frame = spark.range(0, 4000, 1, 7).where(wanted).selectExpr("cast(id as string) as value", "'key' as key")
    topics = {"events": {"partitions": 1, "segment.bytes": 4000, "batch.size": 300}}
    with sparklog.LogSink(memory_path, topics=topics, topic="events") as sink:
        metrics = sink.write(frame, query_id="batch")

    stored = [int(record.value or b"") for record in read_store(memory_path)["events-0"]]
    assert stored == [row["id"] for row in spark.range(0, 4000).where(wanted).collect()]
    assert metrics.rolls > 5


@pytest.mark.parametrize("text", ["not a time", None])
def test_write_when_a_timestamp_could_not_be_parsed_then_names_split_and_row(
    spark: SparkSession, memory_path: Path, text: str | None
) -> None:
    """What Spark could not parse is null by then."""
    frame = spark.createDataFrame([("2024-01-01", "a"), (text, "b")], "time string, value string").coalesce(1)
    frame = frame.select(F.try_to_timestamp("time").alias("timestamp"), "value")
    with sparklog.LogSink(memory_path, topics={"events": {}}, topic="events") as sink:
        before = contents(memory_path)
        with pytest.raises(InvalidRecordError, match=r"'timestamp' is null.*topic=events row=1 of input split 0"):
            sink.write(frame, query_id="batch")

        assert isinstance(sink.last_error, InvalidRecordError)
        assert contents(memory_path) == before


def test_stream_when_a_row_is_bad_then_fails_with_the_sinks_message(spark: SparkSession, tmp_path: Path) -> None:
    """Spark passes on the text, the sink keeps the error."""
    spark.range(10).selectExpr("cast(if(id = 7, null, id) as timestamp) as timestamp", "'v' as value").coalesce(
        1
    ).write.parquet(str(tmp_path / "input"))
    with sparklog.LogSink(tmp_path / "store", topics={"events": {}}, topic="events") as sink:
        frame = spark.readStream.schema("timestamp timestamp, value string").parquet(str(tmp_path / "input"))
        query = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
        with pytest.raises(Exception, match="row=7 of input split 0"):
            query.trigger(availableNow=True).start().awaitTermination()

        assert isinstance(sink.last_error, InvalidRecordError)
    assert read_store(tmp_path / "store") == {"events-0": []}


def test_call_when_no_stream_runs_then_points_to_write(spark: SparkSession, memory_path: Path) -> None:
    """A plain frame has no query id."""
    frame = spark.range(1).selectExpr("cast(id as string) as value")
    with closing(sparklog.LogSink(memory_path, topics={"events": {}}, topic="events")) as sink:
        assert sink.last_error is None
        with pytest.raises(InvalidConfigError, match=r"call write\(\) for a plain frame"):
            sink(frame, 0)


def test_write_when_offsets_go_back_across_splits_then_names_the_row(spark: SparkSession, memory_path: Path) -> None:
    """The frame is staged a second time to find it."""
    frame = spark.range(0, 8, 1, 2).selectExpr("cast(id as string) as value", "if(id = 6, 2, id) as offset")
    with sparklog.LogSink(memory_path, topics={"events": {}}, topic="events", offsets="preserved") as sink:
        before = contents(memory_path)
        with pytest.raises(InvalidRecordError, match=r"'offset' goes back.*partition=0 row=2 of input split 1"):
            sink.write(frame, query_id="batch")
        assert contents(memory_path) == before


def test_write_when_offsets_go_back_and_are_quarantined_then_keeps_the_rest(
    spark: SparkSession, memory_path: Path
) -> None:
    """The diverted rows can be read with Spark."""
    frame = spark.range(0, 8, 1, 2).selectExpr("cast(id as string) as value", "if(id = 6, 2, id) as offset")
    options: dict[str, Any] = {"offsets": "preserved", "on_invalid": "quarantine"}
    with sparklog.LogSink(memory_path, topics={"events": {}}, topic="events", **options) as sink:
        metrics = sink.write(frame, query_id="batch")

    assert (metrics.records, metrics.quarantined) == (7, 1)
    assert [record.offset for record in read_store(memory_path)["events-0"]] == [0, 1, 2, 3, 4, 5, 7]
    (row,) = spark.read.parquet(str(next((memory_path / "quarantine").glob("*/query-batch/0")))).collect()
    assert (row["value"], row["offset"], row["reason"], row["row"]) == ("6", 2, "offset goes back or repeats", 2)
