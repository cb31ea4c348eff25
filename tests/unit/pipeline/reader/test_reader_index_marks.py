"""What planning learns from offset indexes."""

import os
from pathlib import Path

from sparklog.pipeline.reader.index_marks import read_marks
from sparklog.storage_core.index.offset_index import OffsetIndex
from sparklog.storage_core.log.files.segments import list_segments
from tests.build.written_log import Batch, write_log


def _segments_of(folder: Path) -> Path:
    write_log(folder / "t-0", [[Batch([0] * 10)] * 40, [Batch([0] * 10)] * 40], index_interval_bytes=1000)
    return folder / "t-0"


def test_marks_when_segments_are_small_and_wanted_whole_then_no_index_is_read(tmp_path: Path) -> None:
    """A segment that is one task needs no marks inside; where the last one ends is not known from names."""
    directory = _segments_of(tmp_path)

    marks = read_marks(list_segments(directory), 0, 800, 1 << 20)

    assert [each.base_offset for each in marks] == [0, 400]
    assert len(marks[0].offsets) == 0
    assert [each.size_bytes for each in marks] == [path.stat().st_size for path in sorted(directory.glob("*.log"))]


def test_marks_when_a_part_is_wanted_then_only_entries_around_it_are_read(tmp_path: Path) -> None:
    """From the last entry in front of the start to the first behind the end; other segments are left out."""
    directory = _segments_of(tmp_path)
    segment = list_segments(directory)[1]
    index = OffsetIndex(segment.index_path.read_bytes(), 400)

    (marks,) = read_marks(list_segments(directory), 500, 600, 1 << 20)

    assert marks.base_offset == 400
    inside = index.offsets[(index.offsets >= 500) & (index.offsets < 600)].tolist()
    assert inside
    assert [each for each in marks.offsets.tolist() if 500 <= each < 600] == inside
    assert len(marks.offsets) <= len(inside) + 2


def test_marks_when_an_index_is_padded_then_its_zeros_are_no_entries(tmp_path: Path) -> None:
    """A broker's active index has its full size, and zeros behind its entries."""
    directory = _segments_of(tmp_path)
    segment = list_segments(directory)[1]
    before = read_marks(list_segments(directory), 500, 800, 1)
    os.truncate(segment.index_path, 1 << 20)

    after = read_marks(list_segments(directory), 500, 800, 1)

    assert after[0].offsets.tolist() == before[0].offsets.tolist()


def test_marks_when_an_index_is_missing_or_garbage_then_planning_goes_on(tmp_path: Path) -> None:
    """An index is a hint: without it, or with nonsense in it, there are marks of some kind and no error."""
    directory = _segments_of(tmp_path)
    first, second = list_segments(directory)
    first.index_path.unlink()
    second.index_path.write_bytes(os.urandom(8003))

    marks = read_marks(list_segments(directory), 0, 800, 1)

    assert [each.base_offset for each in marks] == [0, 400]
    assert len(marks[0].offsets) == 0
