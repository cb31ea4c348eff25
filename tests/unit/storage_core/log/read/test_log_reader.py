import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparklog.storage_core.errors import (
    CorruptBatchError,
    CorruptFileError,
    InvalidConfigError,
    OffsetOutOfRangeError,
    StorageError,
)
from sparklog.storage_core.log.read.log_reader import LogReader
from tests.build.written_log import Batch, WrittenLog, encode_batch, write_log


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    """Three segments of six batches of three records; offsets 100 to 153."""
    segments = [[Batch([s * 1000 + b * 10, 5, s * 1000 + b * 10 + 5]) for b in range(6)] for s in range(3)]
    return write_log(tmp_path / "orders-0", segments, start_offset=100)


def _offsets(reader: LogReader, start: int, max_records: int | None = None, **options: Any) -> list[int]:
    batches = reader.read(start, max_records, **options)
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def _change(path: Path, change: Callable[[bytearray], object]) -> None:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


def test_log_reader_when_folder_is_plain_then_range_found_by_itself(log: WrittenLog) -> None:
    """Without a ledger a log starts at its first segment and ends behind its last batch."""
    reader = LogReader(log.directory)

    assert (reader.log_start_offset, reader.log_end_offset) == (100, 154)


def test_log_reader_when_directory_empty_then_nothing_to_read(tmp_path: Path) -> None:
    """An empty directory is an empty log."""
    reader = LogReader(tmp_path)

    assert (reader.log_start_offset, reader.log_end_offset, list(reader.read(0))) == (0, 0, [])


def test_log_reader_when_directory_missing_then_storage_error(tmp_path: Path) -> None:
    """A directory that is not there is the disk's error."""
    with pytest.raises(StorageError):
        LogReader(tmp_path / "absent")


@pytest.mark.parametrize("start", [99, 155])
def test_read_when_start_outside_the_log_then_refused_at_once(log: WrittenLog, start: int) -> None:
    """An offset outside log start and log end is refused before the first record."""
    with pytest.raises(OffsetOutOfRangeError, match=rf"{start} is outside 100\.\.154"):
        LogReader(log.directory).read(start)


def test_read_when_start_is_the_end_then_nothing(log: WrittenLog) -> None:
    """The end is a legal place to wait at."""
    assert _offsets(LogReader(log.directory), 154) == []


@pytest.mark.parametrize("count", [0, 1, 4, 1000])
def test_read_when_records_limited_then_that_many(log: WrittenLog, count: int) -> None:
    """A limit counts records, over batches and segments."""
    assert _offsets(LogReader(log.directory), 116, count) == log.offsets[16 : 16 + count]


def test_read_when_log_start_inside_a_batch_then_records_before_it_left_out(log: WrittenLog) -> None:
    """Records below the log start are gone, though their bytes are there."""
    assert _offsets(LogReader(log.directory, log_start_offset=101), 101) == log.offsets[1:]


def test_read_when_end_given_then_nothing_behind_it_is_looked_at(log: WrittenLog) -> None:
    """Bytes behind the committed end belong to a writer: garbage there does no harm."""
    path = log.batches[-1][0]
    _change(path, lambda data: data.extend(encode_batch(Batch([1, 2]), 0) + b"\xff" * 40))
    (log.directory / "00000000000000000160.log").write_bytes(b"\xff" * 100)

    assert _offsets(LogReader(log.directory, log_start_offset=100, log_end_offset=154), 100) == log.offsets


def test_read_when_end_inside_the_log_then_stops_there(log: WrittenLog) -> None:
    """An older end is a consistent earlier view."""
    assert _offsets(LogReader(log.directory, log_end_offset=130), 100) == log.offsets[:30]


@pytest.mark.parametrize("damage", ["missing", "empty", "garbage", "behind", "late"])
def test_read_when_offset_index_useless_then_scanned_instead(log: WrittenLog, damage: str) -> None:
    """The offset index is a hint: whatever it says, the same records are read."""
    for segment in {each[0] for each in log.batches}:
        index = segment.with_suffix(".index")
        if damage == "missing":
            index.unlink()
        else:
            last_batch = max(each[1] for each in log.batches if each[0] == segment)
            entry = {"empty": b"", "garbage": b"\0\0\0\1\0\0\0\7" * 5, "behind": struct.pack(">ii", 1, 10**6)}
            index.write_bytes(entry.get(damage, struct.pack(">ii", 0, last_batch)))
    reader = LogReader(log.directory)

    assert reader.log_end_offset == 154
    for start in range(100, 155):
        assert _offsets(reader, start) == log.offsets[start - 100 :]


