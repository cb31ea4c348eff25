import datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from sparklog.pipeline.settings.stream_settings import RecordSettings
from sparklog.pipeline.streaming.transforms import select_records
from sparklog.sink.config import SinkConfig
from sparklog.sink.stage.frame_schema import select_columns
from sparklog.storage_core.errors import InvalidConfigError

pytestmark = pytest.mark.spark


def _frame(spark: SparkSession) -> DataFrame:
    return spark.sql(
        "select 'a' as name, 7 as number, cast(null as string) as nothing, '2013-01-01T10:00:00Z' as stamp,"
        " 'soon' as unparsable, map('h', 'x') as pairs, array(struct('k' as name, cast('v' as binary) as d)) as heads"
    )


def _only_row(spark: SparkSession, **expressions: str) -> dict[str, Any]:
    records = RecordSettings(**{"topic": "name", "value": "name", **expressions})
    row = select_records(_frame(spark), records).first()
    assert row is not None
    found: dict[str, Any] = row.asDict(recursive=True)
    return found


def test_select_records_when_topic_is_a_text_then_no_topic_column(spark: SparkSession) -> None:
    """A fixed topic is the sink's setting and not shipped with every row; absent expressions make no column."""
    frame = select_records(_frame(spark), RecordSettings(topic="'t'", value="name"))

    assert frame.columns == ["value"]


def test_select_records_when_all_are_given_then_the_sink_takes_the_frame(spark: SparkSession) -> None:
    """The columns have the names and types that the sink asks for."""
    records = RecordSettings(
        topic="name",
        partition="number % 3",
        key="name",
        value="to_json(struct(*))",
        timestamp="stamp",
        headers="heads",
        offset="number",
    )
    config = SinkConfig.from_options("s", {"a": {}}, offsets="preserved")

    selected = select_columns(select_records(_frame(spark), records), config)

    assert set(selected.columns) == {"topic", "partition", "offset", "timestamp", "key", "value", "headers"}


@pytest.mark.parametrize(
    ("expression", "milliseconds"),
    [
        ("stamp", 1357034400000),
        ("to_timestamp(stamp)", 1357034400000),
        ("cast('2013-01-01 10:00:00' as timestamp_ntz)", 1357034400000),
        ("date'2013-01-01'", 1356998400000),
        ("1357034400000L", 1357034400000),
        ("number", 7),
    ],
)
def test_select_records_when_timestamp_has_another_type_then_same_instant(
    spark: SparkSession, expression: str, milliseconds: int
) -> None:
    """Texts, dates and timestamps without zone are read as UTC, integers as ms."""
    found = _only_row(spark, timestamp=expression)["timestamp"]
    if isinstance(found, datetime.datetime):
        frame = select_records(_frame(spark), RecordSettings(topic="name", value="name", timestamp=expression))
        found = frame.selectExpr("unix_millis(timestamp) as ms").first()["ms"]

    assert found == milliseconds


def test_select_records_when_timestamp_does_not_parse_then_null(spark: SparkSession) -> None:
    """An unparsable text is a null in a timestamp column that is there, which the sink refuses."""
    assert _only_row(spark, timestamp="unparsable")["timestamp"] is None


@pytest.mark.parametrize("expression", ["heads", "pairs"])
def test_select_records_when_headers_are_pairs_then_key_and_value(spark: SparkSession, expression: str) -> None:
    """Maps and arrays of two-field structs become the sink's headers, whatever their fields are called."""
    (header,) = _only_row(spark, headers=expression)["headers"]

    assert list(header) == ["key", "value"]
    assert isinstance(header["value"], (bytes, bytearray))


def test_select_records_when_expression_is_null_then_typed_null(spark: SparkSession) -> None:
    """`null` without a type becomes a null of the column's type."""
    row = _only_row(spark, key="null", value="null", partition="null", headers="null")

    assert (row["key"], row["value"], row["partition"], row["headers"]) == (None, None, None, None)


def test_select_records_when_expressions_are_wrong_then_all_named_in_one_line(spark: SparkSession) -> None:
    """Every wrong expression is named by its key, with Spark's reason and without a plan or a stack trace."""
    records = RecordSettings(
        topic="number",
        partition="name",
        key="(name",
        value="nam",
        timestamp="pairs",
        headers="name",
    )
    with pytest.raises(InvalidConfigError) as caught:
        select_records(_frame(spark), records)
    problems = str(caught.value)

    for part in (
        "records.topic: is int, wanted string",
        "records.partition: is string, wanted int",
        "records.key: [PARSE_SYNTAX_ERROR]",
        "records.value: [UNRESOLVED_COLUMN.WITH_SUGGESTION]",
        "records.timestamp: is map<string,string>, wanted timestamp, or bigint ms",
        "records.headers: is string, wanted array<struct<key:string,value:binary>> or map<string,binary>",
    ):
        assert part in problems
    assert "\n" not in problems
    assert "SQLSTATE" not in problems
    assert "pos 0" not in problems


def test_select_records_when_expression_is_a_star_then_refused(spark: SparkSession) -> None:
    """An expression is one column."""
    with pytest.raises(InvalidConfigError, match=r"records\.value: is 7 columns, wanted one"):
        select_records(_frame(spark), RecordSettings(topic="name", value="*"))
