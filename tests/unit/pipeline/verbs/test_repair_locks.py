"""A repair changes what a sink and what a maintenance run may change, and has the store for itself."""

from pathlib import Path

import pytest

from sparklog.pipeline.verbs.repair import RepairOptions, execute_repair
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.opening.access import maintaining
from sparklog.storage_core.cleaner.hold_log import held_alone
from sparklog.storage_core.errors import StoreLockedError
from sparklog.storage_core.log.files.names import LOG
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import contents, in_process, log_directories, numbers, open_events, stored_numbers


@pytest.fixture
def store(memory_path: Path) -> Path:
    """A store with sixty records whose sink ended well, and a damaged one among them."""
    sink = open_events(memory_path)
    sink.append("q", 0, in_process(numbers(0, 60)))
    sink.close()
    first = min(log_directories(memory_path)["events-0"].glob(f"*{LOG}"))
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    return memory_path


def _repair(store: Path) -> bool:
    return execute_repair(store, RepairOptions(), ManualClock(), lambda _step: None).is_sound


def test_repair_when_a_maintenance_runs_then_is_refused_and_changes_nothing(store: Path) -> None:
    """Both remove leftovers and commit log starts."""
    without = ("writer.lock", "maintenance.lock")
    before = contents(store, without=without)

    with maintaining(store), pytest.raises(StoreLockedError, match="another maintenance run"):
        _repair(store)

    assert contents(store, without=without) == before
    assert _repair(store)


def test_repair_when_a_task_of_a_dead_run_still_holds_a_log_then_is_refused_and_changes_nothing(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be stopped before a rename by path, which would hit what the repair has put there."""
    monkeypatch.setattr("sparklog.storage_core.cleaner.hold_log._PATIENCE_S", 0.0)
    without = ("writer.lock", "maintenance.lock")
    before = contents(store, without=without)

    with held_alone(log_directories(store)["events-0"]), pytest.raises(StoreLockedError, match="still at work on this"):
        _repair(store)

    assert contents(store, without=without) == before
    assert _repair(store)


@pytest.mark.parametrize("name", ["writer.lock", "maintenance.lock"])
def test_repair_when_an_owner_died_then_drops_what_it_tore_and_signs_off(store: Path, name: str) -> None:
    """The newest entry of the ledger may be that of either."""
    Ledger.open_for_writing(store / "ledger", UNSHARED).fence()
    dead = WriterLock.acquire(store / name)
    dead.begin()
    dead.release()
    max((store / "ledger" / "_delta_log").glob("*.json")).write_bytes(b"{")

    assert _repair(store)

    assert not WriterLock.owner_crashed(store / name)


def test_repair_when_a_taking_by_force_came_to_nothing_then_locks_the_old_writer_out(store: Path) -> None:
    """It may sleep with files open, so active segments are new, and so is the ledger's version."""
    WriterLock.take_by_force(store / "writer.lock").release()
    active = [max(each.glob(f"*{LOG}")) for each in log_directories(store).values()]
    before, version = [each.stat().st_ino for each in active], Ledger.open(store / "ledger").version

    assert _repair(store)

    assert not {each.stat().st_ino for each in active} & set(before)
    assert Ledger.open(store / "ledger").version > version
    assert not WriterLock.owner_crashed(store / "writer.lock")
    assert set(stored_numbers(store)) < set(range(60))