@pytest.mark.parametrize("tail", [b"\0" * 5, b"\0" * 5000, encode_batch(Batch([1, 2, 3]), 154)[:-1]])
def test_log_reader_when_tail_torn_then_end_is_the_last_whole_batch(log: WrittenLog, tail: bytes) -> None:
    """A batch that was cut short, or zeros, at the end of a plain folder are not part of the log."""
    _change(log.batches[-1][0], lambda data: data.extend(tail))
    reader = LogReader(log.directory)

    assert reader.log_end_offset == 154
    assert _offsets(reader, 100) == log.offsets


def test_log_reader_when_tail_is_garbage_then_refused(log: WrittenLog) -> None:
    """Bytes at the end that are neither a batch nor zeros are damage, not an end."""
    _change(log.batches[-1][0], lambda data: data.extend(b"\xff" * 40))

    with pytest.raises(CorruptBatchError, match=r"00000000000000000136\.log"):
        LogReader(log.directory)


def test_read_when_batch_damaged_then_error_names_it_and_the_records_before_it_came(log: WrittenLog) -> None:
    """A wrong CRC ends the read with file, position and offsets, after the records before its batch."""
    path, start, _, base, last = log.batches[8]
    _change(path, lambda data: data.__setitem__(start + 65, data[start + 65] ^ 1))
    reader = LogReader(log.directory)
    found: list[int] = []
    offsets = (offset for batch in reader.read(100) for offset in batch.column("offset").to_pylist())

    with pytest.raises(CorruptBatchError, match=rf"offsets={base}\.\.{last} file=.*{path.name} position={start}"):
        found.extend(offsets)
    assert found == log.offsets[:24]


@pytest.mark.parametrize("value", [0, 101, 10**6])
def test_read_when_base_offset_changed_then_refused(log: WrittenLog, value: int) -> None:
    """The CRC does not cover base offsets: one that goes back or lies behind the end is damage."""
    path, start, _, _, _ = log.batches[8]
    _change(path, lambda data: data.__setitem__(slice(start, start + 8), struct.pack(">q", value)))

    with pytest.raises(CorruptBatchError, match=f"base_offset={value}"):
        _offsets(LogReader(log.directory), 100)


def test_read_when_closed_segment_is_cut_then_refused(log: WrittenLog) -> None:
    """A closed segment that ends inside a batch has lost records."""
    path, start, _, _, _ = log.batches[11]
    _change(path, lambda data: data.__delitem__(slice(-3, None)))

    with pytest.raises(CorruptBatchError, match=f"closed segment ends inside a batch .* position={start}"):
        _offsets(LogReader(log.directory), 100)


def test_read_when_committed_records_are_gone_then_refused(log: WrittenLog) -> None:
    """A log that ends before its committed end is damage, never a shorter log."""
    path, start, _, base, _ = log.batches[-1]
    _change(path, lambda data: data.__delitem__(slice(start, None)))

    with pytest.raises(CorruptFileError, match=f"ends at offset {base}, its committed end is 154"):
        _offsets(LogReader(log.directory, log_end_offset=154), 100)


def test_read_when_first_segment_is_gone_then_refused(log: WrittenLog) -> None:
    """Records that should be there and are not are never passed over."""
    reader = LogReader(log.directory)
    (log.directory / "00000000000000000100.log").unlink()

    with pytest.raises(OffsetOutOfRangeError, match="offset 100 is gone, the first segment starts at 118"):
        _offsets(reader, 100)


def test_read_when_all_segments_below_the_end_are_gone_then_refused(log: WrittenLog) -> None:
    """A log that has grown since, and whose retention took all that was there before, is no shorter log."""
    reader = LogReader(log.directory)
    end = reader.log_end_offset
    for path in log.directory.glob("*.log"):
        path.unlink()
    (log.directory / f"{end:020d}.log").touch()

    with pytest.raises(OffsetOutOfRangeError, match=f"offset 100 is gone, the first segment starts at {end}"):
        _offsets(reader, 100)


