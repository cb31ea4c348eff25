from contextlib import suppress

import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.log_config import CODECS
from sparklog.storage_core.record.batch_decode import decode_batches, iter_decoded
from sparklog.storage_core.record.batch_scan import check_crcs, scan_batches
from sparklog.storage_core.record.compression import compress, decompress
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from tests.build.record_cases import SPECIMENS, encode, records_of, split_batches
from tests.plain.scalar import Record, decode_records
from tests.property.record_strategies import encode_options, record_lists

_MAX_BATCH_BYTES = 1 << 20
_RAW = st.binary(max_size=400)


def _header(length: int, attributes: int, count: int, magic: int = 2) -> bytes:
    return (
        bytes(8)
        + length.to_bytes(4, "big", signed=True)
        + bytes(4)
        + magic.to_bytes(1, "big")
        + bytes(4)
        + attributes.to_bytes(2, "big")
        + bytes(34)
        + count.to_bytes(4, "big", signed=True)
    )


def _read(data: bytes) -> None:
    """Do everything a reader does; only the two errors it expects may come out."""
    try:
        scan = scan_batches(data)
    except CorruptBatchError as error:
        scan = scan_batches(data, 0, error.position)
    check_crcs(data, scan)
    for include_control in (False, True):
        try:
            decoded = decode_batches(data, scan, max_batch_bytes=_MAX_BATCH_BYTES, include_control=include_control)
            decoded.validate(full=True)
        except CorruptBatchError:
            pass


@given(_RAW)
@example(bytes(100))
@example(b"\xff" * 100)
def test_arbitrary_bytes_raise_only_what_callers_expect(data: bytes) -> None:
    """Any bytes at all are scanned, checked and decoded without another error, a crash or a huge allocation."""
    _read(data)


@given(_RAW, st.integers(0, 0xFFFF), st.integers(-2, 200) | st.integers(-(2**31), 2**31 - 1), st.integers(0, 255))
def test_arbitrary_records_raise_only_what_callers_expect(
    section: bytes, attributes: int, count: int, magic: int
) -> None:
    """Any record section under any header does no harm."""
    _read(_header(49 + len(section), attributes, count, magic if magic < 4 else 2) + section)


@given(_RAW, st.integers(-1, 60), st.sampled_from(CODECS))
@settings(max_examples=300)
def test_arbitrary_records_are_judged_as_by_the_scalar_twin(section: bytes, count: int, codec: str) -> None:
    """The compiled decoder accepts exactly the sections that the plain one accepts, and reads the same from them."""
    stream = bytes(compress(codec, section))
    data = _header(49 + len(stream), CODECS.index(codec), count) + stream
    try:
        expected: list[Record] | None = decode_records(data)
    except CorruptBatchError:
        expected = None
    try:
        found: list[Record] | None = records_of(decode_batches(data))
    except CorruptBatchError:
        found = None

    assert found == expected


@given(st.data(), record_lists(min_size=1), encode_options())
@settings(max_examples=300)
def test_damaged_batches_are_judged_as_by_the_scalar_twin(
    data: st.DataObject, records: list[Record], options: EncodeOptions
) -> None:
    """Some bytes of good batches change, the CRC is repaired: both decoders accept or refuse alike."""
    damaged = bytearray(split_batches(encode(records, options, preserved=True))[0])
    places = st.integers(21, min(len(damaged) - 1, 400))
    for place, value in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), min_size=1, max_size=3)):
        damaged[place] = value
    damaged[17:21] = crc32c.crc32c(damaged[21:]).to_bytes(4, "big")
    packed = bytes(damaged)
    _read(packed)
    try:
        expected: list[Record] | None = decode_records(packed)
    except CorruptBatchError:
        expected = None
    try:
        found: list[Record] | None = records_of(decode_batches(packed))
    except CorruptBatchError:
        found = None

    assert found == expected


@given(st.binary(max_size=300), st.sampled_from(CODECS), st.integers(0, 1000))
def test_arbitrary_streams_raise_only_corrupt_batch(stream: bytes, codec: str, max_bytes: int) -> None:
    """Any bytes as a codec's stream give at most the bytes allowed, or are refused."""
    magics = {
        "gzip": b"\x1f\x8b\x08\0\0\0\0\0\0\xff",
        "lz4": b"\x04\x22\x4d\x18\x60\x40\x82",
        "zstd": b"\x28\xb5\x2f\xfd",
    }
    for each in (stream, magics.get(codec, b"\x82SNAPPY\0\0\0\0\1\0\0\0\1") + stream):
        with suppress(CorruptBatchError):
            assert codec == "none" or len(decompress(codec, each, max_bytes, 3)) <= max_bytes


@given(st.data(), st.sampled_from(CODECS))
def test_damaged_streams_raise_only_corrupt_batch(data: st.DataObject, codec: str) -> None:
    """A good stream with any byte changed gives bytes or is refused; nothing else happens."""
    stream = bytearray(compress(codec, b"value-value-value-" * 200 + bytes(range(256))))
    place = data.draw(st.integers(0, len(stream) - 1))
    stream[place] ^= data.draw(st.integers(1, 255))
    with suppress(CorruptBatchError):
        decompress(codec, bytes(stream), 1 << 20, 0)


@given(st.integers(0, 1 << 12), st.integers(1, 3000))
def test_cut_logs_give_their_complete_batches(cut: int, target_bytes: int) -> None:
    """A log cut anywhere decodes to the batches before the cut."""
    data = encode(SPECIMENS, EncodeOptions(batch_size_bytes=100)).data.tobytes()
    whole = scan_batches(data)
    cut = min(cut, len(data))
    complete = int((whole.position + whole.size <= cut).sum())

    rows = sum(each.num_rows for each in iter_decoded(data[:cut], None, target_bytes))
    assert rows == int(whole.records_count[:complete].sum())
