"""Bytes of formats v0 and v1, against those that Kafka writes."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparklog.storage_core.errors import InvalidConfigError, InvalidRecordError, RecordTooLargeError
from sparklog.storage_core.record.batch_decode import decode_batches
from sparklog.storage_core.record.legacy.encode import LegacyEncodeOptions, encode_legacy
from sparklog.storage_core.record.schema import LOG_APPEND_TIME
from tests.build.record_cases import columns_of, records_of
from tests.plain.legacy_scalar import unpack_legacy_header
from tests.plain.scalar import Record

_GOLDEN = Path(__file__).resolve().parents[4] / "data" / "golden"
_T0 = 1526384718283

_V0 = {
    (b"key", b"value"): "0000000000000000 00000016 2356c137 00 00 00000003 6b6579 00000005 76616c7565",
    (None, b"value"): "0000000000000000 00000013 acc08400 00 00 ffffffff 00000005 76616c7565",
    (b"key", None): "0000000000000000 00000011 7a0a65ca 00 00 00000003 6b6579 ffffffff",
}
_V1 = {
    (b"key", b"value"): "0000000000000000 0000001e ea5a4861 01 00 00000163639e71cb 00000003 6b6579 00000005 76616c7565",
    (None, b"value"): "0000000000000000 0000001b c01dd7ec 01 00 00000163639e71cb ffffffff 00000005 76616c7565",
}


def _record(offset: int, key: bytes | None = b"key", value: bytes | None = b"value", timestamp: int = _T0) -> Record:
    return Record(offset=offset, timestamp=timestamp, key=key, value=value)


def _three() -> list[Record]:
    return [_record(7 + n, b"key%d" % n, b"value-value-value-%d" % n, _T0 + n) for n in range(3)]


def _encode(records: list[Record], options: LegacyEncodeOptions, *, preserved: bool = True) -> Any:
    rows, starts = np.arange(len(records)), np.array([0, len(records)])
    return encode_legacy(columns_of(records, preserved=preserved), rows, starts, options)


@pytest.mark.parametrize(("magic", "vectors"), [(0, _V0), (1, _V1)])
def test_encode_legacy_when_one_record_then_writes_the_reference_bytes(
    magic: int, vectors: dict[tuple[bytes | None, bytes | None], str]
) -> None:
    """Key, null key and tombstone are the bytes of Kafka's own classes."""
    for (key, value), expected in vectors.items():
        encoded = _encode([_record(0, key, value)], LegacyEncodeOptions(magic=magic))

        assert encoded.data.tobytes() == bytes.fromhex(expected)


@pytest.mark.parametrize("case", ["v0-none", "v1-none", "v0-segments", "v1-segments", "v0-none-converted"])
def test_encode_legacy_when_records_are_golden_then_writes_the_brokers_log(case: str) -> None:
    """What a broker wrote without a codec comes out byte for byte from the records that a consumer read."""
    expected = json.loads((_GOLDEN / case / "expected.json").read_text())["records"]
    log = b"".join(path.read_bytes() for path in sorted((_GOLDEN / case).glob("*-0/*.log")))
    records = [
        Record(
            offset=each["offset"],
            timestamp=each["timestamp"],
            key=None if each["key"] is None else base64.b64decode(each["key"]),
            value=None if each["value"] is None else base64.b64decode(each["value"]),
        )
        for each in expected
    ]

    assert _encode(records, LegacyEncodeOptions(magic=int(case[1]))).data.tobytes() == log


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
@pytest.mark.parametrize("magic", [0, 1])
def test_encode_legacy_when_codec_given_then_wraps_the_set(magic: int, codec: str) -> None:
    """A wrapper has the last record's offset, no key, the largest timestamp, and reads back as its records."""
    encoded = _encode(_three(), LegacyEncodeOptions(magic=magic, codec=codec))
    header = unpack_legacy_header(encoded.data)

    assert (header.offset, header.timestamp) == (9, _T0 + 2 if magic else -1)
    assert (encoded.base_offset.tolist(), encoded.last_offset_delta.tolist()) == ([7], [2])
    assert header.size_bytes == encoded.size[0] == len(encoded.data)
    assert records_of(decode_batches(encoded.data)) == [
        Record(offset=each.offset, timestamp=each.timestamp if magic else -1, key=each.key, value=each.value)
        for each in _three()
    ]


