"""Leftovers of an interrupted replacement are finished or undone on the disk."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.storage_core.errors import CorruptFileError, WriterFencedError
from sparklog.storage_core.log.load.finish_leftovers import finish_leftovers, list_files
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.owners import CheckedBy
from tests.build.sink_store import contents
from tests.build.written_log import Batch, WrittenLog, write_log


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    """Three segments of three batches each."""
    return write_log(tmp_path / "t-0", [[Batch([s * 10 + b]) for b in range(3)] for s in range(3)])


def _merged(log: WrittenLog) -> bytes:
    return b"".join((log.directory / f"{base:020d}.log").read_bytes() for base in (0, 3))


def test_finish_leftovers_when_a_replacement_is_complete_then_it_takes_the_originals_place(log: WrittenLog) -> None:
    """Two segments that were merged into one: the originals are gone, the records are there once."""
    merged = _merged(log)
    (log.directory / f"{0:020d}.log.swap").write_bytes(merged)
    (log.directory / f"{0:020d}.index.swap").write_bytes(b"")

    plan = finish_leftovers(log.directory, UNSHARED)

    assert contents(log.directory)[f"{0:020d}.log"] == merged
    assert f"{3:020d}.log" in plan.replaced
    assert not (log.directory / f"{3:020d}.log").exists()
    reader = LogReader(log.directory)
    assert [row for batch in reader.read(0) for row in batch["offset"].to_pylist()] == log.offsets


def test_finish_leftovers_when_the_replacement_was_not_complete_then_the_originals_stay(log: WrittenLog) -> None:
    """A `.cleaned` file says so: it goes, and what was swapped in part goes with it."""
    before = contents(log.directory)
    (log.directory / f"{3:020d}.log.swap").write_bytes(_merged(log))
    (log.directory / f"{0:020d}.log.cleaned").write_bytes(b"half")

    finish_leftovers(log.directory, UNSHARED)

    assert contents(log.directory) == before


def _last_at(data: bytes, base_offset: int) -> bytes:
    start = len(data) - len(data) // 6
    return data[:start] + base_offset.to_bytes(8, "big") + data[start + 8 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-5],
        lambda data: data[:-1] + b"x",
        lambda data: data + bytes(61),
        lambda data: _last_at(data, 4),
        lambda data: _last_at(data, 1 << 40),
    ],
    ids=["torn", "crc", "zeros", "goes back", "too far"],
)
def test_finish_leftovers_when_a_replacement_is_damaged_then_changes_nothing(
    log: WrittenLog, damage: Callable[[bytes], bytes]
) -> None:
    """The originals may be the only sound copy: the file is named, and nothing goes."""
    (log.directory / f"{0:020d}.log.swap").write_bytes(damage(_merged(log)))
    (log.directory / f"{9:020d}.log.deleted").write_bytes(b"")
    before = contents(log.directory)

    with pytest.raises(CorruptFileError, match=f"{0:020d}.log.swap"):
        finish_leftovers(log.directory, UNSHARED)

    assert contents(log.directory) == before


def test_finish_leftovers_when_somebody_else_owns_the_log_then_changes_nothing(log: WrittenLog) -> None:
    """The owner is checked before the first change."""

    def fenced() -> None:
        raise WriterFencedError("gone")

    (log.directory / f"{9:020d}.log.deleted").write_bytes(b"")

    with pytest.raises(WriterFencedError):
        finish_leftovers(log.directory, CheckedBy(fenced))

    assert f"{9:020d}.log.deleted" in list_files(log.directory)


def test_finish_leftovers_when_told_where_a_sink_works_then_leaves_its_files_alone(log: WrittenLog) -> None:
    """Unpublished segments at the active one or above are the sink's to undo."""
    (log.directory / f"{6:020d}.log.x7.cleaned").write_bytes(b"half")
    (log.directory / f"{0:020d}.log.cleaned").write_bytes(b"half")

    finish_leftovers(log.directory, UNSHARED, below=6)

    names = list_files(log.directory)
    assert f"{6:020d}.log.x7.cleaned" in names
    assert f"{0:020d}.log.cleaned" not in names
