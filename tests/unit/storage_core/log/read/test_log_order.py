import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import crc32c
import pytest

from sparklog.storage_core.errors import CorruptBatchError, LogStorageError
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, BatchHeader, pack_header
from tests.plain.legacy_scalar import pack_entry, pack_wrapper
from tests.plain.scalar import Record, pack_batch, pack_record

_TIME = 1_700_000_000_000


def _records(offsets: Sequence[int]) -> list[Record]:
    return [Record(offset=offset, timestamp=_TIME, key=None, value=b"v") for offset in offsets]


def _v2(first: int, count: int) -> bytes:
    return pack_batch(_records(range(first, first + count)), EncodeOptions())


def _wrapper(first: int, count: int) -> bytes:
    return pack_wrapper(_records(range(first, first + count)), 1, "gzip")


def _log(directory: Path, *segments: tuple[int, Sequence[bytes]]) -> Path:
    directory.mkdir()
    for base, batches in segments:
        (directory / f"{base:020d}.log").write_bytes(b"".join(batches))
    return directory


def _flipped(batch: bytes, bit: int) -> bytes:
    """Return a batch with a changed bit of its base offset."""
    (offset,) = struct.unpack_from(">Q", batch)
    return struct.pack(">Q", offset ^ (1 << bit)) + batch[8:]


def _offsets(directory: Path, start: int = 0) -> list[int]:
    return [offset for batch in LogReader(directory).read(start) for offset in batch.column("offset").to_pylist()]


def _v2_with(base: int, deltas: Sequence[int]) -> bytes:
    """Return a batch whose CRC is right, of records with any offset deltas."""
    section = b"".join(
        pack_record(Record(offset=base + delta, timestamp=_TIME, key=None, value=b"v"), base, _TIME) for delta in deltas
    )
    header = BatchHeader(
        base_offset=base,
        batch_length=HEADER_BYTES - 12 + len(section),
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=len(deltas) - 1,
        base_timestamp=_TIME,
        max_timestamp=_TIME,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=len(deltas),
    )
    batch = pack_header(header) + section
    return batch[:17] + struct.pack(">I", crc32c.crc32c(batch[21:])) + batch[21:]


@pytest.mark.parametrize("bit", range(64))
@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("pack", [_v2, _wrapper])
def test_read_when_an_offset_bit_of_a_batch_is_changed_then_refused(
    tmp_path: Path, pack: Callable[[int, int], bytes], place: int, bit: int
) -> None:
    """A batch that claims what belongs to others, or what lies behind the log's end, never hides what follows it."""
    batches = [pack(first, 10) for first in range(0, 60, 10)]
    batches[place] = _flipped(batches[place], bit)
    directory = _log(tmp_path / "t-0", (0, batches[:2]), (20, batches[2:4]), (40, batches[4:]))

    with pytest.raises(LogStorageError):
        _offsets(directory)


def test_read_when_a_batch_lies_across_the_end_then_those_before_it_and_an_error(tmp_path: Path) -> None:
    """The log's end is the end of a batch: one that reaches behind it has a wrong base offset."""
    batches = (_v2(0, 20), _flipped(_v2(20, 10), 5))
    directory = _log(tmp_path / "t-0", (0, batches), (30, [_v2(30, 31)]))

    with pytest.raises(CorruptBatchError, match=f"wrong base offset: base_offset=52 .* position={len(batches[0])}"):
        _offsets(directory)


def test_read_when_a_batch_of_a_closed_segment_ends_with_the_log_then_refused(tmp_path: Path) -> None:
    """Where a segment follows, no batch can be the log's last."""
    directory = _log(tmp_path / "t-0", (0, [_flipped(_v2(0, 4), 4)]), (16, [_v2(16, 4)]))

    with pytest.raises(LogStorageError, match="overlaps"):
        _offsets(directory)


@pytest.mark.parametrize("bit", [3, 5, *range(31, 64)])
def test_log_reader_when_the_last_batch_cannot_be_there_then_refused(tmp_path: Path, bit: int) -> None:
    """A plain folder's end comes from its last batch: one that goes back, or too far, is no end."""
    last = _flipped(_v2(40, 10), bit)
    directory = _log(tmp_path / "t-0", (0, [_v2(0, 30)]), (30, [_v2(30, 10), last]))

    with pytest.raises(CorruptBatchError, match=r"wrong base offset: .*00030.log position="):
        LogReader(directory)


