import mmap
import struct
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.record.batch_scan import check_crcs, scan_batches
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from sparklog.storage_core.record.v2.batch_header import HEADER_DTYPE, unpack_header
from tests.build.record_cases import SPECIMENS, encode, split_batches

_V0 = bytes.fromhex("000000000000000900000016 2356c137 00 00 00000003 6b6579 00000005 76616c7565")
_V1 = bytes.fromhex("000000000000000a0000001e ea5a4861 01 00 00000163639e71cb 00000003 6b6579 00000005 76616c7565")


def _log(count: int = 3) -> bytes:
    batch = split_batches(encode(SPECIMENS, EncodeOptions(partition_leader_epoch=4)))[0]
    return b"".join((number * 10).to_bytes(8, "big") + batch[8:] for number in range(count))


def test_scan_when_batches_are_complete_then_every_header_field_is_a_column() -> None:
    """Each column holds the field of each header."""
    data = _log()
    scan = scan_batches(data)

    assert (len(scan), scan.valid_bytes) == (3, len(data))
    assert scan.next_offset.tolist() == [6, 16, 26]
    for place in range(3):
        header = unpack_header(data, int(scan.position[place]))
        assert scan.size[place] == header.size_bytes
        assert scan.last_offset[place] == header.last_offset
        assert scan.leader_epoch[place] == header.partition_leader_epoch
        for name in set(HEADER_DTYPE.names or ()) - {"batch_length", "partition_leader_epoch"}:
            assert getattr(scan, name)[place] == getattr(header, name), name


def test_scan_when_data_is_any_buffer_then_the_same(tmp_path: Path) -> None:
    """Bytes, a memoryview, an array, an Arrow buffer and a mapped file are read alike."""
    data = _log()
    path = tmp_path / "log"
    path.write_bytes(data)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for each in (data, bytearray(data), memoryview(data), np.frombuffer(data, np.uint8), pa.py_buffer(data)):
            assert scan_batches(each).position.tolist() == scan_batches(data).position.tolist()
        assert len(scan_batches(mapped)) == 3


def test_scan_when_cut_anywhere_then_the_rest_is_a_torn_tail() -> None:
    """Whatever the cut, the complete batches are found and nothing is raised."""
    data = _log()
    size = len(data) // 3

    for end in range(len(data) + 1):
        scan = scan_batches(data[:end])
        assert (len(scan), scan.valid_bytes) == (end // size, end // size * size)
        assert scan_batches(data, 0, end).valid_bytes == scan.valid_bytes


@pytest.mark.parametrize("tail", [1, 12, 17])
def test_scan_when_up_to_17_bytes_follow_then_torn_tail_whatever_they_are(tail: int) -> None:
    """Up to 17 bytes are not judged: zeros there are a short tail, one more makes them damage.

    Source: Kafka FileLogInputStream.nextBatch.
    """
    data = _log()

    assert scan_batches(data + bytes(tail)).valid_bytes == len(data)
    with pytest.raises(CorruptBatchError):
        scan_batches(data + bytes(18))


def test_scan_when_start_and_end_are_given_then_only_batches_between() -> None:
    """Positions stay those of the whole data."""
    data = _log()
    size = len(data) // 3

    assert scan_batches(data, size).position.tolist() == [size, 2 * size]
    assert scan_batches(data, size, 2 * size).position.tolist() == [size]
    assert scan_batches(data, size, 2 * size + 70).valid_bytes == 2 * size
    assert (len(scan_batches(data, len(data))), scan_batches(b"").valid_bytes) == (0, 0)
    assert (len(scan_batches(data, len(data) + 9)), len(scan_batches(data, 0, len(data) + 9))) == (0, 3)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13, 14, 48])
def test_scan_when_a_length_is_below_the_smallest_then_corrupt_at_that_batch(length: int) -> None:
    """Below 14 no format has a message, below 49 v2 has no batch; a zero-filled tail is such damage."""
    data = _log(2)
    damaged = data + bytes(8) + struct.pack(">i", length) + b"\0\0\0\0\2" + bytes(60)

    with pytest.raises(CorruptBatchError) as caught:
        scan_batches(damaged)
    assert caught.value.position == len(data)
    assert len(scan_batches(damaged, 0, caught.value.position)) == 2


def test_scan_when_length_is_huge_then_torn_tail() -> None:
    """A length that reaches past the end may be a batch still being written."""
    scan = scan_batches(_log(1) + bytes(8) + struct.pack(">i", 2**31 - 1) + bytes(60))

    assert len(scan) == 1


