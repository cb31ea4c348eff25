"""Undoing what was written but not committed."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.storage_core.errors import CorruptFileError, WriterFencedError
from sparklog.storage_core.log.append.cut_back import cut_back, has_leftovers, needs_cut_back, renew_active_segment
from sparklog.storage_core.log.files.committed_end import CommittedEnd
from sparklog.storage_core.log.files.names import INDEX, LOG, TIMEINDEX, segment_file_name
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.owners import CheckedBy
from tests.build.sink_store import contents
from tests.build.written_log import Batch, write_log


def _lost() -> None:
    raise WriterFencedError("another writer took the store")


@pytest.fixture
def log(tmp_path: Path) -> tuple[Path, CommittedEnd]:
    """A log of three segments, of which the third is active."""
    written = write_log(tmp_path / "t-0", [[Batch([n]) for n in range(10)] for _ in range(3)])
    assert written.expected is not None
    return written.directory, CommittedEnd(20, written.expected.active_size_bytes, 30)


def _append(directory: Path) -> None:
    with (directory / f"{20:020}.log").open("ab") as file:
        file.write(b"uncommitted")


def _append_and_index(directory: Path) -> None:
    _append(directory)
    with (directory / f"{20:020}.index").open("ab") as file:
        file.write(b"\0\0\0\x0c\0\0\xff\xff")


def _roll(directory: Path) -> None:
    for suffix in (LOG, INDEX, TIMEINDEX):
        (directory / segment_file_name(30, suffix)).write_bytes(b"uncommitted")


def _roll_twice(directory: Path) -> None:
    _append(directory)
    _roll(directory)
    (directory / segment_file_name(77, LOG)).write_bytes(b"uncommitted")


def _prepare(directory: Path) -> None:
    (directory / f"{30:020}.log.0badcafe.cleaned").write_bytes(b"unpublished")


def _roll_behind_a_gap(directory: Path) -> None:
    (directory / segment_file_name(1000, LOG)).write_bytes(b"uncommitted")


def _publish_half(directory: Path) -> None:
    (directory / segment_file_name(30, LOG)).write_bytes(b"uncommitted")
    (directory / f"{30:020}.index.0badcafe.cleaned").write_bytes(b"")


_CRASHES = [_append, _append_and_index, _roll, _roll_twice, _prepare, _roll_behind_a_gap, _publish_half]


@pytest.mark.parametrize("crash", _CRASHES)
def test_cut_back_when_a_crash_left_something_then_restores_the_committed_log(
    log: tuple[Path, CommittedEnd], crash: Callable[[Path], None]
) -> None:
    """Every file is byte for byte what it was, whichever look showed that there is something to undo."""
    directory, end = log
    before = contents(directory)
    assert not needs_cut_back(directory, end)
    assert not has_leftovers(directory, end)
    crash(directory)
    assert needs_cut_back(directory, end) or has_leftovers(directory, end)

    state = cut_back(directory, end, UNSHARED)

    assert contents(directory) == before
    assert (int(state["next_offset"]), int(state["segment_size"])) == (30, end.size_bytes)
    assert not needs_cut_back(directory, end)
    assert not has_leftovers(directory, end)


@pytest.mark.parametrize("crash", [_append, _append_and_index, _roll, _roll_twice, _publish_half])
def test_needs_cut_back_sees_every_published_change_without_preserved_offsets(
    log: tuple[Path, CommittedEnd], crash: Callable[[Path], None]
) -> None:
    """Two `stat` calls are enough for these."""
    directory, end = log
    crash(directory)

    assert needs_cut_back(directory, end)


@pytest.mark.parametrize("crash", _CRASHES)
def test_cut_back_when_the_store_is_lost_then_touches_nothing(
    log: tuple[Path, CommittedEnd], crash: Callable[[Path], None]
) -> None:
    """What looks uncommitted to a writer that lost the store may be committed by now."""
    directory, end = log
    crash(directory)
    before = contents(directory)

    with pytest.raises(WriterFencedError):
        cut_back(directory, end, CheckedBy(_lost))

    assert contents(directory) == before


def test_cut_back_when_nothing_is_committed_then_removes_the_first_segment(tmp_path: Path) -> None:
    """The first append starts it again; the log's other files stay."""
    write_log(tmp_path / "t-0", [[Batch([n]) for n in range(5)] for _ in range(2)])

    state = cut_back(tmp_path / "t-0", CommittedEnd(0, 0, 0), UNSHARED)

    assert state["segment_base"] == -1
    assert sorted(os.listdir(tmp_path / "t-0")) == ["leader-epoch-checkpoint", "partition.metadata"]


