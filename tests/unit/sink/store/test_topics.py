"""Making the logs of topics that a store does not have yet."""

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sparklog.pipeline.brokers.import_logs import execute_import
from sparklog.sink.importing.plan_import import ImportChoice
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.storage_core.checkpoint.leader_epochs import parse_leader_epochs
from sparklog.storage_core.checkpoint.partition_metadata import parse_partition_metadata
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import InvalidConfigError
from tests.build.sink_store import contents, in_process, open_store, rows


def _open(store: Path, topics: dict[str, dict[str, object]], **options: Any) -> dict[str, LogState]:
    """Open and close a store; return its logs."""
    open_store(store, topics, **options).close()
    return {str(log): state for log, state in Ledger.open(store / "ledger").states().items()}


def test_open_when_topics_are_new_then_makes_their_logs_as_a_broker_expects_them(memory_path: Path) -> None:
    """An empty segment with its indexes, the topic's id, an epoch that starts at 0."""
    states = _open(memory_path, {"a": {"partitions": 2}, "b-1": {}})

    assert sorted(states) == ["a-0", "a-1", "b-1-0"]
    assert states["a-0"].topic_id == states["a-1"].topic_id != states["b-1-0"].topic_id
    for name, state in states.items():
        files = contents(memory_path / "logs" / name)
        assert parse_partition_metadata(files.pop("partition.metadata")) == state.topic_id
        assert parse_leader_epochs(files.pop("leader-epoch-checkpoint")) == [(0, 0)]
        assert files == {f"{0:020}.index": b"", f"{0:020}.log": b"", f"{0:020}.timeindex": b""}


def test_open_when_offsets_are_preserved_then_the_first_record_will_name_the_first_segment(memory_path: Path) -> None:
    """A log may begin anywhere."""
    _open(memory_path, {"a": {}}, offsets="preserved")

    assert sorted(contents(memory_path / "logs" / "a-0")) == ["leader-epoch-checkpoint", "partition.metadata"]


def test_open_when_partitions_are_added_then_the_topic_keeps_its_id(memory_path: Path) -> None:
    """All partitions of a topic have one id; logs that exist are not touched."""
    before = _open(memory_path, {"a": {"partitions": 1}})
    files = contents(memory_path / "logs" / "a-0")

    after = _open(memory_path, {"a": {"partitions": 4}})

    assert {state.topic_id for state in after.values()} == {before["a-0"].topic_id}
    assert contents(memory_path / "logs" / "a-0") == files


def test_open_when_the_partitions_of_a_store_have_a_hole_then_only_missing_ones_are_made(memory_path: Path) -> None:
    """One broker of several may have had partitions 1 and 3; what they hold stays, and no log gets a second row."""
    topics: dict[str, dict[str, object]] = {"a": {"partitions": 4}}
    with closing(open_store(memory_path / "broker", topics)) as writer:
        writer.append("query", 0, in_process(rows(topic=["a"], partition=[1], value=["1"])))
    for name in ("a-1", "a-3"):
        shutil.copytree(memory_path / "broker" / "logs" / name, memory_path / "copy" / name)
    store = memory_path / "store"
    execute_import(store, ImportChoice(folders=(memory_path / "copy",), now_ms=SystemClock().now_ms()), SystemClock())
    held = Ledger.open(store / "ledger").states()
    files = {name: contents(store / "logs" / name) for name in ("a-1", "a-3")}

    states = _open(store, topics)

    assert sorted(states) == ["a-0", "a-1", "a-2", "a-3"]
    assert {str(log): (state.log_start_offset, state.log_end_offset) for log, state in held.items()} == {
        "a-1": (0, 1),
        "a-3": (0, 0),
    }
    assert {name: states[name] for name in ("a-1", "a-3")} == {str(log): state for log, state in held.items()}
    assert {state.topic_id for state in states.values()} == {states["a-1"].topic_id}
    assert {name: contents(store / "logs" / name) for name in files} == files
    with pytest.raises(InvalidConfigError, match="the store has 4"):
        _open(store, {"a": {"partitions": 3}})


def test_open_when_a_topic_is_not_named_any_more_then_its_logs_stay(memory_path: Path) -> None:
    """A sink writes some topics of a store; the others are none of its business."""
    with closing(open_store(memory_path, {"a": {}, "b": {}})) as writer:
        writer.append("query", 0, in_process(rows(topic=["a", "b"], value=["1", "2"])))
    before = contents(memory_path / "logs" / "a-0")

    states = _open(memory_path, {"b": {}})

    assert states["a-0"].log_end_offset == 1
    assert contents(memory_path / "logs" / "a-0") == before


def test_open_when_a_name_collides_with_an_existing_topic_then_refused(memory_path: Path) -> None:
    """Kafka's metrics would not tell them apart."""
    _open(memory_path, {"a.b": {}})

    with pytest.raises(InvalidConfigError, match=r"topics.a_b: collides with existing topic 'a.b'"):
        _open(memory_path, {"a_b": {}})
    _open(memory_path, {"a.b": {}, "c": {}})


def test_open_when_a_crash_left_directories_of_unknown_logs_then_makes_them_anew(memory_path: Path) -> None:
    """In whichever log directory they were left."""
    _open(memory_path, {"a": {}}, log_dirs=("logs", "more"))
    for root in ("logs", "more"):
        (memory_path / root / "b-0").mkdir()
        (memory_path / root / "b-0" / "partition.metadata").write_text("half a f")
        (memory_path / root / "b-0" / f"{0:020}.log").touch()

    states = _open(memory_path, {"a": {}, "b": {}}, log_dirs=("logs", "more"))

    assert states["b-0"].log_dir == "more"
    assert not (memory_path / "logs" / "b-0").exists()
    assert parse_partition_metadata((memory_path / "more" / "b-0" / "partition.metadata").read_bytes()) is not None


def test_open_when_an_unknown_log_holds_records_then_refused_and_they_stay(memory_path: Path) -> None:
    """They are somebody's."""
    _open(memory_path, {"a": {}})
    for name, data in {"b-0": b"", "b-1": b"records"}.items():
        (memory_path / "logs" / name).mkdir()
        (memory_path / "logs" / name / f"{5:020}.log").write_bytes(data)
    before = contents(memory_path / "logs")

    with pytest.raises(InvalidConfigError, match=r"log=b-1 is not in the ledger, but .* holds records"):
        _open(memory_path, {"a": {}, "b": {"partitions": 2}})

    assert contents(memory_path / "logs") == before
