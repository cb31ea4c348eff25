"""A segment whose offsets lie too far apart for its index is split."""

from pathlib import Path

import pytest

from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.load.split_segment import plan_split
from sparklog.storage_core.log.read.log_reader import LogReader
from tests.build.loaded_log import execute_load, plan_load
from tests.build.sink_store import contents
from tests.build.written_log import Batch, encode_batch

_FAR = 2**31


def _segment(directory: Path, base: int, offsets: list[int]) -> Path:
    """Write a segment of one batch of two records at each offset."""
    directory.mkdir(exist_ok=True)
    path = directory / f"{base:020d}.log"
    path.write_bytes(b"".join(encode_batch(Batch([offset, offset + 1]), offset) for offset in offsets))
    path.with_suffix(".timeindex").write_bytes(bytes(12))
    return path


def _offsets(directory: Path) -> list[int]:
    reader = LogReader(directory)
    return [offset for batch in reader.read(reader.log_start_offset) for offset in batch["offset"].to_pylist()]


_CASES = {
    "two parts": (0, [0, 2, _FAR - 3, _FAR - 1, _FAR + 5], [0, _FAR - 1]),
    "three parts": (7, [8, _FAR + 7, 2 * _FAR + 6, 2 * _FAR + 9, 3 * _FAR], [7, _FAR + 7, 2 * _FAR + 6]),
    "no batch fits the base": (0, [_FAR, _FAR + 2], [0, _FAR]),
    "a batch that reaches across": (0, [0, _FAR - 1, _FAR + 1], [0, _FAR - 1]),
}


@pytest.mark.parametrize(("base", "offsets", "bases"), _CASES.values(), ids=_CASES)
def test_load_log_when_a_segment_overflows_then_it_is_split(
    tmp_path: Path, base: int, offsets: list[int], bases: list[int]
) -> None:
    """Every batch is there once, byte for byte, in segments whose indexes can hold its offsets."""
    path = _segment(tmp_path / "t-0", base, offsets)
    data = path.read_bytes()

    loaded = execute_load(path.parent)

    assert loaded.base_offsets == tuple(bases)
    assert b"".join(contents(path.parent)[f"{each:020d}.log"] for each in bases) == data
    assert _offsets(path.parent) == [offset + n for offset in offsets for n in (0, 1)]
    assert not execute_load(path.parent).steps


@pytest.mark.parametrize("is_clean", [True, False])
def test_load_log_when_a_segment_overflows_then_a_plan_says_so_and_changes_nothing(
    tmp_path: Path, is_clean: bool
) -> None:
    """The bases of the parts, the offsets behind them."""
    directory = tmp_path / "t-0"
    _segment(directory, 0, [0, _FAR])
    _segment(directory, _FAR + 10, [_FAR + 10])
    before = contents(directory)

    planned = plan_load(directory, is_clean=is_clean)

    assert contents(directory) == before
    assert any(f"split into segments at offsets 0, {_FAR}" in step.what for step in planned.steps)
    assert planned.log_end_offset == execute_load(directory, is_clean=is_clean).log_end_offset == _FAR + 12


def test_plan_split_when_the_segment_is_damaged_then_refuses(tmp_path: Path) -> None:
    """Its parts can't be told; a broker does not start on it either."""
    path = _segment(tmp_path / "t-0", 0, [0, _FAR])
    path.write_bytes(path.read_bytes() + b"torn")

    with pytest.raises(CorruptFileError, match=f"torn, and can't be split: file=.*{path.name}"):
        plan_split(SegmentFiles(0, path))
    path.write_bytes(path.read_bytes()[:-5] + b"x")
    with pytest.raises(CorruptFileError, match="damaged, and can't be split"):
        plan_split(SegmentFiles(0, path))


def test_plan_split_when_nothing_overflows_then_refuses(tmp_path: Path) -> None:
    """A split is for segments that need it."""
    path = _segment(tmp_path / "t-0", 0, [0, 2])

    with pytest.raises(CorruptFileError, match="no offset that its index can't hold"):
        plan_split(SegmentFiles(0, path))
