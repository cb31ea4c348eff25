import numpy as np
import pyarrow as pa
import pytest

from sparklog.storage_core.errors import InvalidRecordError
from sparklog.storage_core.record.batch_decode import decode_batches
from sparklog.storage_core.record.schema import HEADERS_TYPE
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions, RecordColumns, encode_batches
from tests.build.record_cases import SPECIMENS, columns_of, records_of

_BINARY_TYPES = [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()]


def _round_trip(columns: RecordColumns) -> pa.RecordBatch:
    count = len(columns)
    encoded = encode_batches(columns, np.arange(count), np.array([0, count]), EncodeOptions())
    return decode_batches(encoded.data)


@pytest.mark.parametrize("kind", _BINARY_TYPES, ids=str)
def test_columns_when_binary_or_string_large_or_not_then_bytes_survive(kind: pa.DataType) -> None:
    """Keys and values may be any of Arrow's four types of bytes."""
    texts = pa.array(["a", None, "", "é" * 100], kind)
    decoded = _round_trip(RecordColumns.from_arrow({"key": texts, "value": texts}))

    assert decoded.column("key").to_pylist() == [b"a", None, b"", "é".encode() * 100]
    assert decoded.column("value").equals(decoded.column("key"))


@pytest.mark.parametrize("start", [1, 3, 5])
def test_columns_when_sliced_then_only_the_slice_is_encoded(start: int) -> None:
    """A slice's offset counts in every buffer: bytes, nulls, header lists and their children."""
    whole = pa.RecordBatch.from_pydict(
        {
            "key": columns_of(SPECIMENS).key,
            "value": columns_of(SPECIMENS).value,
            "headers": columns_of(SPECIMENS).headers,
            "timestamp": pa.array([record.timestamp for record in SPECIMENS]),
        }
    )
    records = records_of(_round_trip(RecordColumns.from_arrow(whole.slice(start))))

    assert [(r.key, r.value, r.timestamp, r.headers) for r in records] == [
        (r.key, r.value, r.timestamp, r.headers) for r in SPECIMENS[start:]
    ]


def test_columns_when_header_children_are_sliced_then_their_own_offsets_count() -> None:
    """A list over a slice of structs reads the slice."""
    pairs = pa.array([{"key": name, "value": name.encode()} for name in "abcde"], HEADERS_TYPE.value_type).slice(2)
    headers = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), pairs)
    decoded = _round_trip(RecordColumns.from_arrow({"value": pa.array([b"1", b"2"]), "headers": headers}))

    assert [[each["key"] for each in row] for row in decoded.column("headers").to_pylist()] == [["c"], ["d", "e"]]


def test_columns_when_header_list_is_null_then_no_headers_whatever_lies_below_it() -> None:
    """A null list's range in the children is not looked at."""
    pairs = pa.array([{"key": "a", "value": b"1"}, {"key": "b", "value": None}], HEADERS_TYPE.value_type)
    headers = pa.ListArray.from_arrays(pa.array([0, 1, 2]), pairs, mask=pa.array([True, False]))
    decoded = _round_trip(RecordColumns.from_arrow({"value": pa.array([b"1", b"2"]), "headers": headers}))

    assert decoded.column("headers").to_pylist() == [[], [{"key": "b", "value": None}]]


def test_columns_when_only_value_is_given_then_the_rest_is_null_or_none() -> None:
    """A key is null, a timestamp -1, headers are none, where the column is absent or has no type."""
    for more in ({}, {"key": pa.nulls(2), "headers": pa.nulls(2), "timestamp": pa.nulls(2)}):
        decoded = _round_trip(RecordColumns.from_arrow({"value": pa.array([b"1", None]), **more}))

        assert decoded.column("key").to_pylist() == [None, None]
        assert decoded.column("timestamp").to_pylist() == [-1, -1]
        assert decoded.column("headers").to_pylist() == [[], []]


def test_columns_when_every_value_is_null_without_type_then_tombstones() -> None:
    """A value column of Arrow's null type is a column of tombstones."""
    decoded = _round_trip(RecordColumns.from_arrow({"value": pa.nulls(3)}))

    assert decoded.column("value").to_pylist() == [None] * 3


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_columns_when_timestamp_is_arrows_then_milliseconds(unit: str) -> None:
    """A timestamp of any unit becomes ms, rounded down; null becomes -1."""
    times = pa.array([0, 1_700_000_000, None, -7], pa.timestamp("s", "UTC")).cast(pa.timestamp(unit, "UTC")).slice(1)
    columns = RecordColumns.from_arrow({"value": pa.array([b""] * 3), "timestamp": times})

    assert columns.timestamp.tolist() == [1_700_000_000_000, -1, -7000]


def test_columns_when_timestamp_has_fractions_then_rounded_down_before_1970_too() -> None:
    """A microsecond before the epoch is in millisecond -1; int64 is taken as ms, null is -1."""
    times = pa.array([-1, 1999], pa.timestamp("us"))
    values = pa.array([b"", b""])

    assert RecordColumns.from_arrow({"value": values, "timestamp": times}).timestamp.tolist() == [-1, 1]
    plain = pa.chunked_array([pa.array([5]), pa.array([None], pa.int64())])
    assert RecordColumns.from_arrow({"value": values, "timestamp": plain}).timestamp.tolist() == [5, -1]


def test_columns_when_header_keys_are_binary_text_then_text() -> None:
    """Header keys may come as bytes that hold UTF-8; the struct's fields may be in either order."""
    kind = pa.list_(pa.struct([("value", pa.string()), ("key", pa.binary())]))
    headers = pa.array([[{"key": "é".encode(), "value": "x"}]], kind)
    decoded = _round_trip(RecordColumns.from_arrow({"value": pa.array([b"1"]), "headers": headers}))

    assert decoded.column("headers").to_pylist() == [[{"key": "é", "value": b"x"}]]


def test_columns_when_headers_are_a_map_then_its_pairs() -> None:
    """A map column's entries are headers."""
    headers = pa.array([[("a", b"1"), ("b", None)], []], pa.map_(pa.string(), pa.binary()))
    decoded = _round_trip(RecordColumns.from_arrow({"value": pa.array([b"1", b"2"]), "headers": headers}))

    assert decoded.column("headers").to_pylist() == [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], []]


@pytest.mark.parametrize(
    ("column", "array"),
    [
        ("value", pa.array([1, 2])),
        ("key", pa.array([1.0, 2.0])),
        ("headers", pa.array(["a", "b"])),
        ("headers", pa.array([["a"], ["b"]])),
        ("headers", pa.array([[{"key": 1, "value": b""}], []])),
        ("headers", pa.array([[{"key": b"\xff", "value": b""}], []])),
        ("key", pa.array(["one"])),
        ("offset", pa.array([1, None])),
    ],
    ids=[
        "int value",
        "float key",
        "text headers",
        "list of text",
        "int header key",
        "bad UTF-8",
        "short",
        "null offset",
    ],
)
def test_columns_when_a_column_cant_be_records_then_invalid_record(column: str, array: pa.Array) -> None:
    """Types, lengths and nulls a record can't have are refused before anything is encoded."""
    with pytest.raises(InvalidRecordError):
        _round_trip(RecordColumns.from_arrow({"value": pa.array([b"1", b"2"]), column: array}))


def test_columns_when_value_is_missing_then_invalid_record() -> None:
    """A value column must be there."""
    with pytest.raises(InvalidRecordError, match="'value'"):
        RecordColumns.from_arrow({"key": pa.array([b"1"])})
