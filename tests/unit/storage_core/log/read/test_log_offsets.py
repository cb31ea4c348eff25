"""Where the offsets of a log are."""

from pathlib import Path

import pytest

from sparklog.storage_core.log.read.log_offsets import LogOffsetMetadata, find_log_offsets
from sparklog.storage_core.log.read.log_reader import LogReader
from tests.build.golden import golden_logs
from tests.build.written_log import Batch, write_log


def _log(directory: Path) -> None:
    """Write batches of two offsets, three to a segment: 0-1, 2-3, 4-5, then 6-7, 8-9, and behind a gap 15-16."""
    write_log(directory, [[Batch([1, 2])] * 3, [Batch([3, 4])] * 2 + [Batch([5, 6], gap=5)]])


def test_find_log_offsets_when_a_start_lies_inside_a_batch_then_names_that_batch(tmp_path: Path) -> None:
    """A read begins at the start of the batch that holds the offset."""
    _log(tmp_path)
    size = (tmp_path / "00000000000000000000.log").stat().st_size // 3

    offsets = find_log_offsets(LogReader(tmp_path, log_start_offset=3), recovery_point=8)

    assert offsets.log_start_offset == LogOffsetMetadata(3, 0, size)
    assert offsets.recovery_point == LogOffsetMetadata(8, 6, size)


def test_find_log_offsets_when_at_the_end_then_the_position_is_the_committed_size(tmp_path: Path) -> None:
    """High watermark and log end are one, and stand behind the last batch that counts."""
    _log(tmp_path)
    active = (tmp_path / "00000000000000000006.log").stat().st_size

    whole = find_log_offsets(LogReader(tmp_path), recovery_point=None)
    shorter = find_log_offsets(LogReader(tmp_path, log_start_offset=0, log_end_offset=10), recovery_point=99)

    assert whole.log_end_offset == whole.high_watermark == LogOffsetMetadata(17, 6, active)
    assert whole.recovery_point == whole.log_start_offset == LogOffsetMetadata(0, 0, 0)
    assert shorter.log_end_offset == shorter.recovery_point == LogOffsetMetadata(10, 6, active * 2 // 3)


@pytest.mark.parametrize(("offset", "place"), [(5, (0, 2)), (6, (6, 0)), (12, (6, 2))])
def test_find_log_offsets_when_on_a_border_or_in_a_gap_then_names_the_next_batch(
    tmp_path: Path, offset: int, place: tuple[int, int]
) -> None:
    """A segment's first offset is in that segment; an offset that does not exist is where reading would go on."""
    _log(tmp_path)
    size = (tmp_path / "00000000000000000000.log").stat().st_size // 3

    found = find_log_offsets(LogReader(tmp_path, log_start_offset=offset), recovery_point=None).log_start_offset

    assert (found.segment_base_offset, found.position) == (place[0], place[1] * size)


def test_find_log_offsets_when_there_is_no_segment_then_says_so(tmp_path: Path) -> None:
    """A log that preserves offsets gets its first segment with its first record."""
    offsets = find_log_offsets(LogReader(tmp_path, log_start_offset=9, log_end_offset=9), recovery_point=9)

    assert offsets.log_start_offset == offsets.log_end_offset == LogOffsetMetadata(9, -1, -1)


def test_find_log_offsets_when_a_transaction_is_open_then_the_last_stable_one_is_its_first(tmp_path: Path) -> None:
    """In a broker's log with an open transaction: behind what was committed before it."""
    [case] = (each.values[0] for each in golden_logs("v2-transactional-open"))

    offsets = find_log_offsets(LogReader(case.directory), recovery_point=None)

    assert offsets.last_stable_offset.offset == case.expected["last_stable_offset"]
    assert offsets.last_stable_offset.offset < offsets.high_watermark.offset
    assert offsets.last_stable_offset.position > 0


_UNKNOWN = LogOffsetMetadata(7, -1, -1)


@pytest.mark.parametrize(
    ("this", "that", "offsets", "is_older", "is_same", "size"),
    [
        (LogOffsetMetadata(9, 0, 500), LogOffsetMetadata(4, 0, 200), 5, False, True, 300),
        (LogOffsetMetadata(4, 0, 200), LogOffsetMetadata(9, 0, 500), -5, False, True, -300),
        (LogOffsetMetadata(4, 0, 200), LogOffsetMetadata(12, 10, 80), -8, True, False, None),
        (LogOffsetMetadata(12, 10, 80), LogOffsetMetadata(4, 0, 200), 8, False, False, None),
        (LogOffsetMetadata(4, 0, -1), LogOffsetMetadata(4, 0, 200), 0, False, True, None),
        (LogOffsetMetadata(12, 10, 80), _UNKNOWN, 5, False, False, None),
    ],
)
def test_log_offset_metadata_when_compared_then_as_kafkas(
    this: LogOffsetMetadata, that: LogOffsetMetadata, offsets: int, is_older: bool, is_same: bool, size: int | None
) -> None:
    """Offsets always have a difference; positions have one inside a segment."""
    assert not this.is_message_offset_only
    assert this.message_offset_diff(that) == offsets
    assert (this.on_older_segment(that), this.on_same_segment(that)) == (is_older, is_same)
    if size is not None:
        assert this.position_diff(that) == size
        return
    with pytest.raises(ValueError, match=r"not known|different segments"):
        this.position_diff(that)


def test_log_offset_metadata_when_it_is_an_offset_only_then_its_place_is_not_compared() -> None:
    """Kafka throws there, too."""
    that = LogOffsetMetadata(9, 0, 500)

    assert _UNKNOWN.is_message_offset_only
    assert _UNKNOWN.message_offset_diff(that) == -2
    with pytest.raises(ValueError, match="segment of this offset is not known"):
        _UNKNOWN.on_older_segment(that)
    with pytest.raises(ValueError, match="position is not known"):
        _UNKNOWN.position_diff(that)
