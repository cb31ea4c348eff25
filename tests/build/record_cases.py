"""Records by the handful, as Arrow columns and back, for tests of batches."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from sparklog.storage_core.record.schema import HEADERS_TYPE
from sparklog.storage_core.record.v2.batch_encode import EncodedBatches, EncodeOptions, RecordColumns, encode_batches
from tests.plain.scalar import Record

__all__ = ["SPECIMENS", "columns_of", "encode", "records_of", "split_batches"]

SPECIMENS = [
    Record(offset=0, timestamp=1000, key=b"k", value=b"v", headers=(("h1", b"x"), ("é", None))),
    Record(offset=1, timestamp=1005, key=b"k2", value=b"v2"),
    Record(offset=2, timestamp=990, key=None, value=None),
    Record(offset=3, timestamp=-1, key=b"", value=b"", headers=(("", b""), ("h", b"1"), ("h", b"2"))),
    Record(offset=4, timestamp=2**63 - 1, key=bytes(64), value=bytes(range(256)) * 40),
    Record(offset=5, timestamp=-(2**63), key=b"\xff\xfe", value=None),
]
"""One record of every kind: nulls, empties, headers, repeated headers, extreme timestamps, two-byte lengths."""


def columns_of(records: Sequence[Record], *, preserved: bool = False) -> RecordColumns:
    """Return records as columns; with their offsets, or without."""
    headers = [[{"key": name, "value": content} for name, content in record.headers] for record in records]
    return RecordColumns(
        key=pa.array([record.key for record in records], pa.binary()),
        value=pa.array([record.value for record in records], pa.binary()),
        timestamp=np.array([record.timestamp for record in records], np.int64),
        headers=pa.array(headers, HEADERS_TYPE),
        offset=np.array([record.offset for record in records], np.int64) if preserved else None,
    )


def encode(
    records: Sequence[Record], options: EncodeOptions | None = None, *, preserved: bool = False
) -> EncodedBatches:
    """Return one group of records as batches."""
    rows = np.arange(len(records), dtype=np.int64)
    starts = np.array([0, len(records)], np.int64)
    return encode_batches(columns_of(records, preserved=preserved), rows, starts, options or EncodeOptions())


def split_batches(encoded: EncodedBatches) -> list[bytes]:
    """Return each batch's bytes."""
    data = encoded.data.tobytes()
    spans = zip(encoded.position.tolist(), encoded.size.tolist(), strict=True)
    return [data[position : position + size] for position, size in spans]


def records_of(batch: pa.RecordBatch) -> list[Record]:
    """Return decoded columns as records."""
    return [
        Record(
            offset=row["offset"],
            timestamp=row["timestamp"],
            key=row["key"],
            value=row["value"],
            headers=tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in batch.to_pylist()
    ]