def test_read_when_last_batch_before_an_empty_active_segment_was_cleaned_away_then_complete(tmp_path: Path) -> None:
    """Cleaning may empty the end of a closed segment; the active one then starts at the log's end."""
    log = write_log(tmp_path / "t-0", [[Batch([1, 2])], []])
    (log.directory / "00000000000000000002.log").rename(log.directory / "00000000000000000009.log")

    assert _offsets(LogReader(log.directory, log_end_offset=9), 0) == [0, 1]


def test_read_when_batch_larger_than_a_chunk_then_read_whole(tmp_path: Path) -> None:
    """A batch may be larger than what is read at once."""
    log = write_log(tmp_path / "t-0", [[Batch([1]), Batch([2] * 3, value_bytes=1 << 20), Batch([3])]])

    assert _offsets(LogReader(log.directory), 0) == log.offsets


def test_read_when_next_segment_was_merged_into_this_one_meanwhile_then_goes_on(log: WrittenLog) -> None:
    """A cleaner may merge segments under a reader's feet; every record is still read once."""
    first, second = (log.directory / f"{base:020d}.log" for base in (100, 118))
    reading = LogReader(log.directory).read(100)
    found = next(reading).column("offset").to_pylist()

    merged = first.with_suffix(".swap")
    merged.write_bytes(first.read_bytes() + second.read_bytes())
    merged.replace(first)
    second.unlink()
    found += [offset for batch in reading for offset in batch.column("offset").to_pylist()]

    assert found == log.offsets


@pytest.mark.parametrize("end", [100, 101, 117, 118, 119, 153, 154, 9999])
def test_read_when_end_offset_given_then_stops_there(log: WrittenLog, end: int) -> None:
    """An end may lie anywhere, inside a batch or behind the log."""
    assert _offsets(LogReader(log.directory), 100, end_offset=end) == [each for each in log.offsets if each < end]


def test_read_when_end_offset_lies_before_the_start_then_nothing(log: WrittenLog) -> None:
    """A range that ends before it starts is empty."""
    assert _offsets(LogReader(log.directory), 120, end_offset=110) == []


@pytest.mark.parametrize("end", range(0, 40, 3))
def test_read_when_end_offset_lies_in_a_gap_then_the_records_before_it(tmp_path: Path, end: int) -> None:
    """Offsets that nobody has are no place where a log could not be split."""
    log = write_log(tmp_path / "t-0", [[Batch([1, 2], gap=7), Batch([3], gap=9)], [Batch([4], gap=4), Batch([5])]])

    assert _offsets(LogReader(log.directory), 0, end_offset=end) == [each for each in log.offsets if each < end]


@pytest.mark.parametrize("chunk_bytes", [1, 200, 500, 1 << 20])
def test_read_when_chunks_are_small_then_the_same_records(log: WrittenLog, chunk_bytes: int) -> None:
    """How much is read at once changes nothing but the size of what is yielded."""
    assert _offsets(LogReader(log.directory), 103, chunk_bytes=chunk_bytes) == log.offsets[3:]


def test_read_when_chunk_holds_many_batches_then_one_large_record_batch(tmp_path: Path) -> None:
    """A chunk becomes one Arrow batch, however many batches of the log it holds."""
    log = write_log(tmp_path / "t-0", [[Batch([1] * 50) for _ in range(40)]])

    assert [batch.num_rows for batch in LogReader(log.directory).read(0)] == [2000]


def test_read_when_isolation_is_unknown_then_refused(log: WrittenLog) -> None:
    """There are two isolation levels."""
    with pytest.raises(InvalidConfigError, match="isolation=serializable"):
        LogReader(log.directory).read(100, isolation="serializable")  # type: ignore[arg-type]


