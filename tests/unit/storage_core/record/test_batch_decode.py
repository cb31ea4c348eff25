import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import crc32c
import numpy as np
import pyarrow as pa
import pytest

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.log_config import CODECS
from sparklog.storage_core.record.batch_decode import decode_batches, iter_decoded, iter_inspected
from sparklog.storage_core.record.batch_scan import scan_batches
from sparklog.storage_core.record.compression import compress, decompress
from sparklog.storage_core.record.schema import HEADERS_TYPE, RECORD_SCHEMA
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions, RecordColumns, encode_batches
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, BatchHeader, pack_header, unpack_header
from tests.build.record_cases import SPECIMENS, encode, records_of
from tests.plain.scalar import Record, decode_records
from tests.plain.varint import pack_varint

_MARKER = bytes.fromhex(
    "0000000000000006000000420000000902c0fe920f0030000000000000000000000014000000000000001400000000000000070003"
    "ffffffff000000012000000008000000010c00000000000b00"
)
_EMPTY = bytes.fromhex(
    "000000000000006400000031000000090222d54c05000000000004ffffffffffffffff0000000000003039000000000000000700030000000000000000"
)


def _batch(section: bytes, count: int, **fields: int) -> bytes:
    """Return a batch with any records, its CRC right."""
    header = BatchHeader(
        base_offset=fields.get("base_offset", 0),
        batch_length=HEADER_BYTES - 12 + len(section),
        partition_leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=fields.get("attributes", 0),
        last_offset_delta=max(count - 1, 0),
        base_timestamp=fields.get("base_timestamp", 0),
        max_timestamp=fields.get("max_timestamp", 0),
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=count,
    )
    crc = crc32c.crc32c(pack_header(header)[21:] + section)
    return pack_header(replace(header, crc=crc)) + section


def _record(body: bytes) -> bytes:
    return pack_varint(len(body)) + body


_GOOD = _record(bytes.fromhex("00 00 00 06 6b6579 0a 76616c7565 00"))
_HEADERS = "00 00 00 01 01"

