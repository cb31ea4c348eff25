import struct
import zlib
from dataclasses import replace

import pytest

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.record.batch_decode import decode_batches, iter_decoded, iter_inspected
from sparklog.storage_core.record.batch_scan import check_crcs, scan_batches
from sparklog.storage_core.record.compression import compress
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from tests.build.record_cases import encode, records_of
from tests.plain.legacy_scalar import decode_log, pack_entry, pack_wrapper
from tests.plain.scalar import Record

_T0 = 1526384718283
_KEY_VALUE = Record(offset=0, timestamp=_T0, key=b"key", value=b"value")
_NO_TIME = replace(_KEY_VALUE, timestamp=-1)
_CODECS = ("gzip", "snappy", "lz4")

_VECTORS = {
    "v0": ("0000000000000000 00000016 2356c137 00 00 00000003 6b6579 00000005 76616c7565", _NO_TIME),
    "v0 null key": (
        "0000000000000000 00000013 acc08400 00 00 ffffffff 00000005 76616c7565",
        replace(_NO_TIME, key=None),
    ),
    "v0 tombstone": (
        "0000000000000000 00000011 7a0a65ca 00 00 00000003 6b6579 ffffffff",
        replace(_NO_TIME, value=None),
    ),
    "v1": (
        "0000000000000000 0000001e ea5a4861 01 00 00000163639e71cb 00000003 6b6579 00000005 76616c7565",
        _KEY_VALUE,
    ),
    "v1 null key": (
        "0000000000000000 0000001b c01dd7ec 01 00 00000163639e71cb ffffffff 00000005 76616c7565",
        replace(_KEY_VALUE, key=None),
    ),
}

_WRAPPERS = {
    "gzip v0": "00000000000000090000005f3e55ee020001ffffffff000000511f8b08000000000000ff63600003762056ddeea51a02e6b1"
    "64a7561a0069e1b2c49cd2545d64d200a29e8103a4c131a3e0295c8321760d86500d9c200d0df51de5700d46d83518010033d58cf593000000",
    "gzip v1": "00000000000000090000007273bf04e8010100000163639e71cdffffffff0000005c1f8b08000000000000ff63608003ddc4dd"
    "713e8c40066372f2bcc2d340064b766aa50190162e4bcc294dd545260da09a40ea75f5792433e01acf40351a62d76808d5c804d2287ff0490"
    "05ce359a84623ec1a8d00037902bdab000000",
    "lz4 v0": "0000000000000009000000775f5633b20003ffffffff0000006904224d1860401a5a00000012000100910700000025b74a25540f"
    "00f800046b6579300000001376616c75652d06000017000002001008310040416870e50d000131001f313100030017000002001009310040"
    "807f88770d000131001e323100506c75652d3200000000",
}


def _three(*, timed: bool) -> list[Record]:
    return [
        Record(offset=7 + n, timestamp=_T0 + n if timed else -1, key=b"key%d" % n, value=b"value-value-value-%d" % n)
        for n in range(3)
    ]


def _entry(magic: int, attributes: int, value: bytes | None, offset: int = 9, timestamp: int = _T0) -> bytes:
    return pack_entry(Record(offset=offset, timestamp=timestamp, key=None, value=value), magic, attributes)


def _offsets(data: bytes) -> list[int]:
    offsets: list[int] = decode_batches(data).column("offset").to_pylist()
    return offsets


@pytest.mark.parametrize("name", _VECTORS)
def test_decode_when_kafka_wrote_the_entry_then_its_record(name: str) -> None:
    """Entries that Kafka's own classes wrote are read, found valid, and written alike by the plain packer."""
    text, record = _VECTORS[name]
    data = bytes.fromhex(text)
    decoded = decode_batches(data)
    decoded.validate(full=True)

    assert check_crcs(data, scan_batches(data)).size == 0
    assert records_of(decoded) == [record]
    assert decoded.column("timestamp_type").to_pylist() == [-1 if name.startswith("v0") else 0]
    assert decoded.column("leader_epoch").to_pylist() == [-1]
    assert pack_entry(record, data[16]) == data


@pytest.mark.parametrize("name", _WRAPPERS)
def test_decode_when_kafka_wrote_the_wrapper_then_the_records_inside(name: str) -> None:
    """Absolute and relative inner offsets, and the old lz4 header checksum, as Kafka's own classes write them."""
    data = bytes.fromhex(_WRAPPERS[name])
    records = _three(timed=name.endswith("v1"))

    assert check_crcs(data, scan_batches(data)).size == 0
    assert records_of(decode_batches(data)) == records
    assert [record for record, _ in decode_log(data)] == records
    assert data[16] == int(name[-1])


def test_pack_wrapper_when_codec_is_lz4_then_v0_has_the_old_checksum() -> None:
    """The header checksum is 1a in v0, 82 in v1."""
    for magic, checksum in ((0, 0x1A), (1, 0x82)):
        frame = pack_wrapper(_three(timed=True), magic, "lz4").index(bytes.fromhex("04224d18"))
        assert pack_wrapper(_three(timed=True), magic, "lz4")[frame + 6] == checksum


