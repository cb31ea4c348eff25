"""Carrying out an append plan: bytes and entries where they belong, new segments by rename, lost stores untouched."""

import os
from pathlib import Path

import pytest

from sparklog.storage_core.errors import StorageError, WriterFencedError
from sparklog.storage_core.log.append.segment_writer import SegmentAppend, SegmentWriter, StagedRange, WrittenFiles
from sparklog.storage_core.storage.owned_names import UNSHARED, Owner
from tests.build.owners import CheckedBy
from tests.build.sink_store import contents

_TOKEN = "0badcafe"


def _lost() -> None:
    raise WriterFencedError("another writer took the store")


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    path = tmp_path / "staged"
    path.write_bytes(bytes(range(100)))
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log whose active segment 0 holds ten bytes, with room for entries."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(b"0123456789")
    (directory / f"{0:020}.index").write_bytes(b"")
    (directory / f"{0:020}.timeindex").write_bytes(b"oldoldoldold")
    return directory


def _appends(staged: Path) -> list[SegmentAppend]:
    """Ten bytes for the active segment with its last time entry, then a new segment from two places of the file."""
    return [
        SegmentAppend(0, False, (StagedRange(staged, 40, 10, 10),), (b"", 0), (b"newnewnewnew", 12)),
        SegmentAppend(
            7,
            True,
            (StagedRange(staged, 0, 0, 3), StagedRange(staged, 90, 3, 10)),
            (b"entry-07", 0),
            (b"", 0),
        ),
    ]


def _append(log: Path, appends: list[SegmentAppend], owner: Owner = UNSHARED) -> WrittenFiles:
    written = WrittenFiles([], [], [])
    SegmentWriter(log, _TOKEN, owner).append(appends, written)
    return written


def test_append_puts_ranges_and_entries_in_place(log: Path, staged: Path) -> None:
    """And notes what has to be synced: logs, indexes, and the folder where a name is new."""
    written = _append(log, _appends(staged))

    assert contents(log) == {
        f"{0:020}.index": b"",
        f"{0:020}.log": b"0123456789" + bytes(range(40, 50)),
        f"{0:020}.timeindex": b"oldoldoldoldnewnewnewnew",
        f"{7:020}.index": b"entry-07",
        f"{7:020}.log": bytes(range(3)) + bytes(range(90, 100)),
        f"{7:020}.timeindex": b"",
    }
    assert [path.name for path in written.logs] == [f"{0:020}.log", f"{7:020}.log"]
    assert sorted(path.name for path in written.indexes) == [
        f"{0:020}.timeindex",
        f"{7:020}.index",
        f"{7:020}.timeindex",
    ]
    assert written.directories == [log]


def test_append_when_the_store_is_lost_then_leaves_no_trace(log: Path, staged: Path) -> None:
    """Neither in the active segment nor as an unpublished one."""
    before = contents(log)

    for appends in (_appends(staged), _appends(staged)[1:]):
        with pytest.raises(WriterFencedError):
            _append(log, appends, CheckedBy(_lost))
        assert contents(log) == before


def test_append_when_the_store_is_lost_after_the_check_then_harms_nobody(log: Path, staged: Path) -> None:
    """The new owner has given the active segment a new file and removed what was not published."""

    def lose() -> None:
        for path in log.glob("*.cleaned"):
            path.unlink()
        fresh = log / "fresh"
        fresh.write_bytes(b"0123456789")
        fresh.replace(log / f"{0:020}.log")

    _append(log, _appends(staged)[:1], CheckedBy(lose))
    with pytest.raises(StorageError, match="No such file"):
        _append(log, _appends(staged)[1:], CheckedBy(lose))

    assert (log / f"{0:020}.log").read_bytes() == b"0123456789"
    assert not list(log.glob(f"{7:020}*"))


def test_append_when_a_copy_fails_then_no_unpublished_file_stays(log: Path, staged: Path) -> None:
    """A staging file that is too short, or gone."""
    os.truncate(staged, 95)
    with pytest.raises(StorageError, match="ends before"):
        _append(log, _appends(staged)[1:])
    staged.unlink()
    with pytest.raises(StorageError, match=r"No such file or directory: path=.*staged"):
        _append(log, _appends(staged)[1:])

    assert sorted(os.listdir(log)) == [f"{0:020}.index", f"{0:020}.log", f"{0:020}.timeindex"]


def test_append_when_the_active_segment_is_gone_then_does_not_make_another(log: Path, staged: Path) -> None:
    """A segment of bytes behind a hole would be taken for the log."""
    (log / f"{0:020}.log").unlink()

    with pytest.raises(StorageError, match=rf"No such file or directory: path=.*{0:020}\.log"):
        _append(log, _appends(staged)[:1])

    assert not (log / f"{0:020}.log").exists()
