"""Whoever goes on from one batch to the next refuses the same base offsets."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sparklog.storage_core.cleaner.survey.read_batches import checked_chunks
from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.log.convert_log import convert_log
from sparklog.storage_core.log.files.committed_end import CommittedEnd
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.log.files.segments import list_segments
from sparklog.storage_core.log.load.recover_segment import scan_segment
from sparklog.storage_core.log.producers.states import ProducerStates
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.log.read.unflushed import first_lost_offset
from sparklog.storage_core.log.scan.segment_order import SegmentOrder
from sparklog.storage_core.log.scan.segment_reader import SegmentReader
from sparklog.storage_core.log_config import INT32_MAX, INT64_MAX
from sparklog.storage_core.record.batch_convert import ConvertOptions
from tests.build.written_log import Batch, encode_batch

_BASE = 100
_END = _BASE + INT32_MAX + 100
_FIRST = encode_batch(Batch([1, 2, 3]), _BASE)
_WRONG = {
    "goes back": _BASE + 2,
    "far back": 3,
    "negative": -7,
    "not to be indexed": _BASE + INT32_MAX,
    "behind the next segment": _END + 7,
    "across the largest number": INT64_MAX,
}


def _log(directory: Path, base_offset: int, *, is_closed: bool) -> Path:
    """Write two batches of which the second one is of an offset, and the next segment, if the first one is closed."""
    directory.mkdir()
    (directory / segment_file_name(_BASE, LOG)).write_bytes(_FIRST + encode_batch(Batch([4, 5]), base_offset))
    if is_closed:
        (directory / segment_file_name(_END, LOG)).write_bytes(encode_batch(Batch([6]), _END))
    return directory


def _read(directory: Path) -> None:
    list(LogReader(directory, log_start_offset=_BASE, log_end_offset=_END + 1).read(_BASE))


def _look_up_time(directory: Path) -> None:
    LogReader(directory, log_start_offset=_BASE, log_end_offset=_END + 1).offset_for_time(4)


def _clean(directory: Path) -> None:
    with SegmentReader(list_segments(directory)[0]) as reader:
        list(checked_chunks(reader, _BASE, _END, lambda: None))


def _convert(directory: Path) -> None:
    convert_log(directory, directory.parent / "converted", ConvertOptions(magic=1), log_end_offset=_END + 1)


@pytest.mark.parametrize("base_offset", _WRONG.values(), ids=_WRONG.keys())
@pytest.mark.parametrize("walk", [_read, _look_up_time, _clean, _convert])
def test_walk_when_a_base_offset_of_a_closed_segment_is_wrong_then_refused(
    tmp_path: Path, walk: Callable[[Path], None], base_offset: int
) -> None:
    """One that goes back, is too far from the segment's base for an index, or reaches what follows the segment."""
    with pytest.raises(CorruptBatchError, match="wrong base offset"):
        walk(_log(tmp_path / "t-0", base_offset, is_closed=True))


@pytest.mark.parametrize("base_offset", _WRONG.values(), ids=_WRONG.keys())
def test_first_lost_offset_when_a_base_offset_is_wrong_then_that_of_its_place(tmp_path: Path, base_offset: int) -> None:
    """An offset that nobody could read from there is not there."""
    directory = _log(tmp_path / "t-0", base_offset, is_closed=True)
    end = CommittedEnd(_END, (directory / segment_file_name(_END, LOG)).stat().st_size, _END + 1)

    assert first_lost_offset(directory, _BASE, end) == _BASE + 3


@pytest.mark.parametrize("base_offset", _WRONG.values(), ids=_WRONG.keys())
def test_end_of_a_folder_when_the_last_base_offset_is_wrong_then_refused(tmp_path: Path, base_offset: int) -> None:
    """Nothing else tells where such a log ends."""
    with pytest.raises(CorruptBatchError, match="wrong base offset"):
        LogReader(_log(tmp_path / "t-0", base_offset, is_closed=False))


@pytest.mark.parametrize("base_offset", _WRONG.values(), ids=_WRONG.keys())
def test_recovery_when_a_base_offset_is_wrong_then_refused_or_to_be_split(tmp_path: Path, base_offset: int) -> None:
    """What an index can't say may be right: a broker splits such a segment."""
    segment = list_segments(_log(tmp_path / "t-0", base_offset, is_closed=False))[0]
    if _BASE + 3 <= base_offset < INT64_MAX:
        recovery = scan_segment(segment, 4096, ProducerStates(_BASE))
        assert (recovery.is_overflowed, recovery.next_offset) == (True, _BASE + 3)
        return
    with pytest.raises(CorruptBatchError, match="go back, run a repair: base_offset="):
        scan_segment(segment, 4096, ProducerStates(_BASE))


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[SegmentReader]:
    """A segment of two sound batches."""
    with closing(SegmentReader(list_segments(_log(tmp_path / "t-0", _BASE + 3, is_closed=False))[0])) as opened:
        yield opened


def test_segment_order_when_batches_follow_each_other_then_goes_on_behind_them(reader: SegmentReader) -> None:
    """What was checked is what the next batches have to follow."""
    order = SegmentOrder(reader)
    [chunk] = reader.chunks()

    order.check(chunk)

    assert order.previous == _BASE + 4
    with pytest.raises(CorruptBatchError, match=f"base_offset={_BASE} last_offset={_BASE + 2} after={_BASE + 4} "):
        order.check(chunk)


@pytest.mark.parametrize("end_offset", [_BASE + 4, _BASE + 5])
def test_segment_order_when_an_end_is_known_then_no_batch_reaches_it(reader: SegmentReader, end_offset: int) -> None:
    """The last batch ends below the end."""
    [chunk] = reader.chunks()

    wrong = SegmentOrder(reader).first_wrong(chunk.scan, 2, end_offset)

    assert wrong == (None if end_offset > _BASE + 4 else 1)
    assert SegmentOrder(reader).first_wrong(chunk.scan, 1, end_offset) is None
