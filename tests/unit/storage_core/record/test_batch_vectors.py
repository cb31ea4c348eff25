"""Bytes that Kafka's own classes wrote, and what they hold."""

import pytest

from sparklog.storage_core.record.batch_decode import decode_batches
from sparklog.storage_core.record.batch_scan import check_crcs, scan_batches
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from sparklog.storage_core.record.v2.batch_header import unpack_header
from tests.build.record_cases import encode, records_of
from tests.plain.scalar import Record, decode_records, encode_records

_T0 = 1526384718283
_KEY_VALUE = Record(offset=0, timestamp=_T0, key=b"key", value=b"value")

_PLAIN = {
    "key and value": (
        "0000000000000000 00000040 ffffffff 02 fdd6de97 0000 00000000 00000163639e71cb 00000163639e71cb"
        "ffffffffffffffff ffff ffffffff 00000001 1c 00 00 00 06 6b6579 0a 76616c7565 00",
        [_KEY_VALUE],
    ),
    "null key": (
        "0000000000000000 0000003d ffffffff 02 d31c82db 0000 00000000 00000163639e71cb 00000163639e71cb"
        "ffffffffffffffff ffff ffffffff 00000001 16 00 00 00 01 0a 76616c7565 00",
        [Record(offset=0, timestamp=_T0, key=None, value=b"value")],
    ),
    "tombstone": (
        "0000000000000000 0000003b ffffffff 02 77cfac1d 0000 00000000 00000163639e71cb 00000163639e71cb"
        "ffffffffffffffff ffff ffffffff 00000001 12 00 00 00 06 6b6579 01 00",
        [Record(offset=0, timestamp=_T0, key=b"key", value=None)],
    ),
    "six records": (
        "0000000000000000 0000008b ffffffff 02 98bec4a4 0000 00000005 00000163639e71cb 00000163639e71cb"
        "ffffffffffffffff ffff ffffffff 00000006"
        + "".join(f"1c0000{2 * number:02x}066b65790a76616c756500" for number in range(6)),
        [Record(offset=number, timestamp=_T0, key=b"key", value=b"value") for number in range(6)],
    ),
    "headers, time going back, nulls": (
        "000000000000000000000055ffffffff0297a0864000000000000200000000000003e800000000000003edffffffffffffffffffff"
        "ffffffff0000000322000000026b027604046831027804c3a90114000a02046b32047632000c001304010100",
        [
            Record(offset=0, timestamp=1000, key=b"k", value=b"v", headers=(("h1", b"x"), ("é", None))),
            Record(offset=1, timestamp=1005, key=b"k2", value=b"v2"),
            Record(offset=2, timestamp=990, key=None, value=None),
        ],
    ),
}


def _letters(base: int, times: list[int]) -> list[Record]:
    return [
        Record(offset=base + number, timestamp=time, key=b"abc"[number : number + 1], value=b"123"[number : number + 1])
        for number, time in enumerate(times)
    ]


_PRODUCER = {"producer_id": 7, "producer_epoch": 3, "partition_leader_epoch": 9}
_WITH_OPTIONS = {
    "log append time": (
        "000000000000006400000043ffffffff0224b3849b00080000000100000000000003e800000000000007d0ffffffffffffffffffff"
        "ffffffff00000002100000000261023100100006020262023200",
        _letters(100, [1000, 1003]),
        EncodeOptions(log_append_time_ms=2000),
        _letters(100, [2000, 2000]),
    ),
    "idempotent, sequence wraps": (
        "00000000000000320000004c000000090248bf2b24000000000002000000000000000a000000000000000c00000000000000070003"
        "7ffffffe00000003100000000261023100100002020262023200100004040263023300",
        _letters(50, [10, 11, 12]),
        EncodeOptions(base_sequence=2147483646, **_PRODUCER),  # type: ignore[arg-type]
        _letters(50, [10, 11, 12]),
    ),
    "transactional": (
        "00000000000000050000003a000000090206e356fb001000000000000000000000000a000000000000000a00000000000000070003"
        "0000000000000001100000000261023100",
        _letters(5, [10]),
        EncodeOptions(base_sequence=0, is_transactional=True, **_PRODUCER),  # type: ignore[arg-type]
        _letters(5, [10]),
    ),
}

_CONTROL = {
    "commit": (
        "0000000000000006000000420000000902c0fe920f0030000000000000000000000014000000000000001400000000000000070003"
        "ffffffff000000012000000008000000010c00000000000b00",
        bytes.fromhex("00000001"),
    ),
    "abort": (
        "000000000000000600000042000000090234c044470030000000000000000000000014000000000000001400000000000000070003"
        "ffffffff000000012000000008000000000c00000000000b00",
        bytes.fromhex("00000000"),
    ),
}

