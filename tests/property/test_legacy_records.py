import struct
import zlib
from contextlib import suppress
from dataclasses import replace

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.record.batch_decode import decode_batches, iter_decoded, iter_inspected
from sparklog.storage_core.record.batch_scan import check_crcs, scan_batches
from sparklog.storage_core.record.compression import compress
from tests.build.record_cases import records_of
from tests.plain.legacy_scalar import TypedRecord, decode_log, pack_entry
from tests.plain.scalar import Record
from tests.property.legacy_strategies import legacy_batches, mixed_batches

_MAX_BATCH_BYTES = 1 << 20


def _decoded(data: bytes) -> list[TypedRecord] | None:
    """Return what the compiled decoder reads, or None if it refuses."""
    try:
        found = decode_batches(data, max_batch_bytes=_MAX_BATCH_BYTES)
    except CorruptBatchError:
        return None
    found.validate(full=True)
    return list(zip(records_of(found), found.column("timestamp_type").to_pylist(), strict=True))


def _expected(data: bytes) -> list[TypedRecord] | None:
    try:
        return decode_log(data, max_batch_bytes=_MAX_BATCH_BYTES)
    except CorruptBatchError:
        return None


@given(mixed_batches)
def test_mixed_logs_are_read_as_by_the_scalar_twin(batches: list[bytes]) -> None:
    """Formats in any order: both decoders read the same records, and every CRC is right."""
    data = b"".join(batches)
    scan = scan_batches(data)

    assert scan.valid_bytes == len(data)
    assert check_crcs(data, scan).size == 0
    assert _decoded(data) == decode_log(data)


@given(mixed_batches, st.integers(1, 3000))
def test_mixed_logs_in_pieces_are_the_whole(batches: list[bytes], target_bytes: int) -> None:
    """However few bytes a piece may hold, the pieces together are the log, and each batch's records are in one."""
    data = b"".join(batches)
    pieces = list(iter_decoded(data, None, target_bytes))
    inspected = list(iter_inspected(data, scan_batches(data)))

    assert [record for each in pieces for record in records_of(each)] == [record for record, _ in decode_log(data)]
    assert sum(int(each.counts.sum()) for each in inspected) == sum(each.num_rows for each in pieces)
    assert all(each.is_valid.all() for each in inspected)


@given(st.data(), legacy_batches())
@settings(max_examples=300)
def test_damaged_entries_are_judged_as_by_the_scalar_twin(data: st.DataObject, batch: bytes) -> None:
    """Some bytes of a good entry change, its CRC is repaired: both decoders accept or refuse alike."""
    size = 12 + struct.unpack_from(">i", batch, 8)[0]
    damaged = bytearray(batch[:size])
    for place, value in data.draw(
        st.lists(st.tuples(st.integers(16, min(size - 1, 300)), st.integers(0, 255)), min_size=1, max_size=3)
    ):
        damaged[place] = value
    damaged[12:16] = struct.pack(">I", zlib.crc32(damaged[16:]))
    packed = bytes(damaged) + batch[size:]

    assert _decoded(packed) == _expected(packed) or damaged[16] == 2


@given(st.binary(max_size=200), st.integers(0, 1), st.sampled_from(["gzip", "snappy", "lz4"]), st.integers(-1, 2**40))
@example(b"", 1, "gzip", 0)
@settings(max_examples=300)
def test_arbitrary_sets_are_judged_as_by_the_scalar_twin(inner: bytes, magic: int, codec: str, offset: int) -> None:
    """Any bytes inside a wrapper are accepted or refused alike, and read alike."""
    wrapper = Record(offset=offset, timestamp=5, key=None, value=bytes(compress(codec, inner)))
    data = pack_entry(wrapper, magic, {"gzip": 1, "snappy": 2, "lz4": 3}[codec])

    assert _decoded(data) == _expected(data)


@given(st.data(), legacy_batches())
@settings(max_examples=300)
def test_damaged_sets_are_judged_as_by_the_scalar_twin(data: st.DataObject, entries: bytes) -> None:
    """Changed bytes inside a set, with every CRC repaired or not, are accepted or refused alike."""
    inner = bytearray(entries)
    for place, value in data.draw(st.lists(st.tuples(st.integers(0, len(inner) - 1), st.integers(0, 255)), max_size=2)):
        inner[place] = value
    if data.draw(st.booleans()):
        inner[12:16] = struct.pack(">I", zlib.crc32(inner[16 : 12 + abs(struct.unpack_from(">i", inner, 8)[0])]))
    wrapper = Record(offset=2**41, timestamp=5, key=None, value=bytes(compress("gzip", bytes(inner))))
    packed = pack_entry(wrapper, data.draw(st.integers(0, 1)), 1)

    assert _decoded(packed) == _expected(packed)


@given(st.binary(max_size=300), st.integers(0, 1), st.integers(0, 255))
def test_arbitrary_entries_raise_only_corrupt_batch(body: bytes, magic: int, attributes: int) -> None:
    """Any bytes under the header of an older format do no harm: they are records, or refused."""
    size = 5 + 1 + len(body)
    data = bytes(8) + struct.pack(">iIBB", size, 0, magic, attributes) + body
    try:
        scan = scan_batches(data)
    except CorruptBatchError as error:
        scan = scan_batches(data, 0, error.position)
    check_crcs(data, scan)
    with suppress(CorruptBatchError):
        decode_batches(data, scan, max_batch_bytes=_MAX_BATCH_BYTES).validate(full=True)
    with suppress(CorruptBatchError):
        for each in iter_inspected(data, scan, max_batch_bytes=_MAX_BATCH_BYTES):
            each.records.validate(full=True)


@given(st.lists(st.binary(min_size=17, max_size=200), min_size=1, max_size=4))
def test_entry_crcs_are_zlibs(contents: list[bytes]) -> None:
    """The compiled CRC-32 is zlib's, whatever the length and wherever the bytes lie."""
    entries = [bytes(12) + struct.pack(">I", zlib.crc32(each)) + each for each in contents]
    data = np.frombuffer(b"".join(entries), np.uint8)
    scan = scan_batches(pack_entry(Record(offset=0, timestamp=0, key=None, value=None), 0) * len(entries))
    sizes = np.array([len(each) for each in entries], np.int64)
    placed = replace(scan, position=np.cumsum(sizes) - sizes, size=sizes)

    assert check_crcs(data, placed).size == 0
    changed = data.copy()
    changed[-1] ^= 1
    assert check_crcs(changed, placed).tolist() == [len(entries) - 1]
