"""A store whose writer died with records above their recovery points."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.pipeline.places.lost_view import lost_ranges
from sparklog.pipeline.places.store_view import open_logs
from sparklog.pipeline.verbs.repair import RepairOptions, execute_repair, plan_repairs
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.opening.access import writing
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import UnflushedRecordsLostError
from tests.build.lost_offsets import lost_offsets
from tests.build.sink_store import (
    contents,
    in_process,
    log_directories,
    numbers,
    open_store,
    read_store,
    stored_numbers,
)

_NEVER = {"t": {"partitions": 2, "segment.bytes": 1 << 20, "batch.size": 200, "flush.messages": "never"}}


@pytest.fixture
def store(memory_path: Path) -> Path:
    """A store that was left in the middle: 120 records, none of them synced."""
    writer = open_store(memory_path / "s", _NEVER, topic="t")
    for number in range(3):
        writer.append("q", number, in_process(numbers(40 * number, 40 * number + 40)))
    writer._abandon()
    return memory_path / "s"


def _log(store: Path) -> Path:
    (path,) = log_directories(store)["t-1"].glob("*.log")
    return path


def _cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def _zero(path: Path) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2)
        file.write(bytes(size - size // 2))


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


_DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": _cut,
    "empty": lambda path: path.write_bytes(b""),
    "zeros": _zero,
    "bit": _flip,
    "gone": Path.unlink,
}


def test_opening_when_all_records_are_whole_then_syncs_them_and_goes_on(store: Path) -> None:
    """The death of a process takes nothing from the page cache."""
    writer = open_store(store, _NEVER, topic="t")

    states = Ledger.open(Store.find(store).ledger_path).states().values()
    assert all(state.recovery_point == state.log_end_offset > 0 for state in states)
    writer.append("q", 3, in_process(numbers(120, 130)))
    writer.close()
    assert stored_numbers(store) == list(range(130))


@pytest.mark.parametrize("damage", _DAMAGES)
def test_opening_when_records_are_gone_then_is_refused_and_names_them(store: Path, damage: str) -> None:
    """Nothing is changed, and the message says what to do."""
    _DAMAGES[damage](_log(store))
    before = contents(store, without=("writer.lock",))
    end = next(each for each in Ledger.open(store / "ledger").states().values() if each.partition == 1).log_end_offset

    with pytest.raises(UnflushedRecordsLostError, match=rf"log=t-1 offsets=\d+\.\.{end - 1}: `sparklog repair"):
        open_store(store, _NEVER, topic="t")
    with pytest.raises(UnflushedRecordsLostError), writing(store):
        pass

    assert contents(store, without=("writer.lock", "maintenance.lock")) == before


def test_opening_when_nothing_is_above_a_recovery_point_then_reads_no_log(
    memory_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that is synced by every commit pays nothing for those that are not."""
    writer = open_store(memory_path / "s", {"t": {}}, topic="t")
    writer.append("q", 0, in_process(numbers(0, 9)))
    version = Ledger.open(memory_path / "s" / "ledger").version
    writer._abandon()

    with caplog.at_level(logging.INFO, "sparklog.sink.opening.unflushed"):
        open_store(memory_path / "s", {"t": {}}, topic="t").close()

    assert caplog.messages == []
    assert Ledger.open(memory_path / "s" / "ledger").version == version


@pytest.mark.parametrize("damage", _DAMAGES)
def test_opening_when_a_repair_has_written_lost_records_down_then_goes_on_behind_them(store: Path, damage: str) -> None:
    """No record that is left is given up, each lost offset is written down, and the end does not go back."""
    _DAMAGES[damage](_log(store))
    ends = {log: state.log_end_offset for log, state in Ledger.open(store / "ledger").states().items()}

    result = execute_repair(store, RepairOptions(jobs=1), SystemClock(), lambda _step: None)

    assert result.is_sound
    lost = lost_ranges(open_logs(store))
    found = read_store(store)
    count = len(lost_offsets(lost))
    assert {(each.topic, each.partition) for each in lost} == {("t", 1)}
    assert count + sum(map(len, found.values())) == sum(ends.values())
    writer = open_store(store, _NEVER, topic="t")
    states = Ledger.open(store / "ledger").states()
    assert {log: state.log_end_offset for log, state in states.items()} == ends
    writer.append("q", 3, in_process(numbers(120, 130)))
    writer.close()
    assert set(range(120, 130)) <= set(stored_numbers(store))
    assert plan_repairs(store, RepairOptions(jobs=1)).is_sound


def test_opening_by_force_when_records_are_above_the_recovery_point_then_they_are_synced_too(store: Path) -> None:
    """The active segment is copied for a new writer, and its copy is on the disk as a whole."""
    writer = open_store(store, _NEVER, topic="t", take_lock_by_force=True)

    states = Ledger.open(Store.find(store).ledger_path).states().values()
    assert all(state.recovery_point == state.log_end_offset > 0 for state in states)
    writer.close()
    assert stored_numbers(store) == list(range(120))


def test_opening_by_force_when_records_are_gone_then_is_refused(store: Path) -> None:
    """Taking a store from somebody is no reason to pass over what is lost."""
    _cut(_log(store))

    with pytest.raises(UnflushedRecordsLostError, match="log=t-1"):
        open_store(store, _NEVER, topic="t", take_lock_by_force=True)


def test_opening_when_killed_while_it_syncs_then_the_next_one_syncs_again(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger says it last."""

    def die(_point: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("sparklog.sink.opening.unflushed.reach", die)
        with pytest.raises(KeyboardInterrupt):
            open_store(store, _NEVER, topic="t")
    assert all(state.recovery_point == 0 for state in Ledger.open(store / "ledger").states().values())

    open_store(store, _NEVER, topic="t").close()

    assert stored_numbers(store) == list(range(120))