_VALUES = [
    Record(offset=7 + number, timestamp=_T0 + number, key=b"key%d" % number, value=b"value-value-value-%d" % number)
    for number in range(3)
]
_CODECS = {
    "none": "00000000000000070000008bffffffff02b32855f700000000000200000163639e71cb00000163639e71cdffffffffffffffffffff"
    "ffffffff000000033a000000086b6579302676616c75652d76616c75652d76616c75652d30003a000202086b6579312676616c75652d7661"
    "6c75652d76616c75652d31003a000404086b6579322676616c75652d76616c75652d76616c75652d3200",
    "gzip": "00000000000000070000006dffffffff0269d8e6a800010000000200000163639e71cb00000163639e71cdffffffffffffffffffff"
    "ffffffff000000031f8b08000000000000ffb3626060e0c84ead34502b4bcc294dd545260d18ac18989840b28658640d81b22c2c2059232c"
    "b2460c00079740075a000000",
    "snappy": "000000000000000700000079ffffffff02a18bf1c400020000000200000163639e71cb00000163639e71cdffffffffffffffff"
    "ffffffffffff0000000382534e41505059000000000100000001000000345a3c3a000000086b6579302676616c75652d2e06001430003a000202"
    "011e00314a1e001431003a000404011e00324a1e00043200",
    "lz4": "000000000000000700000075ffffffff02b57238c100030000000200000163639e71cb00000163639e71cdffffffffffffffffffff"
    "ffffffff0000000304224d1860408235000000f8013a000000086b6579302676616c75652d06006030003a0002021e001f311e00006031003a"
    "0004041e001c321e005075652d320000000000",
    "zstd": "00000000000000070000006fffffffff0234a91d0b00040000000200000163639e71cb00000163639e71cdffffffffffffffffffff"
    "ffffffff0000000328b52ffd005894010044023a000000086b6579302676616c75652d30003a000202086b65793131003a00040432320004"
    "002005084a508917ae2c01010000",
}


@pytest.mark.parametrize("name", _PLAIN)
def test_vector_when_plain_then_both_encoders_and_decoders_agree_with_kafka(name: str) -> None:
    """The compiled and the plain encoder write Kafka's bytes; both decoders read them."""
    packed, records = bytes.fromhex(_PLAIN[name][0]), _PLAIN[name][1]

    assert encode(records).data.tobytes().hex() == packed.hex()
    assert encode_records(records, EncodeOptions()) == [packed]
    assert records_of(decode_batches(packed)) == decode_records(packed) == records


@pytest.mark.parametrize("name", _WITH_OPTIONS)
def test_vector_when_header_fields_are_set_then_kafkas_bytes(name: str) -> None:
    """Append time, producer, sequence, epoch and transaction fields land where Kafka puts them."""
    hexadecimal, records, options, read = _WITH_OPTIONS[name]
    packed = bytes.fromhex(hexadecimal)

    assert encode(records, options, preserved=True).data.tobytes().hex() == packed.hex()
    assert encode_records(records, options, assigned=False) == [packed]
    assert records_of(decode_batches(packed)) == decode_records(packed) == read


@pytest.mark.parametrize("name", _CONTROL)
def test_vector_when_control_then_only_include_control_shows_it(name: str) -> None:
    """An end of a transaction is a control batch of 78 bytes at its own offset."""
    packed, key = bytes.fromhex(_CONTROL[name][0]), _CONTROL[name][1]
    header = unpack_header(packed)
    decoded = decode_batches(packed, include_control=True)

    assert (header.size_bytes, header.is_control, header.is_transactional) == (78, True, True)
    assert decode_batches(packed).num_rows == 0
    assert decoded.column("offset").to_pylist() == [6]
    assert decoded.column("key").to_pylist() == [key]
    assert decoded.column("value").to_pylist() == [bytes.fromhex("00000000000b")]
    assert check_crcs(packed, scan_batches(packed)).size == 0


@pytest.mark.parametrize("codec", _CODECS)
def test_vector_when_compressed_then_the_same_three_records(codec: str) -> None:
    """Each codec's bytes, as Kafka wrote them, hold the same records."""
    packed = bytes.fromhex(_CODECS[codec])

    assert unpack_header(packed).codec == codec
    assert check_crcs(packed, scan_batches(packed)).size == 0
    assert records_of(decode_batches(packed)) == decode_records(packed) == _VALUES


def test_vector_when_batch_is_empty_then_it_still_covers_its_offsets() -> None:
    """A batch that lost all its records is 61 bytes and ends at offset 104."""
    packed = bytes.fromhex(
        "000000000000006400000031000000090222d54c05000000000004ffffffffffffffff00000000000030390000000000000007000300000000"
        "00000000"
    )
    scan = scan_batches(packed)

    assert (scan.next_offset.tolist(), scan.max_timestamp.tolist(), scan.base_timestamp.tolist()) == (
        [105],
        [12345],
        [-1],
    )
    assert check_crcs(packed, scan).size == 0
    assert decode_batches(packed).num_rows == 0
