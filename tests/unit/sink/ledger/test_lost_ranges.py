from dataclasses import replace
from pathlib import Path

import pytest

from sparklog.sink.ledger.lost_ranges import LostRange, LostRangeFile, LostRangeTable, cut_folder_beside
from sparklog.storage_core.errors import LedgerDamagedError, StorageError
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.faults.fault_plan import Fault, FaultPlan
from tests.faults.system_calls import watched

_LOST = LostRange(
    topic="t", partition=1, first_offset=5, last_offset=9, file="x.log", reason="wrong CRC", found_ms=1000
)
_Kind = type[LostRangeTable] | type[LostRangeFile]
_KINDS = pytest.mark.parametrize("kind", [LostRangeTable, LostRangeFile])


@_KINDS
def test_lost_ranges_when_added_then_read_back_in_order(tmp_path: Path, kind: _Kind) -> None:
    """What is written down is there, oldest first, also for the next one who opens it."""
    later = replace(_LOST, first_offset=1, last_offset=None, found_ms=2000)
    kind(tmp_path / "lost").add([_LOST])
    kind(tmp_path / "lost").add([later])

    assert kind(tmp_path / "lost").read() == [_LOST, later]


@_KINDS
def test_lost_ranges_when_found_again_then_written_down_once(tmp_path: Path, kind: _Kind) -> None:
    """A repair that died before the bytes went finds them again."""
    lost = kind(tmp_path / "lost")
    lost.add([_LOST])
    lost.add([replace(_LOST, found_ms=9999, reason="again")])

    assert lost.read() == [_LOST]


@_KINDS
def test_lost_ranges_when_nothing_was_lost_then_nothing_is_made(tmp_path: Path, kind: _Kind) -> None:
    """A place without losses has neither table nor file."""
    kind(tmp_path / "lost").add([])

    assert kind(tmp_path / "lost").read() == []
    assert list(tmp_path.iterdir()) == []


def test_lost_range_table_when_newest_entry_is_torn_then_dropped_and_written_again(tmp_path: Path) -> None:
    """A power cut may leave the newest entry torn; nobody was told of it."""
    table = LostRangeTable(tmp_path / "lost")
    table.add([_LOST])
    later = replace(_LOST, first_offset=70, last_offset=80)
    table.add([later])
    newest = sorted((tmp_path / "lost" / "_delta_log").glob("*.json"))[-1]
    newest.write_bytes(newest.read_bytes()[:40])

    table.drop_torn(UNSHARED)
    table.add([later])

    assert table.read() == [_LOST, later]


def test_lost_range_table_when_its_first_entry_is_torn_then_made_again(tmp_path: Path) -> None:
    """The entry that makes the table can be torn, too."""
    table = LostRangeTable(tmp_path / "lost")
    table.add([_LOST])
    first, second = sorted((tmp_path / "lost" / "_delta_log").glob("*.json"))
    first.write_bytes(b"")
    second.unlink()

    table.drop_torn(UNSHARED)
    table.add([_LOST])

    assert table.read() == [_LOST]


def test_lost_range_table_when_emptied_then_dropping_what_is_torn_leaves_it_empty(tmp_path: Path) -> None:
    """An entry that takes the last row away names no file, and is whole all the same: what was forgotten stays so."""
    table = LostRangeTable(tmp_path / "lost")
    table.add([_LOST])
    table.forget("t")

    table.drop_torn(UNSHARED)
    assert table.read() == []

    table.add([_LOST])
    table.truncate("t", 1, 0, None)
    table.drop_torn(UNSHARED)
    assert table.read() == []


def test_lost_range_table_when_its_emptying_is_torn_then_dropped(tmp_path: Path) -> None:
    """Without the line that takes the file away the entry is torn, and what it was to forget is still there."""
    table = LostRangeTable(tmp_path / "lost")
    table.add([_LOST])
    table.forget("t")
    newest = sorted((tmp_path / "lost" / "_delta_log").glob("*.json"))[-1]
    newest.write_text("".join(line for line in newest.read_text().splitlines(True) if "commitInfo" in line))

    table.drop_torn(UNSHARED)

    assert table.read() == [_LOST]


def test_lost_range_file_when_last_line_is_torn_then_replaced(tmp_path: Path) -> None:
    """A torn last line was never confirmed."""
    folder = cut_folder_beside(tmp_path / "logs")
    path = folder / "lost-ranges.jsonl"
    LostRangeFile(folder).add([_LOST])
    later = replace(_LOST, first_offset=70, last_offset=80)
    LostRangeFile(folder).add([later])
    path.write_bytes(path.read_bytes()[:-9])

    LostRangeFile(folder).add([later])

    assert LostRangeFile(folder).read() == [_LOST, later]


def test_lost_range_table_when_the_disk_refuses_to_read_then_is_not_called_damaged(tmp_path: Path) -> None:
    """What the kernel answers says nothing about what is on the disk."""
    table = LostRangeTable(tmp_path / "lost")
    table.add([_LOST])
    calls = FaultPlan()
    with watched(tmp_path, calls):
        table.read()

    for number in range(1, calls.counts["open"] + 1):
        with (
            watched(tmp_path, FaultPlan(Fault("open", number))),
            pytest.raises(StorageError, match="Input/output error"),
        ):
            table.read()

    assert calls.counts["open"]


def test_lost_range_file_when_a_line_is_foreign_then_refused(tmp_path: Path) -> None:
    """Damage is said, not passed over."""
    (tmp_path / "lost-ranges.jsonl").write_bytes(b"{}\n")

    with pytest.raises(LedgerDamagedError, match="can't be read"):
        LostRangeFile(tmp_path).read()
