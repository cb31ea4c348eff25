"""Which logs a broker has to be told the start of."""

from pathlib import Path

from sparklog.sink.store.log_start_entries import LogStartEntries
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.checkpoint.offset_checkpoint import parse_offset_checkpoint
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.retained_store import LOG, delete_records, names, retain, state_of, write_aged


def _find(store: Path) -> dict[TopicPartition, int]:
    return LogStartEntries(Store.find(store)).find({LOG: state_of(store)})


def _checkpoint(store: Path) -> dict[TopicPartition, int]:
    return parse_offset_checkpoint((store / "logs" / "log-start-offset-checkpoint").read_bytes())


def test_entries_when_a_log_starts_inside_a_segment_then_named(memory_path: Path) -> None:
    """Without an entry a broker would show the records that were deleted."""
    store = write_aged(memory_path / "store")
    assert _find(store) == {}

    delete_records(store, 10)

    assert _find(store) == _checkpoint(store) == {LOG: 10}


def test_entries_when_a_log_starts_with_a_segment_then_not_named(memory_path: Path) -> None:
    """As in a broker, the first segment's name is enough."""
    store = write_aged(memory_path / "store", {"retention.bytes": 1200})
    retain(store, SystemClock())

    assert state_of(store).log_start_offset == int(names(store)[0][:20])
    assert _find(store) == _checkpoint(store) == {}


def test_entries_when_segments_wait_below_the_start_then_named_until_they_are_gone(memory_path: Path) -> None:
    """A broker that loads the log meanwhile must not take them for its start."""
    store = write_aged(memory_path / "store", {"retention.bytes": 1200})
    retain(store, SystemClock())
    entries, state = LogStartEntries(Store.find(store)), state_of(store)
    below = store / "logs" / LOG.directory_name / f"{0:020}.log"
    below.write_bytes(b"")

    assert entries.find({LOG: state}) == {LOG: state.log_start_offset}
    below.unlink()
    assert entries.find({LOG: state}) == {}


def test_entries_when_a_directory_is_gone_then_named(memory_path: Path) -> None:
    """An entry too many does no harm, one that is missing does."""
    store = write_aged(memory_path / "store")
    delete_records(store, 10)
    (store / "logs" / LOG.directory_name).rename(memory_path / "away")

    assert _find(store) == {LOG: 10}