def test_log_reader_when_only_the_last_batch_is_indexed_then_compared_with_the_one_before_it(tmp_path: Path) -> None:
    """The index leads the search for the end to the last batch; the one before it is looked at, too."""
    first = [pack_entry(each, 1) for each in _records(range(30, 50))]
    first[-1] = _flipped(first[-1], 4)
    directory = _log(tmp_path / "t-0", (30, first))
    (directory / f"{30:020d}.index").write_bytes(struct.pack(">ii", 19, len(b"".join(first[:-1]))))

    with pytest.raises(CorruptBatchError, match="wrong base offset: base_offset=33"):
        LogReader(directory)


def test_log_reader_when_the_last_batch_has_a_wrong_crc_then_refused(tmp_path: Path) -> None:
    """An end that a damaged header claims would leave out records, or make them up."""
    damaged = bytearray(_v2(10, 10))
    damaged[26] ^= 1
    directory = _log(tmp_path / "t-0", (0, [_v2(0, 10), bytes(damaged)]))

    with pytest.raises(CorruptBatchError, match="wrong CRC"):
        LogReader(directory)


def test_log_reader_when_the_tail_is_torn_then_the_end_is_before_it(tmp_path: Path) -> None:
    """Half a batch is what a crash leaves: not damage."""
    directory = _log(tmp_path / "t-0", (0, [_v2(0, 10), _v2(10, 10)[:-1]]))

    assert _offsets(directory) == list(range(10))


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("bit", range(8, 32))
@pytest.mark.parametrize("pack", [_v2, _wrapper])
def test_log_reader_when_a_length_is_wrong_by_a_bit_then_no_torn_tail(
    tmp_path: Path, pack: Callable[[int, int], bytes], bit: int, place: int
) -> None:
    """A sound batch that announces too many bytes would hide itself and all that follows."""
    batches = [pack(first, 10) for first in (0, 10, 20)]
    length = struct.unpack_from(">I", batches[place], 8)[0] ^ (1 << bit)
    batches[place] = batches[place][:8] + struct.pack(">I", length) + batches[place][12:]
    directory = _log(tmp_path / "t-0", (0, batches))

    with pytest.raises(CorruptBatchError):
        LogReader(directory)


@pytest.mark.parametrize(
    "deltas", [(0, 0, 0), (0, 2, 1), (2, 1, 0), (0, 1, 500), (0, -5, 2), (5, 6, 7), (-1, 0, 1)], ids=str
)
def test_read_when_records_of_a_batch_are_out_of_order_then_refused(tmp_path: Path, deltas: Sequence[int]) -> None:
    """Offsets rise, and lie within their batch, whatever its CRC says; the batches before it come first."""
    before = _v2(0, 10)
    directory = _log(tmp_path / "t-0", (0, [before, _v2_with(10, deltas), _v2(600, 3)]))
    found: list[int] = []

    with pytest.raises(CorruptBatchError, match=f"out of order .* position={len(before)}"):  # noqa: PT012
        for batch in LogReader(directory).read(5):
            found += batch.column("offset").to_pylist()

    assert found == list(range(5, 10))


@pytest.mark.parametrize("start", [0, 2, 5])
def test_read_when_a_wrapper_reaches_back_then_refused(tmp_path: Path, start: int) -> None:
    """A wrapper has its last offset alone; what is inside must begin behind what came before it."""
    reaching_back = _wrapper(2, 5)
    directory = _log(tmp_path / "t-0", (0, [_wrapper(0, 5), reaching_back]))

    with pytest.raises(CorruptBatchError, match="out of order"):
        _offsets(directory, start)


def test_read_when_a_wrapper_of_v0_holds_offsets_of_the_next_one_then_refused(tmp_path: Path) -> None:
    """Offsets inside a wrapper of v0 are absolute, so they may say anything."""
    inner = pack_wrapper(_records([0, 1, 7]), 0, "gzip")
    directory = _log(tmp_path / "t-0", (0, [struct.pack(">q", 2) + inner[8:], pack_wrapper(_records([3]), 0, "gzip")]))

    with pytest.raises(CorruptBatchError, match="out of order"):
        _offsets(directory)