@pytest.mark.parametrize("chunk_bytes", [1, 200, 1 << 20])
@pytest.mark.parametrize("place", [3, 7, 11, 15])
@pytest.mark.parametrize("value", [0, 99, 100, 130, 10**6])
def test_read_when_a_base_offset_was_changed_then_no_records_are_passed_over_in_silence(
    log: WrittenLog, chunk_bytes: int, place: int, value: int
) -> None:
    """A batch whose base offset does not fit between its neighbours is refused, whatever chunks they lie in."""
    path, start, _, _, _ = log.batches[place]
    _change(path, lambda data: data.__setitem__(slice(start, start + 8), struct.pack(">q", value)))

    with pytest.raises((CorruptBatchError, CorruptFileError), match=r"wrong base offset|overlaps"):
        _offsets(LogReader(log.directory, log_end_offset=154), 100, chunk_bytes=chunk_bytes)


@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
@pytest.mark.parametrize("end", [109, 110, 118])
def test_read_when_the_batch_that_ends_the_range_was_moved_up_then_refused(
    log: WrittenLog, chunk_bytes: int, end: int
) -> None:
    """The batch behind the range's end says whether the one before it may end there."""
    path, start, _, _, _ = log.batches[1]
    _change(path, lambda data: data.__setitem__(slice(start, start + 8), struct.pack(">q", 118)))

    with pytest.raises(CorruptBatchError, match="wrong base offset"):
        _offsets(LogReader(log.directory), 100, end_offset=end, chunk_bytes=chunk_bytes)


@pytest.mark.parametrize("is_merged", [True, False])
def test_read_when_cleaned_segments_have_not_taken_their_names_yet_then_read_all_the_same(
    log: WrittenLog, is_merged: bool
) -> None:
    """Between taking old names away and giving them to the new files a cleaner's `.swap` file is the segment."""
    first, second = (log.directory / f"{base:020d}.log" for base in (100, 118))
    reading = LogReader(log.directory).read(100, chunk_bytes=1)
    found = next(reading).column("offset").to_pylist()

    cleaned = (first, first.read_bytes() + second.read_bytes()) if is_merged else (second, second.read_bytes())
    cleaned[0].with_suffix(".log.swap").write_bytes(cleaned[1])
    for path in {second, cleaned[0]}:
        path.unlink()
    found += [offset for batch in reading for offset in batch.column("offset").to_pylist()]

    assert found == log.offsets
    assert _offsets(LogReader(log.directory), 100) == log.offsets


def test_read_when_a_merged_segments_old_file_is_still_there_then_each_record_once(log: WrittenLog) -> None:
    """A merged segment may be met together with one that it replaces."""
    first, second = (log.directory / f"{base:020d}.log" for base in (100, 118))
    first.with_suffix(".log.swap").write_bytes(first.read_bytes() + second.read_bytes())
    first.unlink()

    assert _offsets(LogReader(log.directory), 100) == log.offsets


def test_read_when_retention_removed_what_comes_next_then_refused(log: WrittenLog) -> None:
    """Records that were deleted while a log is read are not passed over in silence."""
    reading = LogReader(log.directory).read(100, chunk_bytes=1)
    next(reading)
    for path in [*log.directory.glob("*100.*"), *log.directory.glob("*118.*")]:
        path.unlink()

    with pytest.raises(OffsetOutOfRangeError, match="offset 118 is gone"):
        list(reading)


def test_look_ups_when_segments_were_merged_meanwhile_then_the_same_answers(log: WrittenLog) -> None:
    """A reader that is kept forgets what it knew of segments once one of them is gone."""
    reader = LogReader(log.directory)
    answers = [reader.offset_for_time(time) for time in range(0, 2060, 5)]
    first, second = (log.directory / f"{base:020d}.log" for base in (100, 118))

    merged = first.with_suffix(".swap")
    merged.write_bytes(first.read_bytes() + second.read_bytes())
    merged.replace(first)
    for path in [second, *log.directory.glob("*.index"), *log.directory.glob("*.timeindex")]:
        path.unlink()

    assert [reader.offset_for_time(time) for time in range(0, 2060, 5)] == answers
    assert reader.offset_of_max_timestamp() == (153, 2055)
    assert _offsets(reader, 100) == log.offsets


