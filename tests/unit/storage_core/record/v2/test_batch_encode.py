from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from sparklog.storage_core.errors import InvalidConfigError, InvalidRecordError
from sparklog.storage_core.log_config import CODECS
from sparklog.storage_core.record.batch_decode import decode_batches
from sparklog.storage_core.record.batch_scan import check_crcs, scan_batches
from sparklog.storage_core.record.v2 import batch_encode
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions, RecordColumns, encode_batches
from sparklog.storage_core.record.v2.batch_header import unpack_header
from tests.build.record_cases import SPECIMENS, columns_of, encode, records_of, split_batches
from tests.plain.scalar import Record

_LARGEST = 2**63 - 1


def _plain(count: int, value_bytes: int = 10, step: int = 1) -> list[Record]:
    return [
        Record(offset=number * step, timestamp=1000 + number, key=b"key", value=bytes(value_bytes))
        for number in range(count)
    ]


def test_encode_when_codec_is_none_then_specimens_come_back_with_good_crcs() -> None:
    """One record of every kind survives, in one batch whose CRC is right."""
    encoded = encode(SPECIMENS)

    assert records_of(decode_batches(encoded.data)) == SPECIMENS
    assert check_crcs(encoded.data, scan_batches(encoded.data)).size == 0
    assert encoded.data.flags.writeable


@pytest.mark.parametrize("codec", CODECS)
def test_encode_when_described_then_columns_agree_with_the_bytes(codec: str) -> None:
    """Every column of the result is what a scan of the bytes finds."""
    encoded = encode(_plain(500), EncodeOptions(codec=codec, batch_size_bytes=1000))
    scan = scan_batches(encoded.data)

    assert len(scan) > 10
    assert scan.valid_bytes == encoded.data.size
    for name in ("position", "size", "records_count", "last_offset_delta", "base_offset", "max_timestamp"):
        assert getattr(scan, name).tolist() == getattr(encoded, name).tolist(), name
    assert check_crcs(encoded.data, scan).size == 0


def test_encode_when_groups_interleave_then_each_group_has_its_own_batches_in_order() -> None:
    """Rows go to their group, in the order of `rows`; empty groups have no batch."""
    columns = columns_of(_plain(10))
    rows = np.array([9, 7, 5, 0, 1, 2])
    encoded = encode_batches(columns, rows, np.array([0, 3, 3, 6]), EncodeOptions())
    batches = [decode_batches(batch) for batch in split_batches(encoded)]

    assert encoded.group.tolist() == [0, 2]
    assert [batch.column("timestamp").to_pylist() for batch in batches] == [[1009, 1007, 1005], [1000, 1001, 1002]]
    assert [batch.column("offset").to_pylist() for batch in batches] == [[0, 1, 2]] * 2


def test_encode_when_nothing_is_given_then_nothing_comes_out() -> None:
    """No rows, or no groups, are no batches."""
    for rows, starts in ((np.arange(0), np.array([0])), (np.arange(3), np.array([2, 2]))):
        for codec in ("none", "zstd"):
            encoded = encode_batches(columns_of(_plain(3)), rows, starts, EncodeOptions(codec=codec))

            assert (encoded.data.size, encoded.group.size, encoded.max_timestamp.size) == (0, 0, 0)


def test_encode_when_next_record_would_pass_batch_size_then_a_batch_is_closed() -> None:
    """A batch holds as many records as its uncompressed size allows, exactly."""
    one = len(encode(_plain(1)).data)
    record_bytes = len(encode(_plain(2)).data) - one

    for limit, counts in ((one + record_bytes, [2, 2]), (one + record_bytes - 1, [1, 1, 1, 1])):
        assert encode(_plain(4), EncodeOptions(batch_size_bytes=limit)).records_count.tolist() == counts


def test_encode_when_one_record_is_above_batch_size_then_it_has_a_batch_of_its_own() -> None:
    """One record is always allowed."""
    records = [replace(record, value=bytes(5000)) if record.offset == 1 else record for record in _plain(3)]

    assert encode(records, EncodeOptions(batch_size_bytes=1000)).records_count.tolist() == [1, 1, 1]


