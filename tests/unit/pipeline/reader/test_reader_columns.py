"""Records as rows of the connector's columns."""

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from sparklog.pipeline.reader.columns import ROWS_PER_BATCH, RowMaker, kafka_columns
from sparklog.storage_core.record.schema import RECORD_SCHEMA
from sparklog.storage_core.topic_partition import TopicPartition

_LOG = TopicPartition("orders-eu", 7)
_LARGEST_MS = (2**63 - 1) // 1000


def _records(*rows: dict[str, object]) -> pa.RecordBatch:
    plain = {"offset": 0, "timestamp": 1, "timestamp_type": 0, "leader_epoch": 0, "key": None, "value": b"v"}
    return pa.RecordBatch.from_pylist([plain | {"headers": []} | row for row in rows], schema=RECORD_SCHEMA)


def test_rows_when_made_then_arrow_types_are_exactly_those_spark_compares() -> None:
    """Names, order, types and nullability are what Spark derives from the columns."""
    for include_headers in (False, True):
        wanted = to_arrow_schema(kafka_columns(include_headers=include_headers), timezone="UTC")

        made = RowMaker(_LOG, include_headers=include_headers).rows(_records({}))

        assert made.schema.equals(wanted)


def test_rows_when_made_then_they_hold_the_records() -> None:
    """Topic and partition are the log's, times are in us, the rest is as it was."""
    records = _records(
        {"offset": 5, "timestamp": 1_700_000_000_123, "key": b"k"},
        {"offset": 9, "timestamp": -1, "timestamp_type": -1, "value": None},
        {"offset": 10, "timestamp_type": 1},
    )

    rows = RowMaker(_LOG, include_headers=False).rows(records)

    assert rows.column("topic").to_pylist() == ["orders-eu"] * 3
    assert rows.column("partition").to_pylist() == [7] * 3
    assert rows.column("offset").to_pylist() == [5, 9, 10]
    assert rows.column("key").to_pylist() == [b"k", None, None]
    assert rows.column("value").to_pylist() == [b"v", None, b"v"]
    assert rows.column("timestamp").cast(pa.int64()).to_pylist() == [1_700_000_000_123_000, -1000, 1000]
    assert rows.column("timestampType").to_pylist() == [0, -1, 1]


def test_rows_when_records_are_a_slice_then_headers_are_those_of_the_slice() -> None:
    """A record without headers has null for them, as in the connector; a null value stays one."""
    pairs = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    records = _records({"headers": pairs[:1]}, {}, {"headers": pairs}, {"headers": [{"key": "", "value": b""}]})

    rows = RowMaker(_LOG, include_headers=True).rows(records.slice(1, 2))

    assert rows.column("headers").to_pylist() == [None, pairs]
    rows.validate(full=True)


def test_rows_when_a_timestamp_does_not_fit_then_it_is_null() -> None:
    """Spark counts us in 64 bits: what is beyond has no value there, and never a wrong one."""
    records = _records({"timestamp": _LARGEST_MS}, {"timestamp": _LARGEST_MS + 1}, {"timestamp": -(2**63)})

    times = RowMaker(_LOG, include_headers=False).rows(records).column("timestamp").cast(pa.int64())

    assert times.to_pylist() == [_LARGEST_MS * 1000, None, None]


def test_rows_when_a_batch_is_full_then_topic_and_partition_reach() -> None:
    """The largest batch has a topic in each row."""
    offsets = pa.array(range(ROWS_PER_BATCH), pa.int64())
    records = pa.RecordBatch.from_arrays(
        [
            offsets,
            offsets,
            pa.nulls(ROWS_PER_BATCH, pa.int8()).fill_null(0),
            pa.nulls(ROWS_PER_BATCH, pa.int32()).fill_null(0),
            pa.nulls(ROWS_PER_BATCH, pa.binary()),
            pa.nulls(ROWS_PER_BATCH, pa.binary()),
            pa.array([[]] * ROWS_PER_BATCH, RECORD_SCHEMA.field("headers").type),
        ],
        schema=RECORD_SCHEMA,
    )

    rows = RowMaker(_LOG, include_headers=False).rows(records)

    assert rows.num_rows == ROWS_PER_BATCH
    assert rows.column("topic").null_count == 0
    assert rows.column("topic")[-1].as_py() == "orders-eu"
    rows.validate(full=True)
