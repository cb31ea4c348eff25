"""What of a log lies above its recovery point, and which of it can be read."""

from pathlib import Path

import pytest

from sparklog.storage_core.log.files.committed_end import CommittedEnd
from sparklog.storage_core.log.read.unflushed import first_lost_offset, unflushed_segments
from sparklog.storage_core.log_config import INT64_MAX
from tests.build.written_log import Batch, write_log


@pytest.fixture
def directory(memory_path: Path) -> Path:
    """Three segments of three records each, a record a batch."""
    write_log(memory_path / "t-0", [[Batch([10 * s + b]) for b in range(3)] for s in range(3)])
    return memory_path / "t-0"


def _path(directory: Path, base: int) -> Path:
    return directory / f"{base:020}.log"


def _end(directory: Path) -> CommittedEnd:
    return CommittedEnd(6, _path(directory, 6).stat().st_size, 9)


@pytest.mark.parametrize(("point", "bases"), [(0, [0, 3, 6]), (4, [3, 6]), (6, [6]), (8, [6]), (9, [6])])
def test_unflushed_segments_start_at_the_one_with_the_recovery_point(
    directory: Path, point: int, bases: list[int]
) -> None:
    """Segments below it are on the disk."""
    assert [each.base_offset for each in unflushed_segments(directory, point, _end(directory))] == bases


def test_first_lost_offset_when_all_is_whole_then_none(directory: Path) -> None:
    """Bytes behind the committed end don't count."""
    end = _end(directory)
    with _path(directory, 6).open("ab") as file:
        file.write(bytes(100))

    assert [first_lost_offset(directory, point, end) for point in range(10)] == [None] * 10


@pytest.mark.parametrize(("base", "point", "lost"), [(3, 0, 4), (3, 4, 4), (3, 6, None), (6, 0, 7), (6, 7, 7)])
def test_first_lost_offset_when_a_batch_is_damaged_then_its_own(
    directory: Path, base: int, point: int, lost: int | None
) -> None:
    """What lies in segments below the recovery point is not looked at."""
    end, path = _end(directory), _path(directory, base)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)

    assert first_lost_offset(directory, point, end) == lost


def test_first_lost_offset_when_the_active_segment_is_gone_then_its_base(directory: Path) -> None:
    """A segment's name is durable before the ledger names it; should it be gone all the same, that is said."""
    end = _end(directory)
    _path(directory, 6).unlink()

    assert first_lost_offset(directory, 0, end) == 6


def test_first_lost_offset_when_batches_of_another_place_lie_there_then_where_they_start(directory: Path) -> None:
    """Sound batches alone prove nothing: their offsets have to go on."""
    end = _end(directory)
    _path(directory, 6).write_bytes(_path(directory, 3).read_bytes())

    assert first_lost_offset(directory, 6, end) == 6


def test_first_lost_offset_when_a_base_offset_is_the_largest_number_then_its_own(directory: Path) -> None:
    """No CRC covers a base offset, and one above 2^63-1 is the smallest number: it is above the committed end."""
    end, path = _end(directory), _path(directory, 6)
    data = bytearray(path.read_bytes())
    size = len(data) // 3
    data[2 * size : 2 * size + 8] = INT64_MAX.to_bytes(8, "big")
    path.write_bytes(data)

    assert first_lost_offset(directory, 0, end) == 8