def test_encode_when_a_record_is_above_max_message_bytes_then_invalid_record_names_its_row() -> None:
    """A record whose batch alone would be too large is refused, with row, size and limit."""
    records = [*_plain(3), Record(offset=3, timestamp=0, key=None, value=bytes(2000))]
    columns, rows = columns_of(records), np.array([0, 3, 1])

    with pytest.raises(InvalidRecordError, match=r"row=3 size=2070 max\.message\.bytes=2069"):
        encode_batches(columns, rows, np.array([0, 3]), EncodeOptions(max_message_bytes=2069))
    assert encode_batches(columns, rows, np.array([0, 3]), EncodeOptions(max_message_bytes=2070)).size.max() == 2070


def test_encode_when_batch_size_is_above_max_message_bytes_then_batches_stay_below_both() -> None:
    """Without compression the smaller of the two limits counts."""
    encoded = encode(_plain(100), EncodeOptions(batch_size_bytes=1 << 20, max_message_bytes=500))

    assert 400 < encoded.size.max() <= 500


@pytest.mark.parametrize("codec", CODECS[1:])
def test_encode_when_compressed_batch_is_above_max_message_bytes_then_it_is_split(codec: str) -> None:
    """A batch that compression does not shrink enough becomes smaller ones, in order, none too large."""
    generator = np.random.default_rng(7)
    records = [replace(record, value=generator.bytes(100)) for record in _plain(64)]
    producer = EncodeOptions(producer_id=7, producer_epoch=3, base_sequence=5)
    options = replace(producer, codec=codec, batch_size_bytes=1 << 20, max_message_bytes=1500)
    encoded = encode(records, options)
    headers = [unpack_header(batch) for batch in split_batches(encoded)]

    assert len(headers) > 4
    assert encoded.size.max() <= 1500
    decoded = decode_batches(encoded.data)
    assert decoded.column("value").to_pylist() == [record.value for record in records]
    assert [header.base_sequence for header in headers[1:]] == [header.last_sequence + 1 for header in headers[:-1]]


def test_encode_when_a_record_stays_above_max_message_bytes_compressed_then_invalid_record() -> None:
    """A single record that compression leaves too large is refused by row."""
    records = [*_plain(3), Record(offset=3, timestamp=0, key=None, value=np.random.default_rng(1).bytes(5000))]

    with pytest.raises(InvalidRecordError, match=r"row=3 size=\d+ max\.message\.bytes=1000"):
        encode(records, EncodeOptions(codec="zstd", max_message_bytes=1000))


def test_encode_when_a_record_is_above_what_a_reader_expands_then_invalid_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No compressed batch is made that decoding with its default bound would refuse."""
    monkeypatch.setattr(batch_encode, "MAX_DECOMPRESSED_BYTES", 1000)

    with pytest.raises(InvalidRecordError, match="too large: row=0"):
        encode(_plain(1, 2000), EncodeOptions(codec="gzip"))
    assert encode(_plain(100), EncodeOptions(codec="gzip", batch_size_bytes=1 << 20)).records_count.max() == 46


def test_encode_when_offsets_are_preserved_then_gaps_stay() -> None:
    """Base offsets are the first records', deltas count from there."""
    records = [replace(record, offset=offset) for record, offset in zip(_plain(4), (7, 8, 20, 1000), strict=True)]
    encoded = encode(records, preserved=True)

    assert encoded.base_offset.tolist() == [7]
    assert encoded.last_offset_delta.tolist() == [993]
    assert records_of(decode_batches(encoded.data)) == records


def test_encode_when_offset_delta_would_pass_int32_then_a_batch_is_closed() -> None:
    """A delta of 2147483647 is the largest a batch holds."""
    first, second = _plain(2)
    for delta, batches in ((2**31 - 1, 1), (2**31, 2)):
        records = [first, replace(second, offset=delta)]
        encoded = encode(records, preserved=True)

        assert encoded.size.size == batches
        assert records_of(decode_batches(encoded.data)) == records


@pytest.mark.parametrize(
    "offsets",
    [(5, 5), (5, 4), (-1, 0), (0, 1, 0), (0, _LARGEST), (_LARGEST,), (_LARGEST - 1, _LARGEST), (3, -(2**63))],
)
@pytest.mark.parametrize("batch_size_bytes", [1, 16384])
def test_encode_when_preserved_offset_is_no_next_one_then_invalid_record(
    offsets: tuple[int, ...], batch_size_bytes: int
) -> None:
    """Offsets go up, from 0 to one below the largest int64, because another must follow."""
    records = [replace(record, offset=offset) for record, offset in zip(_plain(3), offsets, strict=False)]

    with pytest.raises(InvalidRecordError, match="offset"):
        encode(records, EncodeOptions(batch_size_bytes=batch_size_bytes), preserved=True)