_DAMAGED: dict[str, tuple[bytes, int]] = {
    "no record where one is counted": (b"", 1),
    "fewer records than counted": (_GOOD, 2),
    "more records than counted": (_GOOD * 3, 2),
    "a byte after the last record": (_GOOD + b"\0", 1),
    "a byte where no record is counted": (b"\0", 0),
    "negative count": (_GOOD, -1),
    "count above any bytes": (_GOOD, 2**31 - 1),
    "length of 0": (b"\0" + _GOOD, 1),
    "negative length": (b"\1" + _GOOD[1:], 1),
    "length past the end": (pack_varint(100) + _GOOD[1:], 1),
    "length that never ends": (b"\xff" * 20, 1),
    "length cut short": (b"\x80" * 7, 1),
    "length one too long": (pack_varint(len(_GOOD)) + _GOOD[1:] + b"\0", 1),
    "length one too short": (pack_varint(len(_GOOD) - 2) + _GOOD[1:], 1),
    "length in six bytes": (bytes.fromhex("9c8080808000") + _GOOD[1:], 1),
    "length that hides the next record": (pack_varint(len(_GOOD) * 2 - 1) + _GOOD[1:] + _GOOD, 2),
    "length ends inside the key": (_record(bytes.fromhex("00 00 00 06 6b65")) + bytes(7), 1),
    "timestamp delta that never ends": (_record(b"\0" + b"\xff" * 12), 1),
    "offset delta that never ends": (_record(b"\0\0" + b"\xff" * 12), 1),
    "key past the record": (_record(bytes.fromhex("00 00 00 20 6b6579 01 00")), 1),
    "key of 2 GiB": (_record(b"\0\0\0" + pack_varint(2**31 - 1) + b"abcd"), 1),
    "value past the record": (_record(bytes.fromhex("00 00 00 01 20 6b6579 00")), 1),
    "no header count": (_record(bytes.fromhex("00 00 00 01 01")) + bytes(7), 1),
    "negative header count": (_record(bytes.fromhex(f"{_HEADERS} 01")), 1),
    "header count above the bytes": (_record(bytes.fromhex(f"{_HEADERS} 08 02 61 01")), 1),
    "header count of 2 billion": (_record(bytes.fromhex(_HEADERS) + pack_varint(2**31 - 1)), 1),
    "fewer headers than counted": (_record(bytes.fromhex(f"{_HEADERS} 04 02 61 01")), 1),
    "header without a key": (_record(bytes.fromhex(f"{_HEADERS} 02 01 01")), 1),
    "header key past the record": (_record(bytes.fromhex(f"{_HEADERS} 02 20 61 01")), 1),
    "header value past the record": (_record(bytes.fromhex(f"{_HEADERS} 02 02 61 20 61")), 1),
    "header value missing": (_record(bytes.fromhex(f"{_HEADERS} 02 02 61")) + b"\1", 1),
    "a byte after the headers": (_record(bytes.fromhex(f"{_HEADERS} 02 02 61 01 00")), 1),
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", _DAMAGED)
def test_decode_when_a_length_or_count_lies_then_corrupt_at_the_batch(codec: str, name: str) -> None:
    """Every lie inside a batch with a good CRC is refused, at the batch's position, under every codec."""
    section, count = _DAMAGED[name]
    good = _batch(_GOOD, 1)
    data = good + _batch(bytes(compress(codec, section)), count, attributes=CODECS.index(codec)) + good

    with pytest.raises(CorruptBatchError) as caught:
        decode_batches(data)
    assert caught.value.position == len(good)


def test_decode_when_records_are_good_then_the_schema_of_records() -> None:
    """Columns, types and nullability are `RECORD_SCHEMA`; no bitmap is made where nothing is null."""
    decoded = decode_batches(_batch(_GOOD * 2, 2, base_offset=5, base_timestamp=7))
    decoded.validate(full=True)

    assert decoded.schema == RECORD_SCHEMA
    assert decoded.column("key").buffers()[0] is None
    assert decoded.to_pylist()[0] == {
        "offset": 5,
        "timestamp": 7,
        "timestamp_type": 0,
        "leader_epoch": -1,
        "key": b"key",
        "value": b"value",
        "headers": [],
    }


def test_decode_when_there_are_nulls_then_bitmaps_tell_them_from_empties() -> None:
    """A null and an empty key, value or header value stay apart."""
    decoded = decode_batches(encode(SPECIMENS).data)
    decoded.validate(full=True)

    assert records_of(decoded) == SPECIMENS
    assert decoded.column("key").null_count == 1
    assert decoded.column("value").null_count == 2


def test_decode_when_a_varint_is_longer_than_needed_then_bits_above_the_32nd_are_dropped() -> None:
    """Five bytes may hold any 32-bit value, ten any 64-bit one; what is above is shifted out, as in Kafka."""
    record = _record(bytes.fromhex("00 85808080808080808002 8280808010 8680808070 6b6579 8180808070 00"))
    data = _batch(record, 1, base_offset=5, base_timestamp=10)

    assert records_of(decode_batches(data)) == decode_records(data)
    assert records_of(decode_batches(data)) == [Record(offset=6, timestamp=7, key=b"key", value=None)]


def test_decode_when_data_is_empty_or_torn_then_no_records() -> None:
    """No complete batch is no record, not an error."""
    for data in (b"", _batch(_GOOD, 1)[:-1]):
        assert decode_batches(data).num_rows == 0
        assert decode_batches(data).schema == RECORD_SCHEMA
        assert list(iter_decoded(data)) == []


@pytest.mark.parametrize("codec", range(5))
def test_decode_when_a_batch_has_no_records_then_it_is_passed(codec: int) -> None:
    """A cleaner may leave a batch without records, whatever codec its attributes name."""
    data = _EMPTY + _batch(b"", 0, attributes=codec) + _batch(_GOOD, 1, base_offset=9)

    assert decode_batches(data).column("offset").to_pylist() == [9]


def test_decode_when_control_batches_lie_between_then_only_asked_for_they_come() -> None:
    """Markers are not records; they come with `include_control`."""
    data = _batch(_GOOD, 1, base_offset=5) + _MARKER + _batch(_GOOD, 1, base_offset=7)

    assert decode_batches(data).column("offset").to_pylist() == [5, 7]
    control = decode_batches(data, include_control=True)
    assert control.column("offset").to_pylist() == [5, 6, 7]
    assert control.column("key").to_pylist()[1] == bytes.fromhex("00000001")
    assert [batch.num_rows for batch in iter_decoded(data, include_control=True)] == [3]


def test_decode_when_log_append_time_then_every_timestamp_is_the_max() -> None:
    """Stored deltas and the base timestamp are ignored."""
    decoded = decode_batches(_batch(_GOOD * 2, 2, attributes=0x08, base_timestamp=5, max_timestamp=99))

    assert decoded.column("timestamp").to_pylist() == [99, 99]
    assert decoded.column("timestamp_type").to_pylist() == [1, 1]


def test_decode_when_delete_horizon_is_set_then_deltas_count_from_it() -> None:
    """Bit 6 makes the base timestamp a horizon; the deltas were rewritten to count from there."""
    record = _record(b"\0" + pack_varint(-86_400_000) + b"\0\1\1\0")
    decoded = decode_batches(_batch(record, 1, attributes=0x40, base_timestamp=86_400_500))

    assert decoded.column("timestamp").to_pylist() == [500]


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_decode_when_attributes_name_no_codec_then_corrupt(codec: int) -> None:
    """Codec numbers 5 to 7 are refused."""
    with pytest.raises(CorruptBatchError, match="codec"):
        decode_batches(_batch(_GOOD, 1, attributes=codec))


def test_decode_when_header_key_is_not_utf8_then_replacement_characters() -> None:
    """A consumer shows U+FFFD for such bytes; so do we."""
    records = b"".join(
        _record(bytes.fromhex(f"{_HEADERS} 02") + pack_varint(len(name)) + name + b"\1") for name in (b"\xff", b"ok")
    )

    names = [row[0]["key"] for row in decode_batches(_batch(records, 2)).column("headers").to_pylist()]
    assert names == ["�", "ok"]


@pytest.mark.parametrize("codec", CODECS[1:])
def test_decode_when_a_batch_expands_past_the_bound_then_corrupt(codec: str) -> None:
    """The bound is on what a compressed batch holds."""
    record = Record(offset=0, timestamp=0, key=None, value=bytes(100_000))
    encoded = encode([record], EncodeOptions(codec=codec))

    assert decode_batches(encoded.data).num_rows == 1
    with pytest.raises(CorruptBatchError, match="holds more than"):
        decode_batches(encoded.data, max_batch_bytes=100_000)


@pytest.mark.parametrize("magic", [3, 127, 128, 255])
def test_decode_when_magic_is_unknown_then_corrupt(magic: int) -> None:
    """No format has such a magic."""
    batch = bytearray(_batch(_GOOD, 1))
    batch[16] = magic

    with pytest.raises(CorruptBatchError):
        decode_batches(batch)


@pytest.mark.parametrize(
    "change",
    [
        lambda scan: replace(scan, position=scan.position + 1),
        lambda scan: replace(scan, position=scan.position - 1),
        lambda scan: replace(scan, size=scan.size * 0 + 60),
        lambda scan: replace(scan, size=scan.size * 0 + 2**40),
    ],
)
def test_decode_when_scan_points_outside_the_data_then_corrupt(change: Callable[..., object]) -> None:
    """A scan of other bytes is refused before anything is read."""
    data = _batch(_GOOD, 1)

    with pytest.raises(CorruptBatchError):
        decode_batches(data, change(scan_batches(data)))  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", CODECS)
def test_iter_decoded_when_target_is_small_then_results_are_bounded_and_complete(codec: str) -> None:
    """Results hold about the target's bytes, one batch at least, and all records in order."""
    records = [Record(offset=n, timestamp=n, key=b"%d" % n, value=bytes(90)) for n in range(500)]
    data = encode(records, EncodeOptions(codec=codec, batch_size_bytes=1000), preserved=True).data
    results = list(iter_decoded(data, None, 5000))

    assert [record for each in results for record in records_of(each)] == records
    assert len(results) > 5
    assert max(each.num_rows for each in results) <= 50
    assert len(list(iter_decoded(data, None, 1))) == len(scan_batches(data))
    assert pa.Table.from_batches(results).combine_chunks().to_batches()[0] == decode_batches(data)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("target_bytes", [1, 100, 1 << 20])
def test_iter_decoded_when_a_batch_is_damaged_then_those_before_it_come_first(codec: str, target_bytes: int) -> None:
    """What can be read before the damage is read."""
    options = EncodeOptions(codec=codec)
    good = [encode([Record(offset=n, timestamp=0, key=None, value=b"v")], options, preserved=True) for n in range(3)]
    head = b"".join(each.data.tobytes() for each in good)
    data = head + _batch(b"damage!", 1, attributes=CODECS.index(codec)) + head

    found = []
    with pytest.raises(CorruptBatchError) as caught:  # noqa: PT012
        for each in iter_decoded(data, None, target_bytes):
            found += each.column("offset").to_pylist()
    assert caught.value.position == len(head)
    assert found == [0, 1, 2]


def test_decode_when_offsets_have_gaps_then_they_are_the_stored_ones() -> None:
    """Compaction leaves gaps; the base offset may have no record."""
    records = _record(b"\0\0" + pack_varint(3) + b"\1\1\0") + _record(b"\0\0" + pack_varint(90) + b"\1\1\0")
    data = _batch(records, 2, base_offset=100)

    assert decode_batches(data).column("offset").to_pylist() == [103, 190]
    assert unpack_header(data).last_offset == 101


def test_decode_when_many_small_batches_then_columns_are_flat() -> None:
    """A thousand batches become one record batch with one buffer per column."""
    data = b"".join(struct.pack(">q", number) + _batch(_GOOD, 1)[8:] for number in range(1000))
    decoded = decode_batches(data)

    assert decoded.column("offset").to_pylist() == list(range(1000))
    assert len(np.frombuffer(decoded.column("value").buffers()[2], np.uint8)) == 5000


def test_decode_when_many_header_keys_are_not_utf8_then_each_is_replaced() -> None:
    """Keys are replaced a piece at a time, so that memory stays near their bytes; none is lost between pieces."""
    count = (5 << 16) + 3
    headers = pa.array([[{"key": "ab", "value": None}] * count], HEADERS_TYPE)
    columns = RecordColumns.from_arrow({"value": pa.array([b"v"]), "headers": headers})
    options = EncodeOptions(max_message_bytes=1 << 24)
    data = encode_batches(columns, np.arange(1), np.array([0, 1]), options).data.tobytes()

    tracemalloc.start()
    decoded = decode_batches(data.replace(b"\x04ab\x01", b"\x04\xffb\x01"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    names = decoded.column("headers").values.field("key")
    assert (len(names), names.unique().to_pylist()) == (count, ["�b"])
    assert peak < 80 * count


def _large(base_offset: int, count: int = 300_000) -> bytes:
    """Return a batch of so many records that it is decoded in pieces."""
    columns = RecordColumns(
        key=pa.nulls(count, pa.binary()),
        value=pa.array([b"%d" % (place % 10) for place in range(count)], pa.binary()),
        timestamp=np.arange(count, dtype=np.int64),
    )
    options = EncodeOptions(codec="zstd", batch_size_bytes=1 << 30, max_message_bytes=1 << 30)
    data = encode_batches(columns, np.arange(count), np.array([0, count]), options).data.tobytes()
    return base_offset.to_bytes(8, "big") + data[8:]


def test_iter_decoded_when_a_batch_has_very_many_records_then_in_pieces_and_complete() -> None:
    """Its columns are never there all at once; batches around it come as they are."""
    data = _large(0, 3) + _large(3) + _large(300_003, 2)

    pieces = list(iter_decoded(data))

    whole = decode_batches(data)
    assert max(each.num_rows for each in pieces) < 200_000
    assert pa.Table.from_batches(pieces).equals(pa.Table.from_batches([whole]))
    assert whole.column("offset").to_pylist() == list(range(300_005))


def test_iter_inspected_when_a_batch_comes_in_pieces_then_only_the_first_one_begins_it() -> None:
    """A tool names a batch once."""
    data = _large(0, 3) + _large(3) + _large(300_003, 2)

    found = list(iter_inspected(data, scan_batches(data)))

    assert [(each.is_continued, len(each.scan), each.records.num_rows) for each in found] == [
        (False, 1, 3),
        (False, 1, 131_072),
        (True, 1, 131_072),
        (True, 1, 300_000 - 2 * 131_072),
        (False, 1, 2),
    ]


@pytest.mark.parametrize("change", [(-1, 5), (-3, 0x7E), (-12, 0x7F)], ids=["header count", "value", "length"])
def test_iter_decoded_when_the_end_of_a_large_batch_is_damaged_then_none_of_it_comes(change: tuple[int, int]) -> None:
    """Only the batches before it do, as for a small one."""
    header, section = _large(3)[:61], bytearray(decompress("zstd", _large(3)[61:], 1 << 30, 0))
    section[change[0]] = change[1]
    batch = bytearray(header + bytes(section))
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[22] = 0  # not compressed
    pieces = iter_decoded(_large(0, 3) + bytes(batch))

    assert next(pieces).num_rows == 3
    with pytest.raises(CorruptBatchError) as error:
        next(pieces)
    assert error.value.position == len(_large(0, 3))
