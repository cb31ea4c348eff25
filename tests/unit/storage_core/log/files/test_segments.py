from pathlib import Path

import pytest

from sparklog.storage_core.errors import StorageError
from sparklog.storage_core.log.files.segments import (
    SegmentFiles,
    floor_segment,
    list_readable_segments,
    list_segments,
    segments_from,
)


def _touch(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_list_segments_when_files_on_their_way_then_only_published_logs_in_order(tmp_path: Path) -> None:
    """A segment is a `.log` under its own name; what is cleaned, swapped or deleted is none."""
    names = [
        "00000000000000000100.log",
        "00000000000000000000.log",
        "00000000000000000050.index",
        "leader-epoch-checkpoint",
    ]
    _touch(
        tmp_path,
        *names,
        *(f"00000000000000000007.log{suffix}" for suffix in (".cleaned", ".swap", ".deleted", ".x.cleaned")),
    )

    assert list_segments(tmp_path) == [SegmentFiles(base, tmp_path / f"{base:020d}.log") for base in (0, 100)]


def test_list_readable_segments_when_names_are_being_replaced_then_complete_files_stand_in(tmp_path: Path) -> None:
    """A `.swap` file counts while no file has its name, and only then."""
    _touch(tmp_path, *(f"{base:020d}.log{suffix}" for base, suffix in ((0, ""), (0, ".swap"), (7, ".swap"), (9, ""))))
    _touch(tmp_path, f"{3:020d}.log.cleaned", f"{9:020d}.log.deleted", f"{5:020d}.index.swap")

    assert [(each.base_offset, each.is_swap) for each in list_readable_segments(tmp_path)] == [
        (0, False),
        (7, True),
        (9, False),
    ]


def test_segment_files_when_asked_then_siblings_of_the_log(tmp_path: Path) -> None:
    """Index files lie beside the log under the same number."""
    files = SegmentFiles(5, tmp_path / "00000000000000000005.log")

    assert [path.name for path in (files.index_path, files.time_index_path, files.txn_index_path)] == [
        "00000000000000000005.index",
        "00000000000000000005.timeindex",
        "00000000000000000005.txnindex",
    ]


def test_list_segments_when_directory_missing_then_storage_error(tmp_path: Path) -> None:
    """A directory that can't be read is the disk's error, with its path."""
    with pytest.raises(StorageError, match="absent"):
        list_segments(tmp_path / "absent")


@pytest.mark.parametrize(("offset", "number"), [(9, None), (10, 0), (19, 0), (20, 1), (99, 1)])
def test_floor_segment_when_offset_given_then_last_segment_at_or_before(offset: int, number: int | None) -> None:
    """The segment that may hold an offset is the last one that does not start behind it."""
    assert floor_segment([SegmentFiles(base, Path()) for base in (10, 20)], offset) == number


@pytest.mark.parametrize(("start", "expected"), [(0, [3, 5, 9]), (4, [3, 5, 9]), (5, [5, 9]), (8, [5, 9]), (99, [9])])
def test_segments_from_when_a_log_starts_at_an_offset_then_those_below_are_left_out(
    start: int, expected: list[int]
) -> None:
    """A segment that ends at the log's start holds nothing that can be read."""
    segments = [SegmentFiles(base, Path(f"{base}.log")) for base in (3, 5, 9)]

    assert [each.base_offset for each in segments_from(segments, start)] == expected
    assert segments_from([], start) == []


def test_list_when_a_link_of_another_name_leads_to_itself_then_it_is_none_of_the_segments(tmp_path: Path) -> None:
    """What else lies in the folder keeps nobody from the log."""
    (tmp_path / f"{0:020}.log").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")

    assert [each.base_offset for each in list_segments(tmp_path)] == [0]
    assert [each.base_offset for each in list_readable_segments(tmp_path)] == [0]