def test_encode_when_offset_is_the_largest_allowed_then_it_survives() -> None:
    """One below the largest int64 is an offset."""
    records = [replace(record, offset=_LARGEST - 2 + record.offset) for record in _plain(2)]

    assert records_of(decode_batches(encode(records, preserved=True).data)) == records


def test_encode_when_each_group_restarts_then_preserved_offsets_are_judged_per_group() -> None:
    """Two logs may hold the same offsets."""
    records = [*_plain(2), *_plain(2)]
    encoded = encode_batches(columns_of(records, preserved=True), np.arange(4), np.array([0, 2, 4]), EncodeOptions())

    assert encoded.base_offset.tolist() == [0, 0]


def test_encode_when_append_time_is_set_then_log_append_time_batches() -> None:
    """Bit 3 is set, the max timestamp is the append's, the base timestamp stays the first record's."""
    encoded = encode(SPECIMENS, EncodeOptions(log_append_time_ms=2000))
    header = unpack_header(encoded.data)

    assert (header.timestamp_type, header.base_timestamp, header.max_timestamp) == (1, 1000, 2000)
    assert encoded.max_timestamp.tolist() == [2000]
    assert decode_batches(encoded.data).column("timestamp").to_pylist() == [2000] * len(SPECIMENS)


def test_encode_when_timestamps_are_out_of_order_then_max_is_over_all_and_base_is_the_first() -> None:
    """MaxTimestamp is the largest; baseTimestamp is not the smallest but the first; -1 means none has one."""
    records = [replace(record, timestamp=time) for record, time in zip(_plain(3), (50, 70, 20), strict=True)]
    header = unpack_header(encode(records).data)

    assert (header.base_timestamp, header.max_timestamp) == (50, 70)
    assert unpack_header(encode([replace(record, timestamp=-1) for record in records]).data).max_timestamp == -1


def test_encode_when_timestamp_delta_passes_int64_then_it_wraps_and_comes_back() -> None:
    """The difference of the extremes does not fit 64 bits; it wraps, and decoding wraps it back."""
    times = (2**63 - 1, -(2**63), 0, -1)
    records = [replace(record, timestamp=time) for record, time in zip(_plain(4), times, strict=True)]

    assert decode_batches(encode(records).data).column("timestamp").to_pylist() == list(times)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"producer_epoch": 0}, "producer_epoch=0 without a producer id"),
        ({"base_sequence": 0}, "base_sequence=0 without a producer id"),
        ({"is_transactional": True}, "is_transactional without a producer id"),
        ({"producer_id": 7, "base_sequence": 0}, "producer_id=7 without an epoch"),
        ({"producer_id": 7, "producer_epoch": 0}, "producer_id=7 without a base sequence"),
        ({"producer_id": -2}, "producer_id=-2 is outside -1.."),
        ({"producer_id": 2**63}, "is outside -1.."),
        ({"producer_id": 7, "producer_epoch": 2**15, "base_sequence": 0}, "producer_epoch=32768 is outside -1..32767"),
        ({"producer_id": 7, "producer_epoch": 0, "base_sequence": 2**31}, "base_sequence=2147483648 is outside -1.."),
        ({"partition_leader_epoch": -2}, "partition_leader_epoch=-2 is outside -1.."),
    ],
)
def test_options_when_producer_fields_contradict_each_other_then_refused(
    fields: dict[str, int | bool], problem: str
) -> None:
    """Kafka's builder closes no such batch."""
    with pytest.raises(InvalidConfigError, match=problem):
        EncodeOptions(**fields)  # type: ignore[arg-type]


def test_encode_when_producer_fields_are_set_then_headers_carry_them_and_sequences_follow() -> None:
    """Sequences count records per group across batches, and wrap from 2147483647 to 0."""
    options = EncodeOptions(
        producer_id=7,
        producer_epoch=3,
        base_sequence=2**31 - 3,
        is_transactional=True,
        partition_leader_epoch=9,
        batch_size_bytes=90,
    )
    encoded = encode_batches(columns_of(_plain(8)), np.arange(8), np.array([0, 5, 8]), options)
    headers = [unpack_header(batch) for batch in split_batches(encoded)]

    assert {(h.producer_id, h.producer_epoch, h.partition_leader_epoch, h.is_transactional) for h in headers} == {
        (7, 3, 9, True)
    }
    near_end = [2**31 - 3, 2**31 - 2, 2**31 - 1]
    assert [header.base_sequence for header in headers] == [*near_end, 0, 1, *near_end]


