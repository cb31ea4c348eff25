"""The columns of Spark's Kafka connector, made from decoded records.

The Arrow types must equal Spark's, which casts nothing. As in the connector, the headers of a record without headers
are null, and a missing timestamp (-1) is 1 ms before 1970.

Source: Spark's Structured Streaming + Kafka Integration Guide; KafkaRecordToRowConverter.
"""

from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["ROWS_PER_BATCH", "RowMaker", "kafka_columns"]

ROWS_PER_BATCH: Final = 65_536

_COLUMNS: Final = (
    T.StructField("key", T.BinaryType()),
    T.StructField("value", T.BinaryType()),
    T.StructField("topic", T.StringType()),
    T.StructField("partition", T.IntegerType()),
    T.StructField("offset", T.LongType()),
    T.StructField("timestamp", T.TimestampType()),
    T.StructField("timestampType", T.IntegerType()),
)
_HEADERS: Final = T.StructField(
    "headers",
    T.ArrayType(T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())])),
)

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_HEADERS_TYPE = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
_FIELDS = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", _TIMESTAMP),
    pa.field("timestampType", pa.int32()),
]
_US_PER_MS = 1000
_LARGEST_MS = (2**63 - 1) // _US_PER_MS


def kafka_columns(*, include_headers: bool) -> T.StructType:
    """Return the columns with Spark's types."""
    return T.StructType([*_COLUMNS, _HEADERS] if include_headers else [*_COLUMNS])


class RowMaker:
    """Turns the records of one log into rows.

    The columns of topic and partition, equal in every row, are built once and sliced.
    """

    def __init__(self, log: TopicPartition, *, include_headers: bool) -> None:
        self._topic = _repeated_text(log.topic)
        self._partition = pa.array(np.full(ROWS_PER_BATCH, log.partition, np.int32))
        self._include_headers = include_headers
        self._schema = pa.schema([*_FIELDS, pa.field("headers", _HEADERS_TYPE)] if include_headers else _FIELDS)

    def rows(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return `ROWS_PER_BATCH` records or fewer as rows; a timestamp that Spark can't hold is null.

        Args:
            records: `RECORD_SCHEMA`.
        """
        count = records.num_rows
        columns = [
            records.column("key"),
            records.column("value"),
            self._topic.slice(0, count),
            self._partition.slice(0, count),
            records.column("offset"),
            _timestamps(records.column("timestamp")),
            records.column("timestamp_type").cast(pa.int32()),
        ]
        if self._include_headers:
            columns.append(_headers(records.column("headers")))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _repeated_text(text: str) -> pa.Array:
    data = text.encode()
    offsets = np.arange(ROWS_PER_BATCH + 1, dtype=np.int32) * np.int32(len(data))
    return pa.Array.from_buffers(
        pa.string(), ROWS_PER_BATCH, [None, pa.py_buffer(offsets), pa.py_buffer(data * ROWS_PER_BATCH)]
    )


def _timestamps(column: pa.Array) -> pa.Array:
    milliseconds = column.to_numpy()
    validity = None
    if len(milliseconds) and (milliseconds.max() > _LARGEST_MS or milliseconds.min() < -_LARGEST_MS):
        fits = (milliseconds <= _LARGEST_MS) & (milliseconds >= -_LARGEST_MS)
        validity = pa.py_buffer(np.packbits(fits, bitorder="little"))
        milliseconds = np.where(fits, milliseconds, 0)
    buffers = [validity, pa.py_buffer(milliseconds * _US_PER_MS)]
    return pa.Array.from_buffers(_TIMESTAMP, len(milliseconds), buffers)


def _headers(column: pa.Array) -> pa.Array:
    """Return the headers, null if a record has none; copies no pairs."""
    offsets = column.offsets.to_numpy()
    pairs = column.values
    pairs = pa.StructArray.from_arrays(pairs.flatten(), fields=list(_HEADERS_TYPE.value_type))
    validity = pa.py_buffer(np.packbits(offsets[1:] > offsets[:-1], bitorder="little"))
    buffers = [validity, pa.py_buffer(np.ascontiguousarray(offsets))]
    return pa.Array.from_buffers(_HEADERS_TYPE, len(column), buffers, children=[pairs])
