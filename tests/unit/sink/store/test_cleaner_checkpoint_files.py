"""Kafka's cleaner checkpoint: written by who cleans, left alone by sinks, rid of logs that are gone."""

from contextlib import closing
from pathlib import Path

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.store.cleaner_checkpoint_files import (
    CLEANER_CHECKPOINT,
    drop_cleaner_checkpoints,
    write_cleaner_checkpoints,
)
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.checkpoint.offset_checkpoint import parse_offset_checkpoint
from sparklog.storage_core.storage.owned_names import UNSHARED
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.sink_store import in_process, open_events, rows

_FIRST, _SECOND = TopicPartition("events", 0), TopicPartition("events", 1)


def _read(root: Path) -> dict[TopicPartition, int]:
    return parse_offset_checkpoint((root / CLEANER_CHECKPOINT).read_bytes())


def _write(store: Path) -> None:
    found = Store.find(store)
    write_cleaner_checkpoints(found, Ledger.open(found.ledger_path).states(), {_FIRST: 7, _SECOND: 9}, UNSHARED)


def test_checkpoint_when_written_then_each_root_has_its_own_logs(memory_path: Path) -> None:
    """Logs that were never cleaned have no entry, nor have those of another root."""
    open_events(memory_path, log_dirs=("logs", "more")).close()
    _write(memory_path)

    assert _read(memory_path / "logs") == {_FIRST: 7}
    assert _read(memory_path / "more") == {_SECOND: 9}


def test_checkpoint_when_a_sink_writes_then_it_stays(memory_path: Path) -> None:
    """A sink does not know what is clean; one that is missing it makes, empty."""
    open_events(memory_path).close()
    _write(memory_path)
    with closing(open_events(memory_path)) as writer:
        writer.append("q", 0, in_process(rows(value=[b"x"], partition=[1])))
    assert _read(memory_path / "logs") == {_FIRST: 7, _SECOND: 9}

    (memory_path / "logs" / CLEANER_CHECKPOINT).unlink()
    open_events(memory_path).close()
    assert _read(memory_path / "logs") == {}


def test_checkpoint_when_a_log_is_gone_then_its_entry_goes(memory_path: Path) -> None:
    """A later log of that name is dirty from its start; a file that can't be read says nothing of any."""
    open_events(memory_path).close()
    _write(memory_path)
    drop_cleaner_checkpoints(memory_path / "logs", {_SECOND}, UNSHARED)
    assert _read(memory_path / "logs") == {_SECOND: 9}

    (memory_path / "logs" / CLEANER_CHECKPOINT).write_bytes(b"what?")
    drop_cleaner_checkpoints(memory_path / "logs", {_SECOND}, UNSHARED)
    assert _read(memory_path / "logs") == {}