def test_scan_when_entries_are_of_older_formats_then_columns_hold_what_they_have() -> None:
    """An entry of v0 or v1 is a batch of one offset; what its format lacks is -1."""
    scan = scan_batches(_V0 + _V1 + _log(1))

    assert scan.magic.tolist() == [0, 1, 2]
    assert scan.size.tolist()[:2] == [34, 42]
    assert scan.base_offset.tolist() == [9, 10, 0]
    assert scan.next_offset.tolist() == [10, 11, 6]
    assert scan.crc.tolist()[:2] == [0x2356C137, 0xEA5A4861]
    assert scan.max_timestamp.tolist()[:2] == [-1, 1526384718283]
    assert scan.records_count.tolist()[:2] == [1, 1]
    assert scan.attributes.tolist()[:2] == [0, 0]
    for name in ("leader_epoch", "base_timestamp", "producer_id", "producer_epoch", "base_sequence"):
        assert getattr(scan, name).tolist()[:2] == [-1, -1], name


def test_scan_when_older_entries_have_attributes_then_only_bits_their_format_has() -> None:
    """v1 has codec and timestamp type, v0 the codec alone; a wrapper's count is unknown until it is opened."""
    entries = [bytearray(each) for each in (_V0, _V1, _V0)]
    for entry, attributes in zip(entries, (0xFA, 0xFA, 0xF8), strict=True):
        entry[17] = attributes
    scan = scan_batches(b"".join(entries))

    assert scan.attributes.tolist() == [2, 10, 0]
    assert scan.records_count.tolist() == [-1, -1, 1]


@pytest.mark.parametrize(("magic", "length"), [(0, 13), (1, 14), (1, 21), (2, 48)])
def test_scan_when_a_length_is_below_its_formats_smallest_then_corrupt(magic: int, length: int) -> None:
    """Each format has its own smallest length; one byte more and the entry is complete."""
    for size in (length, 49):
        entry = bytes(8) + struct.pack(">i", size) + bytes(4) + bytes((magic,)) + bytes(size - 5)
        if size == 49:
            assert len(scan_batches(entry)) == 1
            continue
        with pytest.raises(CorruptBatchError):
            scan_batches(_V0 + entry)


def test_check_crcs_when_any_covered_byte_changes_then_that_batch_is_named() -> None:
    """Bytes 21 and on are covered, in v2; base offset, leader epoch and magic are not."""
    data = _log()
    size, scan = len(data) // 3, scan_batches(data)

    assert check_crcs(data, scan).tolist() == []
    for at in (17, 21, 35, 61, size - 1):
        damaged = bytearray(data)
        damaged[size + at] ^= 1
        assert check_crcs(damaged, scan_batches(damaged)).tolist() == [1], at
    moved = bytearray(data)
    moved[size : size + 8] = b"\1" * 8
    moved[size + 12 : size + 16] = b"\1" * 4
    assert check_crcs(moved, scan_batches(moved)).size == 0


def test_check_crcs_when_entries_are_of_older_formats_then_their_own_crc_counts() -> None:
    """v0 and v1 carry a CRC-32 of another polynomial over the bytes from magic on."""
    data = _V0 + _V1
    damaged = data[:-1] + b"x"

    assert check_crcs(data, scan_batches(data)).tolist() == []
    assert check_crcs(damaged, scan_batches(damaged)).tolist() == [1]


def test_take_when_some_batches_are_chosen_then_all_columns_follow() -> None:
    """A part of a scan is a scan."""
    scan = scan_batches(_log())

    assert scan.take(slice(1, 3)).position.tolist() == scan.position[1:].tolist()
    assert scan.take(np.array([2, 0])).base_offset.tolist() == [20, 0]
    assert scan.take(scan.base_offset > 5).valid_bytes == scan.valid_bytes
    assert replace(scan, valid_bytes=0).valid_bytes == 0


def test_scan_when_a_log_has_many_batches_then_it_takes_no_time_per_byte() -> None:
    """Only headers are read: 64 MiB of 16 KiB batches are scanned in milliseconds."""
    data = encode([replace(SPECIMENS[0], value=bytes(16_300))]).data.tobytes() * 4096
    started = time.perf_counter()
    scan = scan_batches(data)

    assert len(scan) == 4096
    assert time.perf_counter() - started < 1.0