@pytest.mark.parametrize("codec", _CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_decode_when_formats_are_mixed_then_order_of_the_bytes(magic: int, codec: str) -> None:
    """Entries, wrappers and v2 batches in any order come out in theirs."""
    v2 = encode([Record(offset=20, timestamp=5, key=b"a", value=None)], preserved=True).data.tobytes()
    packed = encode(
        [Record(offset=30, timestamp=6, key=None, value=b"b")], EncodeOptions(codec="zstd"), preserved=True
    ).data.tobytes()
    data = (
        pack_wrapper(_three(timed=True), magic, codec)
        + _entry(1 - magic, 0, b"x", 10)
        + v2
        + _entry(magic, 0, None, 21)
        + packed
        + v2[:7]
        + b"\x28"
        + v2[8:]
    )

    assert _offsets(data) == [7, 8, 9, 10, 20, 21, 30, 40]
    assert records_of(decode_batches(data)) == [record for record, _ in decode_log(data)]
    assert [each.num_rows for each in iter_decoded(data, None, 1)] == [3, 1, 1, 1, 1, 1]


def test_decode_when_only_plain_entries_then_one_record_batch() -> None:
    """A log of uncompressed entries needs no copy and no object per record."""
    data = b"".join(_entry(n % 2, 0, b"v" * n, n) for n in range(300))

    assert _offsets(data) == list(range(300))
    assert decode_batches(data).column("timestamp").to_pylist() == [-1, _T0] * 150


@pytest.mark.parametrize("codec", _CODECS)
def test_decode_when_wrapper_has_append_time_then_every_record_reports_it(codec: str) -> None:
    """With LogAppendTime on the wrapper, time and type of the records are the wrapper's."""
    decoded = decode_batches(pack_wrapper(_three(timed=True), 1, codec, 4242) + _entry(1, 8, b"v", 10, 4243))

    assert decoded.column("timestamp").to_pylist() == [4242, 4242, 4242, 4243]
    assert decoded.column("timestamp_type").to_pylist() == [1, 1, 1, 1]


def test_decode_when_bits_are_set_that_v0_does_not_have_then_no_timestamp_type() -> None:
    """Bit 3 and above mean nothing in v0: not even a control batch."""
    decoded = decode_batches(_entry(0, 0x78, b"v"))

    assert decoded.column("timestamp_type").to_pylist() == [-1]


def test_decode_when_v1_set_was_compacted_then_the_last_offset_anchors() -> None:
    """Relative offsets may have gaps; the last one stands for the wrapper's."""
    inner = b"".join(_entry(1, 0, b"v", relative) for relative in (0, 4, 6))

    assert _offsets(_entry(1, 1, bytes(compress("gzip", inner)), 106)) == [100, 104, 106]


def test_decode_when_v1_wrapper_is_at_offset_0_then_base_is_0() -> None:
    """An old client left the wrapper's offset at 0; its records count from 0."""
    inner = b"".join(_entry(1, 0, b"v", relative) for relative in range(3))

    assert _offsets(_entry(1, 1, bytes(compress("gzip", inner)), 0)) == [0, 1, 2]


@pytest.mark.parametrize(("magic", "size"), [(0, 1), (0, 12), (0, 30), (1, 11), (1, 38)])
def test_decode_when_the_last_inner_entry_is_short_then_passed_over(magic: int, size: int) -> None:
    """As in a log, what is no complete entry at the end of a set is none; Kafka's consumer does the same."""
    inner = _entry(magic, 0, b"value", 9) + _entry(magic, 0, b"value", 10)[:size]

    assert _offsets(_entry(magic, 1, bytes(compress("gzip", inner)), 9)) == [9]


def test_decode_when_bytes_follow_the_value_then_passed_over() -> None:
    """Kafka does not look at what lies between a value and the end of its message."""
    entry = bytearray(_entry(1, 0, b"value"))
    entry[30:34] = struct.pack(">i", 3)

    assert decode_batches(entry).column("value").to_pylist() == [b"val"]


@pytest.mark.parametrize("length", [-1, -2, -(2**31)])
def test_decode_when_a_length_is_negative_then_null(length: int) -> None:
    """Kafka takes every negative length for a null."""
    entry = bytearray(_entry(0, 0, b"value"))
    entry[22:26] = struct.pack(">i", length)

    assert decode_batches(entry).column("value").to_pylist() == [None]


def _resealed(entry: bytearray) -> bytes:
    entry[12:16] = struct.pack(">I", zlib.crc32(entry[16:]))
    return bytes(entry)


def _with(entry: bytes, at: int, new: bytes) -> bytes:
    return _resealed(bytearray(entry[:at] + new + entry[at + len(new) :]))


_GOOD = _entry(1, 0, b"value", 9)
_LIES = {
    "key length past the entry": _with(_GOOD, 26, struct.pack(">i", 10)),
    "value length past the entry": _with(_GOOD, 30, struct.pack(">i", 6)),
    "key length of 2 GiB": _with(_GOOD, 26, struct.pack(">i", 2**31 - 1)),
    "no room for a value length": _with(_GOOD, 26, struct.pack(">i", 7)),
    "zstd": _with(_GOOD, 17, b"\4"),
    "codec 7": _with(_GOOD, 17, b"\7"),
    "codec without stream": _with(_GOOD, 17, b"\1"),
    "wrapper without value": _entry(1, 1, None),
    "wrapper with an empty value": _entry(1, 1, b""),
    "wrapper with an empty set": _entry(1, 1, bytes(compress("gzip", b""))),
    "set of half an entry": _entry(1, 1, bytes(compress("gzip", _GOOD[:-1]))),
    "inner entry of another format": _entry(1, 1, bytes(compress("gzip", _entry(0, 0, b"v", 9)))),
    "inner entry of v2": _entry(1, 1, bytes(compress("gzip", _with(_GOOD, 16, b"\2")))),
    "compressed inner entry": _entry(1, 1, bytes(compress("gzip", pack_wrapper([_KEY_VALUE], 1, "gzip")))),
    "inner CRC": _entry(1, 1, bytes(compress("gzip", _GOOD[:-1] + b"x"))),
    "inner length below any": _entry(1, 1, bytes(compress("gzip", bytes(8) + struct.pack(">i", 13) + bytes(40)))),
    "inner length below v1's": _entry(1, 1, bytes(compress("gzip", bytes(8) + struct.pack(">i", 21) + _GOOD[12:]))),
    "negative inner length": _entry(1, 1, bytes(compress("gzip", b"\xff" * 60))),
    "wrapper offset below the last inner one": _entry(1, 1, bytes(compress("gzip", _GOOD)), 8),
    "negative inner offset": _entry(1, 1, bytes(compress("gzip", b"\xff" * 8 + _GOOD[8:]))),
    "wrapper key past the entry": _with(pack_wrapper([_KEY_VALUE], 1, "gzip"), 26, struct.pack(">i", 10_000)),
    "wrapper value past the entry": _with(pack_wrapper([_KEY_VALUE], 1, "gzip"), 30, struct.pack(">i", 10_000)),
}


@pytest.mark.parametrize("target_bytes", [1, 1 << 20])
@pytest.mark.parametrize("name", _LIES)
def test_iter_decoded_when_an_entry_lies_then_records_before_it_and_its_position(name: str, target_bytes: int) -> None:
    """Every lie in an entry whose own CRC is right is refused at its position, after what came before it."""
    data = _GOOD + _GOOD + _LIES[name] + _GOOD
    assert check_crcs(data, scan_batches(data)).size == 0

    found = 0
    with pytest.raises(CorruptBatchError) as caught:  # noqa: PT012
        for records in iter_decoded(data, None, target_bytes):
            found += records.num_rows
    assert (found, caught.value.position) == (2, 2 * len(_GOOD))
    with pytest.raises(CorruptBatchError):
        decode_log(data)


@pytest.mark.parametrize("codec", _CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_decode_when_a_wrapper_expands_past_the_bound_then_corrupt(magic: int, codec: str) -> None:
    """A small wrapper may not fill the memory."""
    data = pack_wrapper([replace(_KEY_VALUE, value=bytes(100_000))], magic, codec)

    assert decode_batches(data).num_rows == 1
    with pytest.raises(CorruptBatchError, match="holds more than"):
        decode_batches(data, max_batch_bytes=100_000)


def test_iter_inspected_when_inner_crcs_are_wrong_then_told_not_refused() -> None:
    """A tool sees whose records there are, their stored CRCs and which of them are right."""
    inner = _entry(1, 0, b"one", 0) + _entry(1, 0, b"two", 1)[:-1] + b"x" + _entry(1, 0, b"three", 2)
    v2 = encode([_KEY_VALUE]).data.tobytes()
    data = v2 + _entry(1, 1, bytes(compress("gzip", inner)), 12) + _GOOD
    (found,) = iter_inspected(data, scan_batches(data))

    assert found.records.column("offset").to_pylist() == [0, 10, 11, 12, 9]
    assert found.counts.tolist() == [1, 3, 1]
    assert found.is_valid.tolist() == [True, True, False, True, True]
    assert found.crc[0] == 0
    assert found.crc[-1] == zlib.crc32(_GOOD[16:])


@pytest.mark.parametrize("codec", _CODECS)
@pytest.mark.parametrize("target_bytes", [1, 60, 200, 1000])
def test_iter_decoded_when_entries_lie_beside_wrappers_then_no_result_above_the_target(
    codec: str, target_bytes: int
) -> None:
    """Uncompressed entries that are copied beside wrappers are bounded like all others: the target, or one entry."""
    entries = b"".join(_entry(1, 0, b"value", offset) for offset in range(100))
    data = pack_wrapper(_three(timed=True), 1, codec) + entries
    counts = [each.num_rows for each in iter_decoded(data, None, target_bytes)]

    assert sum(counts) == 103
    assert max(counts[1:]) <= max(target_bytes // len(_GOOD), 1)
