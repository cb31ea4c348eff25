"""An opening that is refused before it changes ledger or logs leaves the writer lock as it was found."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.errors import InvalidConfigError, LedgerDamagedError
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.sink_store import EVENTS, in_process, log_directories, numbers, open_events, open_store


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

    with pytest.raises(LedgerDamagedError, match="bytes lie above a log's committed end"):
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
