from pathlib import Path

import pytest

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.log.files.segments import list_segments
from sparklog.storage_core.log.read.largest_timestamp import largest_timestamp, proven_largest_timestamp
from sparklog.storage_core.log.scan.segment_reader import SegmentReader
from tests.build.written_log import Batch, write_log


def _largest(directory: Path, number: int, next_offset: int) -> int:
    with SegmentReader(list_segments(directory)[number]) as reader:
        shown = largest_timestamp(reader, next_offset)
        assert proven_largest_timestamp(reader, next_offset) == shown
        return shown


def _log(tmp_path: Path) -> Path:
    return write_log(tmp_path / "t-0", [[Batch([10, 90]), Batch([20])], [Batch([25]), Batch([5, 40])]]).directory


@pytest.mark.parametrize(("number", "next_offset", "expected"), [(0, 3, 90), (1, 6, 40)])
def test_largest_timestamp_when_a_segment_is_closed_or_active_then_of_all_its_batches(
    tmp_path: Path, number: int, next_offset: int, expected: int
) -> None:
    """An active segment's time index need not name its largest timestamp yet."""
    assert _largest(_log(tmp_path), number, next_offset) == expected


def test_largest_timestamp_when_batches_lie_behind_the_end_then_they_do_not_count(tmp_path: Path) -> None:
    """What is not committed says nothing of a log."""
    assert _largest(_log(tmp_path), 1, 4) == 25


def test_largest_timestamp_when_the_index_is_missing_then_the_batches_tell(tmp_path: Path) -> None:
    """Where no index helps, every header is read."""
    directory = _log(tmp_path)
    for path in directory.glob("*index"):
        path.unlink()

    assert _largest(directory, 0, 3) == 90


def test_largest_timestamp_when_no_record_has_one_then_minus_one(tmp_path: Path) -> None:
    """Timestamps may be missing."""
    directory = write_log(tmp_path / "t-0", [[Batch([-1, -1])]]).directory

    assert _largest(directory, 0, 2) == -1


@pytest.mark.parametrize("at", ["length", "crc", "tail"])
def test_largest_timestamp_when_a_batch_is_damaged_then_shown_but_not_proven(tmp_path: Path, at: str) -> None:
    """What can't be read may have been younger than all the rest."""
    directory = _log(tmp_path)
    for path in directory.glob("*index"):
        path.unlink()
    segment = directory / f"{0:020d}.log"
    data = bytearray(segment.read_bytes())
    second = 12 + int.from_bytes(data[8:12], "big")
    if at == "length":
        data[second + 8 : second + 12] = bytes(3) + b"\1"
    elif at == "crc":
        data[-1] ^= 1
    segment.write_bytes(data[:-1] if at == "tail" else data)

    with SegmentReader(list_segments(directory)[0]) as reader:
        assert largest_timestamp(reader, 3) == 90
        with pytest.raises(CorruptBatchError, match=segment.name) as raised:
            proven_largest_timestamp(reader, 3)
    assert raised.value.position == second