@pytest.mark.parametrize(("magic", "checksum"), [(0, 0x1A), (1, 0x82)])
def test_encode_legacy_when_lz4_then_header_checksum_is_the_formats(magic: int, checksum: int) -> None:
    """Format v0 computes the LZ4 header's checksum over the magic number too, format v1 as LZ4 says."""
    data = _encode(_three(), LegacyEncodeOptions(magic=magic, codec="lz4")).data.tobytes()
    frame = data[data.index(bytes.fromhex("04224d18")) :]

    assert frame[6] == checksum


def test_encode_legacy_when_offsets_assigned_then_each_group_counts_from_zero() -> None:
    """Without offsets the records of a group have 0, 1, 2, ..., over all of its entries."""
    rows, starts = np.arange(3), np.array([0, 2, 3])
    encoded = encode_legacy(columns_of(_three()), rows, starts, LegacyEncodeOptions(magic=1))

    assert encoded.base_offset.tolist() == [0, 1, 0]
    assert encoded.group.tolist() == [0, 0, 1]


def test_encode_legacy_when_set_is_full_then_starts_another_wrapper() -> None:
    """A wrapper takes records up to the batch size, uncompressed, and one at least."""
    encoded = _encode(_three(), LegacyEncodeOptions(magic=1, codec="gzip", batch_size_bytes=120))

    assert encoded.records_count.tolist() == [2, 1]
    assert records_of(decode_batches(encoded.data)) == _three()


def test_encode_legacy_when_wrapper_is_too_large_then_splits_it() -> None:
    """A wrapper above the limit becomes smaller ones; a record that alone is above it is refused with its row."""
    noise = np.random.default_rng(1).bytes(3000)
    records = [_record(n, value=noise[n * 1000 : (n + 1) * 1000]) for n in range(3)]
    encoded = _encode(records, LegacyEncodeOptions(magic=1, codec="gzip", max_message_bytes=1500))

    assert encoded.records_count.tolist() == [1, 1, 1]
    with pytest.raises(RecordTooLargeError) as caught:
        _encode(records, LegacyEncodeOptions(magic=1, codec="gzip", max_message_bytes=900))
    assert caught.value.row == 0


def test_encode_legacy_when_append_time_then_its_bit_is_set() -> None:
    """LogAppendTime is a bit of every entry, and format v0 has none."""
    for magic, attributes in ((0, 0), (1, 8)):
        options = LegacyEncodeOptions(magic=magic, timestamp_type=LOG_APPEND_TIME)

        assert unpack_legacy_header(_encode([_record(0)], options).data).attributes == attributes


@pytest.mark.parametrize("offsets", [[3, 3], [4, 2], [-1, 0], [0, 2**63 - 1]])
def test_encode_legacy_when_offsets_go_back_then_refuses(offsets: list[int]) -> None:
    """Offsets rise, and neither the first nor the last int64 is one."""
    with pytest.raises(InvalidRecordError, match="row="):
        _encode([_record(each) for each in offsets], LegacyEncodeOptions(magic=0))


def test_encode_legacy_when_timestamp_is_before_1970_then_v1_refuses_and_v0_does_not_care() -> None:
    """As in Kafka: -1 is the one negative timestamp that means something."""
    records = [_record(0), _record(1, timestamp=-2)]
    with pytest.raises(InvalidRecordError, match=r"timestamp is before 1970.* row=1"):
        _encode(records, LegacyEncodeOptions(magic=1))

    assert len(_encode(records, LegacyEncodeOptions(magic=0)).size) == 2


def test_encode_legacy_when_nothing_given_then_nothing_comes() -> None:
    """No rows are no entries, with or without a codec."""
    for codec in ("none", "gzip"):
        assert _encode([], LegacyEncodeOptions(magic=0, codec=codec)).data.size == 0


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"magic": 2}, "magic=2"),
        ({"magic": 1, "codec": "zstd"}, "codec='zstd' is unknown in format v1"),
        ({"magic": 1, "codec": "lzo"}, "codec='lzo'"),
        ({"magic": 1, "timestamp_type": -1}, "timestamp_type=-1"),
        ({"magic": 1, "batch_size_bytes": -1}, "batch_size_bytes=-1"),
    ],
)
def test_legacy_encode_options_when_wrong_then_names_the_problem(settings: dict[str, Any], problem: str) -> None:
    """A setting that no old client could have is refused, zstd above all."""
    with pytest.raises(InvalidConfigError, match=problem):
        LegacyEncodeOptions(**settings)
