"""The segments of a log as a cleaner sees them."""

from pathlib import Path

import pytest

from sparklog.storage_core.cleaner.survey.listed_segments import list_cleanable_segments, with_index_sizes
from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.log.files.committed_end import CommittedEnd


def _touch(folder: Path, base: int, size: int, *, suffix: str = ".log") -> None:
    (folder / f"{base:020}{suffix}").write_bytes(b"\x01" * size)


def test_list_when_a_sink_is_writing_then_only_what_is_committed(tmp_path: Path) -> None:
    """Bytes and segments behind the committed end are no part of the log."""
    for base, size in ((0, 10), (5, 20), (9, 33), (12, 7)):
        _touch(tmp_path, base, size)
    found = list_cleanable_segments(tmp_path, CommittedEnd(9, 30, 12), 0)

    assert [(each.base_offset, each.next_offset, each.size_bytes) for each in found] == [
        (0, 5, 10),
        (5, 9, 20),
        (9, 12, 30),
    ]


def test_list_when_segments_end_at_the_log_start_then_left_out(tmp_path: Path) -> None:
    """They are retention's."""
    for base in (0, 5, 9):
        _touch(tmp_path, base, 10)
    end = CommittedEnd(9, 10, 12)

    assert [each.base_offset for each in list_cleanable_segments(tmp_path, end, 5)] == [5, 9]
    assert [each.base_offset for each in list_cleanable_segments(tmp_path, end, 4)] == [0, 5, 9]


def test_list_when_a_cleaning_was_interrupted_then_the_swap_counts_where_the_name_is_gone(tmp_path: Path) -> None:
    """As for readers."""
    _touch(tmp_path, 0, 10, suffix=".log.swap")
    _touch(tmp_path, 9, 10)
    first, _ = list_cleanable_segments(tmp_path, CommittedEnd(9, 10, 12), 0)

    assert first.is_swap
    assert first.files(tmp_path).log_path.name == f"{0:020}.log.swap"


def test_list_when_the_active_segment_is_missing_then_an_error_unless_it_is_empty(tmp_path: Path) -> None:
    """The first append makes an empty one."""
    _touch(tmp_path, 0, 10)

    assert list_cleanable_segments(tmp_path, CommittedEnd(9, 0, 9), 0)[-1].size_bytes == 0
    with pytest.raises(CorruptFileError, match="active segment is missing"):
        list_cleanable_segments(tmp_path, CommittedEnd(9, 1, 10), 0)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_list_when_an_index_lacks_its_log_then_the_lost_segment_is_named(tmp_path: Path, suffix: str) -> None:
    """A cleaning would leave no sign of it."""
    for base in (0, 9):
        _touch(tmp_path, base, 10)
    _touch(tmp_path, 5, 8, suffix=suffix)

    with pytest.raises(CorruptFileError, match=rf"file={tmp_path}/{5:020}\.log;"):
        list_cleanable_segments(tmp_path, CommittedEnd(9, 10, 12), 0)


@pytest.mark.parametrize("beside", [f"{5:020}.log.deleted", f"{0:020}.log.swap"])
def test_list_when_a_segment_is_renamed_in_part_then_it_is_not_lost(tmp_path: Path, beside: str) -> None:
    """A cleaning or a removal is at it, or was killed."""
    for base in (0, 9):
        _touch(tmp_path, base, 10)
    _touch(tmp_path, 5, 8, suffix=".index")
    (tmp_path / beside).write_bytes(b"")

    assert [each.base_offset for each in list_cleanable_segments(tmp_path, CommittedEnd(9, 10, 12), 0)] == [0, 9]


@pytest.mark.parametrize("base", [0, 9, 12])
def test_list_when_an_index_lies_outside_the_log_then_it_tells_nothing(tmp_path: Path, base: int) -> None:
    """Below its start it is retention's, from the active segment on the sink's."""
    _touch(tmp_path, 5, 10)
    _touch(tmp_path, base, 8, suffix=".index")

    assert [each.base_offset for each in list_cleanable_segments(tmp_path, CommittedEnd(9, 0, 9), 6)] == [5, 9]


def test_list_when_the_first_segment_is_lost_then_it_is_named(tmp_path: Path) -> None:
    """Nothing is left that holds the log's start."""
    _touch(tmp_path, 5, 10)
    _touch(tmp_path, 0, 8, suffix=".index")

    with pytest.raises(CorruptFileError, match="a segment is missing"):
        list_cleanable_segments(tmp_path, CommittedEnd(9, 0, 9), 3)


@pytest.mark.parametrize("suffix", [".log", ".index"])
def test_list_when_a_link_leads_nowhere_then_only_that_of_a_segment_is_one_missing(tmp_path: Path, suffix: str) -> None:
    """A segment may have been moved to a disk that is not mounted."""
    for base in (0, 9):
        _touch(tmp_path, base, 10)
    (tmp_path / f"{5:020}{suffix}").symlink_to(tmp_path / "unmounted" / "moved")

    if suffix == ".log":
        with pytest.raises(CorruptFileError, match=rf"link has no target: file={tmp_path}/{5:020}\.log;"):
            list_cleanable_segments(tmp_path, CommittedEnd(9, 10, 12), 0)
    else:
        assert [each.base_offset for each in list_cleanable_segments(tmp_path, CommittedEnd(9, 10, 12), 0)] == [0, 9]


def test_index_sizes_when_a_file_ends_in_zeros_then_only_entries_count(tmp_path: Path) -> None:
    """A broker that was killed leaves indexes at their full size."""
    _touch(tmp_path, 0, 10)
    (tmp_path / f"{0:020}.index").write_bytes(b"\x01" * 24 + bytes(80))
    (tmp_path / f"{0:020}.timeindex").write_bytes(b"\x01" * 30)
    (only,) = with_index_sizes(tmp_path, list_cleanable_segments(tmp_path, CommittedEnd(0, 10, 5), 0))

    assert (only.index_bytes, only.time_index_bytes) == (24, 24)


def test_index_sizes_when_there_is_no_index_then_none(tmp_path: Path) -> None:
    """Nothing is taken by what is missing."""
    (only,) = with_index_sizes(tmp_path, list_cleanable_segments(tmp_path, CommittedEnd(0, 0, 0), 0))

    assert (only.index_bytes, only.time_index_bytes) == (0, 0)
