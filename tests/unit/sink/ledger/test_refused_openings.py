"""An opening that is refused before it changes ledger or logs leaves the writer lock as it was found."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.errors import InvalidConfigError, LedgerDamagedError
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.sink_store import (
    EVENTS,
    in_process,
    log_directories,
    numbers,
    open_events,
    open_store,
    stored_numbers,
)


@pytest.fixture
def store(memory_path: Path) -> Path:
    """A store with a micro-batch, closed well."""
    path = memory_path / "s"
    writer = open_events(path)
    writer.append("q", 0, in_process(numbers(0, 100)))
    writer.close()
    return path


def _fewer_partitions(store: Path) -> StoreWriter:
    return open_store(store, {"events": {"partitions": 1}}, topic="events")


def _records_of_an_unknown_topic(store: Path) -> StoreWriter:
    directory = store / "logs" / "new-0"
    directory.mkdir(exist_ok=True)
    (directory / segment_file_name(0, LOG)).write_bytes(b"records")
    return _with_new_topic(store)


def _another_stores_log_directory(store: Path) -> StoreWriter:
    other = store.with_name("other")
    if not other.exists():
        open_events(other).close()
    return _with_new_topic(store, log_dirs=[str(other / "logs")])


def _with_new_topic(store: Path, **options: Any) -> StoreWriter:
    return open_store(store, {**EVENTS, "new": {}}, topic="events", **options)


@pytest.mark.parametrize("refused", [_fewer_partitions, _records_of_an_unknown_topic, _another_stores_log_directory])
def test_opening_when_settings_are_refused_then_the_next_one_follows_no_crash(
    store: Path, refused: Callable[[Path], StoreWriter]
) -> None:
    """Nothing was written: bytes above a committed end are still no unfinished micro-batch's."""
    with pytest.raises(InvalidConfigError):
        refused(store)
    assert (store / "writer.lock").read_bytes() == b""
    state = Ledger.open(store / "ledger").states()[TopicPartition("events", 0)]
    segment = log_directories(store)["events-0"] / segment_file_name(state.log_end_offset, LOG)
    segment.write_bytes(b"more")

    with pytest.raises(LedgerDamagedError, match="bytes lie past a log's committed end"):
        open_events(store)

    assert segment.read_bytes() == b"more"


def test_opening_when_settings_are_refused_after_a_crash_then_the_next_one_follows_it_still(store: Path) -> None:
    """What the writer that died left is still to be undone."""
    writer = open_events(store)
    writer.append("q", 1, in_process(numbers(100, 200)))
    writer._abandon()
    with pytest.raises(InvalidConfigError):
        _fewer_partitions(store)
    newest = max((store / "ledger" / "_delta_log").glob("0*.json"))
    newest.write_bytes(newest.read_bytes()[:40])

    open_events(store).close()

    assert sum(state.log_end_offset for state in Ledger.open(store / "ledger").states().values()) == 100


@pytest.fixture
def restored(store: Path) -> Path:
    """The store closed well after another micro-batch, its ledger restored from before that."""
    copies = {name: shutil.copytree(store / name, store.with_name(f"{name}-before")) for name in ("ledger", "control")}
    writer = open_events(store)
    writer.append("q", 1, in_process(numbers(100, 200)))
    writer.close()
    for name, copy in copies.items():
        shutil.rmtree(store / name)
        shutil.copytree(copy, store / name)
    return store


def _open_by_force(store: Path) -> None:
    open_events(store, take_lock_by_force=True)


def _misconfigured_by_force(store: Path) -> None:
    open_store(store, {"events": {"partitions": 1}}, topic="events", take_lock_by_force=True)


@pytest.mark.parametrize("opens", [_open_by_force, _misconfigured_by_force])
def test_opening_by_force_when_the_owner_before_ended_well_then_bytes_above_a_committed_end_are_damage_still(
    restored: Path, opens: Callable[[Path], None]
) -> None:
    """Force is for an owner that can't be stopped; it says nothing of a ledger that was restored from a copy."""
    for _ in range(2):
        with pytest.raises(LedgerDamagedError, match="bytes lie past a log's committed end"):
            opens(restored)
    with pytest.raises(LedgerDamagedError, match="bytes lie past a log's committed end"):
        open_events(restored)

    assert len(stored_numbers(restored)) == 200


def test_opening_when_a_forced_one_was_refused_for_its_settings_then_the_next_one_follows_no_crash(
    store: Path,
) -> None:
    """It changed no log: bytes that lie above a committed end after it are damage."""
    with pytest.raises(InvalidConfigError):
        _misconfigured_by_force(store)
    state = Ledger.open(store / "ledger").states()[TopicPartition("events", 0)]
    segment = log_directories(store)["events-0"] / segment_file_name(state.log_end_offset, LOG)
    segment.write_bytes(b"more")

    with pytest.raises(LedgerDamagedError, match="bytes lie past a log's committed end"):
        open_events(store)

    assert segment.read_bytes() == b"more"


def test_opening_when_the_first_commit_of_a_forced_one_was_torn_then_it_is_dropped(store: Path) -> None:
    """It died before it began, so that the next one follows no crash; its commit was never acknowledged either."""
    with pytest.raises(InvalidConfigError):
        _misconfigured_by_force(store)
    newest = max((store / "ledger" / "_delta_log").glob("0*.json"))
    newest.write_bytes(newest.read_bytes()[:40])

    open_events(store).close()

    assert len(stored_numbers(store)) == 100


def test_opening_when_a_maintenance_follows_one_that_died_then_the_sink_drops_its_torn_entry(store: Path) -> None:
    """Both start at once: the maintenance lock is held again, and its signature says still that its owner died."""
    dead = WriterLock.acquire(store / "maintenance.lock", holder="another maintenance")
    dead.begin()
    Ledger.open_beside_writer(store / "ledger").fence()
    dead.release()
    newest = max((store / "ledger" / "_delta_log").glob("0*.json"))
    newest.write_bytes(newest.read_bytes()[:40])
    next_one = WriterLock.acquire(store / "maintenance.lock", holder="another maintenance")

    open_events(store).close()

    assert len(stored_numbers(store)) == 100
    next_one.release()