def test_has_leftovers_when_a_log_is_empty_then_its_empty_segment_is_none(tmp_path: Path) -> None:
    """A new log's files are as they should be; one byte in them is not."""
    for suffix in (LOG, INDEX, TIMEINDEX):
        (tmp_path / segment_file_name(0, suffix)).touch()
    assert not has_leftovers(tmp_path, CommittedEnd(0, 0, 0))

    (tmp_path / segment_file_name(0, TIMEINDEX)).write_bytes(bytes(12))

    assert has_leftovers(tmp_path, CommittedEnd(0, 0, 0))


def test_cut_back_leaves_the_files_of_cleaning_and_retention_alone(log: tuple[Path, CommittedEnd]) -> None:
    """They are about closed segments, and have an owner of their own."""
    directory, end = log
    for name in (f"{0:020}.log.cleaned", f"{10:020}.log.swap", f"{10:020}.log.deleted", f"{20:020}.snapshot"):
        (directory / name).write_bytes(b"theirs")
    before = contents(directory)
    _append(directory)

    cut_back(directory, end, UNSHARED)

    assert contents(directory) == before


def test_needs_cut_back_when_committed_bytes_are_gone_then_refuses(log: tuple[Path, CommittedEnd]) -> None:
    """A shorter segment is damage, not a crash's tail."""
    directory, end = log
    os.truncate(directory / segment_file_name(20, LOG), end.size_bytes - 1)

    with pytest.raises(CorruptFileError, match=f"has {end.size_bytes - 1} bytes, the ledger names {end.size_bytes}"):
        needs_cut_back(directory, end)


@pytest.mark.parametrize("crash", _CRASHES)
def test_renew_active_segment_gives_new_inodes_with_the_committed_bytes(
    log: tuple[Path, CommittedEnd], crash: Callable[[Path], None]
) -> None:
    """What a writer that lost the store still writes through its descriptors is lost with the old files."""
    directory, end = log
    before = contents(directory)
    paths = [directory / segment_file_name(20, suffix) for suffix in (LOG, INDEX, TIMEINDEX)]
    descriptors = [os.open(path, os.O_WRONLY) for path in paths]
    crash(directory)

    renew_active_segment(directory, end, UNSHARED)
    for descriptor in descriptors:
        os.pwrite(descriptor, b"too late", 0)
        os.close(descriptor)

    assert contents(directory) == before


def test_renew_active_segment_when_the_old_writer_goes_on_meanwhile_then_copies_nothing_of_it(
    log: tuple[Path, CommittedEnd],
) -> None:
    """It may wake up between the cut and the copy."""
    directory, end = log
    before = contents(directory)
    _append_and_index(directory)
    descriptor = os.open(directory / f"{20:020}.log", os.O_WRONLY)

    def go_on() -> None:  # asked for the last time before the copy when the index is cut, behind the log
        os.pwrite(descriptor, b"late", end.size_bytes)

    renew_active_segment(directory, end, CheckedBy(go_on))
    os.close(descriptor)

    assert contents(directory) == before


def test_renew_active_segment_when_lost_again_then_changes_nothing(log: tuple[Path, CommittedEnd]) -> None:
    """A second taker by force fences the first one."""
    directory, end = log
    inodes = {path.name: path.stat().st_ino for path in directory.iterdir()}

    with pytest.raises(WriterFencedError):
        renew_active_segment(directory, end, CheckedBy(_lost))

    assert {path.name: path.stat().st_ino for path in directory.iterdir()} == inodes