def test_read_when_a_look_up_on_the_same_reader_lists_again_then_goes_on_where_it_was(log: WrittenLog) -> None:
    """A pass that is under way is not moved to another segment by what others find out."""
    reader = LogReader(log.directory, log_start_offset=100, log_end_offset=154)
    reading = reader.read(100, chunk_bytes=1)
    found = [next(reading).column("offset").to_pylist() for _ in range(7)]
    first, second = (log.directory / f"{base:020d}.log" for base in (100, 118))

    merged = first.with_suffix(".swap")
    merged.write_bytes(first.read_bytes() + second.read_bytes())
    merged.replace(first)
    for path in (second, first.with_suffix(".index"), first.with_suffix(".timeindex")):
        path.unlink()
    assert reader.offset_for_time(1000) == (118, 1000)
    found += [batch.column("offset").to_pylist() for batch in reading]

    assert [offset for offsets in found for offset in offsets] == log.offsets


def test_read_when_a_base_offset_is_wrong_then_the_records_before_its_neighbour_came(log: WrittenLog) -> None:
    """Which of two batches has the wrong offset is not known; those before them are sound."""
    path, start, _, _, _ = log.batches[4]
    _change(path, lambda data: data.__setitem__(slice(start, start + 8), struct.pack(">q", 101)))
    found: list[int] = []
    offsets = (offset for batch in LogReader(log.directory).read(100) for offset in batch.column("offset").to_pylist())

    with pytest.raises(CorruptBatchError, match="base_offset=101"):
        found.extend(offsets)
    assert found == log.offsets[:9]


def test_offset_for_time_when_asked_in_any_order_then_what_was_learned_does_no_harm(log: WrittenLog) -> None:
    """What one look-up learns of a segment holds for later and for earlier times."""
    times = [2055, 0, 2056, 1000, 56, 1, 1056, 5]
    for path in log.directory.glob("*.timeindex"):
        path.unlink()
    reader = LogReader(log.directory)

    assert [reader.offset_for_time(time) for time in times] == [
        LogReader(log.directory).offset_for_time(time) for time in times
    ]


def test_offset_for_time_when_timestamps_out_of_order_then_first_in_offset_order(log: WrittenLog) -> None:
    """The first record not earlier than the time wins, not the one closest to it."""
    reader = LogReader(log.directory)

    assert reader.offset_for_time(0) == (100, 0)
    assert reader.offset_for_time(1) == (101, 5)
    assert reader.offset_for_time(6) == (103, 10)
    assert reader.offset_for_time(1000) == (118, 1000)
    assert reader.offset_for_time(2056) is None


def test_offset_for_time_when_log_start_passed_the_record_then_next_one(log: WrittenLog) -> None:
    """A record below the log start is no answer."""
    assert LogReader(log.directory, log_start_offset=102).offset_for_time(0) == (102, 5)


def test_offset_for_time_when_time_index_missing_then_scanned(log: WrittenLog) -> None:
    """Without a time index the headers are scanned."""
    for path in log.directory.glob("*.timeindex"):
        path.unlink()

    assert LogReader(log.directory).offset_for_time(1000) == (118, 1000)


def test_offset_for_time_when_batch_damaged_then_refused(log: WrittenLog) -> None:
    """A lookup that needs a damaged batch says so."""
    path, start, _, _, _ = log.batches[6]
    _change(path, lambda data: data.__setitem__(start + 65, data[start + 65] ^ 1))

    with pytest.raises(CorruptBatchError):
        LogReader(log.directory).offset_for_time(1000)


def test_offset_of_max_timestamp_when_several_segments_then_first_record_with_it(log: WrittenLog) -> None:
    """The largest timestamp of the readable records counts."""
    assert LogReader(log.directory).offset_of_max_timestamp() == (153, 2055)
    assert LogReader(log.directory, log_end_offset=151).offset_of_max_timestamp() == (150, 2045)
    assert LogReader(log.directory, log_end_offset=118).offset_of_max_timestamp() == (117, 55)


def test_offset_of_max_timestamp_when_no_timestamps_then_none(tmp_path: Path) -> None:
    """Records without timestamps have no latest one."""
    log = write_log(tmp_path / "t-0", [[Batch([-1, -1])]])

    assert LogReader(log.directory).offset_of_max_timestamp() is None
