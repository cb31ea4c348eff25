"""What a cleaner reads of batches, against the decoder, on sound and on damaged bytes."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.storage_core.cleaner.keys.keyed_records import iter_keyed
from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.record.batch_decode import decode_batches
from sparklog.storage_core.record.batch_scan import scan_batches
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from tests.plain.legacy_scalar import pack_entry, pack_wrapper
from tests.plain.scalar import Record, encode_records, pack_batch
from tests.property.record_strategies import encode_options, record_lists

_RECORDS = [
    Record(offset=3, timestamp=5, key=b"key", value=b"value", headers=(("h", b"x"), ("", None))),
    Record(offset=4, timestamp=-1, key=None, value=None),
    Record(offset=200, timestamp=2**40, key=b"k" * 70, value=b""),
]


def _read(data: bytes) -> list[tuple[int, bytes | None, bool]]:
    """Return offset, key, and whether there is a value, of each record."""
    found: list[tuple[int, bytes | None, bool]] = []
    for records in iter_keyed(data, scan_batches(data), target_bytes=100):
        source = records.source.tobytes()
        keys = [
            None if start < 0 else source[start : start + size]
            for start, size in zip(records.key_start.tolist(), records.key_size.tolist(), strict=True)
        ]
        found += zip(records.offset.tolist(), keys, records.has_value.tolist(), strict=True)
        assert (np.diff(records.batch) >= 0).all()
        assert len(records) == records.counts.sum()
        assert ((records.start >= 0) & (records.end > records.start) & (records.end <= len(source))).all()
    return found


def _decoded(data: bytes) -> list[tuple[int, bytes | None, bool]]:
    records: pa.RecordBatch = decode_batches(data, include_control=True)
    has_value = records.column("value").is_valid().to_pylist()
    return list(zip(records.column("offset").to_pylist(), records.column("key").to_pylist(), has_value, strict=True))


@given(record_lists(), encode_options())
def test_iter_keyed_agrees_with_the_decoder(records: list[Record], options: EncodeOptions) -> None:
    """Offsets, keys, and which values are null, of any batches, are those that decoding them gives."""
    data = b"".join(encode_records(records, options, assigned=False))

    assert _read(data) == _decoded(data)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(1, 4)), max_size=8))
def test_iter_keyed_of_formats_in_any_order_agrees_with_the_decoder(parts: list[tuple[int, bool, int]]) -> None:
    """Batches of all formats, compressed or not, may follow each other."""
    data, offset = b"", 0
    for magic, is_compressed, count in parts:
        rows = [
            Record(offset=offset + number, timestamp=7 if magic else -1, key=b"k%d" % number, value=None)
            for number in range(count)
        ]
        offset += count
        codec = "gzip" if is_compressed else "none"
        if magic >= 2:
            data += pack_batch(rows, EncodeOptions(codec=codec))
        elif is_compressed:
            data += pack_wrapper(rows, magic, codec)
        else:
            data += b"".join(pack_entry(row, magic) for row in rows)

    assert _read(data) == _decoded(data)


@settings(max_examples=400)
@given(st.integers(17, 400), st.integers(0, 255), st.sampled_from(["none", "snappy"]))
def test_iter_keyed_of_a_changed_byte_reads_what_the_decoder_reads_or_refuses(at: int, byte: int, codec: str) -> None:
    """Nothing is read that the decoder would refuse; what it reads, it reads alike, but for offsets that go back."""
    changed = bytearray(pack_batch(_RECORDS, EncodeOptions(codec=codec)))
    changed[at % len(changed)] = byte
    if at % len(changed) < 17:
        return
    data = bytes(changed)
    try:
        decoded = _decoded(data)
    except CorruptBatchError:
        decoded = None
    try:
        read = _read(data)
    except CorruptBatchError:
        offsets = [each[0] for each in decoded or []]
        last = int(scan_batches(data).last_offset[0])
        assert decoded is None or offsets != sorted(set(offsets)) or offsets[0] < 3 or offsets[-1] > last
    else:
        assert read == decoded


@settings(max_examples=300)
@given(st.binary(max_size=300), st.sampled_from([0, 1, 2]), st.integers(0, 7), st.integers(-1, 50))
def test_iter_keyed_of_arbitrary_bytes_refuses_or_reads(body: bytes, magic: int, attributes: int, count: int) -> None:
    """Whatever stands behind a header, nothing but damage is reported, and nothing outside the bytes is read."""
    head = bytes(8) + (49 + len(body)).to_bytes(4, "big") + bytes(4) + bytes([magic]) + bytes(4)
    head += bytes([0, attributes]) + (1000).to_bytes(4, "big") + bytes(30) + count.to_bytes(4, "big", signed=True)
    data = head + body
    position = 0
    try:
        for records in iter_keyed(data, scan_batches(data)):
            records.digests(bytes(16))
    except CorruptBatchError as error:
        position = error.position
    assert 0 <= position <= len(data)