def test_encode_when_a_header_has_no_key_then_invalid_record_names_its_row() -> None:
    """A null header key, or a null in place of the pair, is refused."""
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    for bad in ({"key": None, "value": b""}, None):
        headers = pa.array([[{"key": "a", "value": b""}], [{"key": "b", "value": b""}, bad]], kind)
        columns = RecordColumns.from_arrow({"value": pa.array([b"1", b"2"]), "headers": headers})

        with pytest.raises(InvalidRecordError, match="row=1"):
            encode_batches(columns, np.array([0, 1]), np.array([0, 2]), EncodeOptions())
        assert encode_batches(columns, np.array([0]), np.array([0, 1]), EncodeOptions()).size.size == 1


def test_encode_when_a_pair_is_null_and_another_has_no_key_then_both_are_refused() -> None:
    """Nulls of pairs and nulls of keys are both looked at; a row with neither passes."""
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": "a", "value": None}], [{"key": None, "value": None}], [None]], kind)
    columns = RecordColumns.from_arrow({"value": pa.array([b"1", b"2", b"3"]), "headers": headers})

    for row in (1, 2):
        with pytest.raises(InvalidRecordError, match=f"row={row}"):
            encode_batches(columns, np.array([row]), np.array([0, 1]), EncodeOptions())
    assert encode_batches(columns, np.array([0]), np.array([0, 1]), EncodeOptions()).size.size == 1


def test_encode_when_headers_are_many_then_counts_and_lengths_take_more_bytes() -> None:
    """Header counts and lengths above 63 take two bytes, and survive."""
    headers = tuple((f"name-{number}" * 10, bytes(number)) for number in range(200))
    records = [replace(record, headers=headers) for record in _plain(3)]

    assert records_of(decode_batches(encode(records, EncodeOptions(batch_size_bytes=1 << 20)).data)) == records


@pytest.mark.parametrize("size", [0, 63, 64, 8191, 8192, 1048575, 1048576])
def test_encode_when_length_is_at_a_varint_border_then_value_survives(size: int) -> None:
    """Lengths around the borders of a varint's bytes come back."""
    record = Record(offset=0, timestamp=0, key=None, value=b"x" * size)

    assert records_of(decode_batches(encode([record], EncodeOptions(max_message_bytes=1 << 22)).data)) == [record]


@pytest.mark.parametrize(
    ("rows", "starts"),
    [
        ([0, 10], [0, 2]),
        ([-1], [0, 1]),
        ([0, 1], [0, 3]),
        ([0, 1], [1, 0]),
        ([0, 1], [-1, 2]),
        ([0, 1], []),
    ],
)
def test_encode_when_rows_or_borders_point_outside_then_value_error(rows: list[int], starts: list[int]) -> None:
    """Numbers that would read outside the columns never reach them."""
    with pytest.raises(ValueError, match="rows"):
        encode_batches(columns_of(_plain(3)), np.array(rows), np.array(starts, np.int64), EncodeOptions())


def test_encode_when_columns_differ_in_length_then_invalid_record() -> None:
    """All columns have one length."""
    columns = RecordColumns(key=None, value=pa.array([b"1"]), timestamp=np.array([1, 2]))

    with pytest.raises(InvalidRecordError, match="length"):
        encode_batches(columns, np.array([0]), np.array([0, 1]), EncodeOptions())


def test_options_when_several_are_wrong_then_all_are_named() -> None:
    """Every problem is in the message."""
    with pytest.raises(InvalidConfigError, match=r"codec='brotli'.*batch_size_bytes=-1"):
        EncodeOptions(codec="brotli", batch_size_bytes=-1)
    with pytest.raises(InvalidConfigError, match="level=10"):
        EncodeOptions(codec="gzip", level=10)


def test_encode_when_batch_is_empty_of_headers_then_sizes_are_kafkas() -> None:
    """("key", "value") is 76 bytes, a null key 73, a null value 71; ten 6-byte values are 191."""
    record = Record(offset=0, timestamp=0, key=b"key", value=b"value")
    ten = [Record(offset=number, timestamp=0, key=None, value=b"sixsix") for number in range(10)]

    assert [
        encode(case).data.size for case in ([record], [replace(record, key=None)], [replace(record, value=None)])
    ] == [
        76,
        73,
        71,
    ]
    assert encode(ten).data.size == 191