def test_read_when_a_wrapper_at_offset_zero_holds_several_then_all(tmp_path: Path) -> None:
    """An old client left a wrapper's offset unset; what is inside counts."""
    wrapper = struct.pack(">q", 0) + _wrapper(0, 3)[8:]
    directory = _log(tmp_path / "t-0", (0, [wrapper, _wrapper(3, 2)]))

    assert _offsets(directory) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("bit", [0, 1, 3, 4, 5, 6, 20, 40, 63])
@pytest.mark.parametrize("place", range(5))
def test_offset_for_time_when_a_base_offset_is_wrong_then_no_wrong_offset(tmp_path: Path, place: int, bit: int) -> None:
    """A look-up by time finds the record where it was, or says that its batch can't be there."""
    batches = [_v2(first, 10) for first in range(0, 60, 10)]
    batches[place] = _flipped(batches[place], bit)
    directory = _log(tmp_path / "t-0", (0, batches[:2]), (20, batches[2:4]), (40, batches[4:]))
    reader = LogReader(directory, log_start_offset=0, log_end_offset=60)

    with suppress(CorruptBatchError):
        assert reader.offset_for_time(_TIME) == (0, _TIME)
    with suppress(CorruptBatchError):
        assert reader.offset_of_max_timestamp() == (0, _TIME)


def test_offset_for_time_when_the_batch_found_is_the_chunks_last_then_compared_with_the_one_behind(
    tmp_path: Path,
) -> None:
    """What is read at once may end with the batch that is found."""
    large = pack_batch([Record(offset=0, timestamp=_TIME, key=None, value=bytes(1 << 16))], EncodeOptions())
    directory = _log(tmp_path / "t-0", (0, [_flipped(large, 4), _v2(1, 9), _v2(10, 10), _v2(20, 10)]))

    with pytest.raises(CorruptBatchError, match="wrong base offset: base_offset=16"):
        LogReader(directory, log_start_offset=0, log_end_offset=30).offset_for_time(_TIME)


def test_read_when_the_last_wrapper_of_v0_has_a_lower_offset_then_refused(tmp_path: Path) -> None:
    """Its records have offsets of their own: they can't lie behind the wrapper's."""
    last = pack_wrapper(_records(range(5, 10)), 0, "gzip")
    directory = _log(tmp_path / "t-0", (0, [pack_wrapper(_records(range(5)), 0, "gzip"), _flipped(last, 0)]))

    with pytest.raises(CorruptBatchError, match="out of order"):
        _offsets(directory)


@pytest.mark.parametrize("merged", [[(30, 5)], [(30, 5), (35, 5)], [(4, 2), (30, 5)]])
def test_read_when_a_cleaner_put_what_came_later_into_the_segment_then_ends_with_its_range(
    tmp_path: Path, merged: list[tuple[int, int]]
) -> None:
    """The end was told before the log grew and was cleaned; of what lay before it only the first batches are left."""
    directory = _log(tmp_path / "t-0", (0, [_v2(*each) for each in merged]), (40, [_v2(40, 5)]))
    reader = LogReader(directory, log_start_offset=0, log_end_offset=20)

    found = [offset for batch in reader.read(0) for offset in batch.column("offset").to_pylist()]

    assert found == [offset for first, count in merged for offset in range(first, first + count) if offset < 20]


def test_read_when_a_batch_lies_behind_the_end_of_a_log_that_has_not_grown_then_an_error(tmp_path: Path) -> None:
    """Nothing but a changed base offset can have brought it there; nor where its follower belongs in front of it."""
    still = _log(tmp_path / "t-0", (0, [_v2(30, 5)]))
    grown = _log(tmp_path / "t-1", (0, [_v2(30, 5), _v2(5, 5)]), (40, [_v2(40, 5)]))

    for directory in (still, grown):
        with pytest.raises(LogStorageError):
            list(LogReader(directory, log_start_offset=0, log_end_offset=20).read(0))
