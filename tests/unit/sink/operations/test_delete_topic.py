"""Deleting a topic of a store: gone with one commit, its directories set aside, its name free."""

from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.lost_ranges import LostRange, LostRangeTable
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.opening.access import writing
from sparklog.sink.operations.delete_topic import delete_topic, plan_topic_deletion
from sparklog.sink.store.set_aside import find_deleted, remove_deleted
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import read_topic_configs
from sparklog.storage_core.checkpoint.offset_checkpoint import parse_offset_checkpoint
from sparklog.storage_core.cleaner.hold_log import held_alone
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import StoreLockedError, UnknownTopicError
from sparklog.storage_core.topic_partition import TopicPartition, parse_set_aside_name
from tests.build.ledger_rows import unfinished
from tests.build.sink_store import contents, in_process, log_directories, open_store, read_store, rows

_TOPICS = {"a": {"partitions": 2, "segment.bytes": 600}, "b": {}}
_LOST = LostRange(topic="a", partition=0, first_offset=3, last_offset=4, file="f", reason="crc", found_ms=1)


@pytest.fixture
def store(memory_path: Path) -> Path:
    """A closed store of the topics `a` and `b`, each with records, in two log directories."""
    path = memory_path / "store"
    with closing(open_store(path, _TOPICS, log_dirs=("logs", "more"))) as writer:
        writer.append("query", 0, in_process(_rows()))
    return path


def _rows() -> pa.RecordBatch:
    return rows(topic=["a", "a", "b"] * 20, key=[str(n) for n in range(60)], value=[str(n) for n in range(60)])


def _delete(store: Path, topic: str) -> list[Path]:
    with writing(store) as written:
        return delete_topic(written, topic, SystemClock())


def test_plan_topic_deletion_then_names_logs_and_bytes_and_changes_nothing(store: Path) -> None:
    """What `--execute` would do."""
    before = contents(store)
    found = Store.find(store)
    plan = plan_topic_deletion(found, Ledger.open(found.ledger_path), "a")

    assert [str(each.log) for each in plan.logs] == ["a-0", "a-1"]
    assert sum(each.offsets for each in plan.logs) == 40
    assert plan.logs[0].size_bytes == sum(len(data) for data in contents(plan.logs[0].directory).values())
    assert plan.file_delete_delay_ms == 60_000
    assert contents(store) == before


def test_delete_topic_then_it_does_not_exist_and_others_are_as_they_were(store: Path) -> None:
    """Rows are gone, directories have `-delete` names, settings and checkpoint files do not name the topic."""
    before = read_store(store)
    ids = {state.topic_id for log, state in _states(store).items() if log.topic == "a"}

    deleted = _delete(store, "a")

    assert read_store(store) == {"b-0": before["b-0"]}
    names = [parse_set_aside_name(path.name) for path in deleted]
    assert sorted((str(each.log), each.kind) for each in names if each) == [("a-0", "delete"), ("a-1", "delete")]
    assert all(path.is_dir() and contents(path) for path in deleted)
    assert set(read_topic_configs(Store.find(store))) == {"b"}
    for root in ("logs", "more"):
        ends = parse_offset_checkpoint((store / root / "replication-offset-checkpoint").read_bytes())
        assert {log.topic for log in ends} <= {"b"}
    assert [str(state.log) for state in unfinished(store)] == ["a-0", "a-1"]

    remove_deleted(deleted)
    assert [find_deleted(store / root) for root in ("logs", "more")] == [[], []]
    _delete_again_starts_anew(store, ids)
    assert unfinished(store) == []


def _write_anew(store: Path, log_dirs: tuple[str, ...] = ("logs", "more")) -> None:
    with closing(open_store(store, _TOPICS, log_dirs=log_dirs)) as writer:
        writer.append("query", 1, in_process(rows(topic=["a"], value=["new"])))


def _delete_again_starts_anew(store: Path, ids: set[str]) -> None:
    _write_anew(store)
    new = {log: state for log, state in _states(store).items() if log.topic == "a"}
    assert ids.isdisjoint({state.topic_id for state in new.values()})
    assert sum(state.log_end_offset for state in new.values()) == 1


def test_delete_topic_when_a_task_of_a_dead_run_still_holds_a_log_then_refused_and_nothing_changes(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be stopped before a rename by path, which would hit the next topic of that name when it wakes up."""
    monkeypatch.setattr("sparklog.storage_core.cleaner.hold_log._PATIENCE_S", 0.0)
    directory, before = log_directories(store)["a-1"], read_store(store)

    with held_alone(directory), pytest.raises(StoreLockedError, match=r"still at work on this log: path=.*a-1"):
        _delete(store, "a")
    assert read_store(store) == before
    assert unfinished(store) == []

    _delete(store, "a")
    assert set(read_store(store)) == {"b-0"}


def test_open_when_a_task_still_holds_a_deleted_log_then_its_name_is_not_given_to_another(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is where the log's disk was offline when the topic was deleted, and is back before the task has ended."""
    monkeypatch.setattr("sparklog.storage_core.cleaner.hold_log._PATIENCE_S", 0.0)
    directory = log_directories(store)["a-1"]
    root, offline = directory.parent, directory.parent.with_name("offline")
    root.rename(offline)
    _delete(store, "a")
    offline.rename(root)

    with held_alone(directory), pytest.raises(StoreLockedError, match="still at work on this log"):
        open_store(store, _TOPICS, log_dirs=("logs", "more"))
    assert directory.is_dir()

    open_store(store, _TOPICS, log_dirs=("logs", "more")).close()
    assert unfinished(store) == []


def test_delete_topic_then_lost_ranges_of_it_excuse_no_later_one(store: Path) -> None:
    """What the old topic lost is no loss of the new one; other topics' stay."""
    table = LostRangeTable(store / "control" / "lost_ranges")
    other = LostRange(topic="b", partition=0, first_offset=3, last_offset=4, file="f", reason="crc", found_ms=1)
    table.add([_LOST, other])

    _delete(store, "a")

    assert table.read() == [other]


def test_open_when_a_power_cut_tore_the_list_of_lost_ranges_then_the_deletion_is_finished_all_the_same(
    store: Path,
) -> None:
    """It came while the topic's were forgotten."""
    table = LostRangeTable(store / "control" / "lost_ranges")
    table.add([_LOST])
    _delete(store, "a")
    table.add([_LOST])
    newest = max((store / "control" / "lost_ranges" / "_delta_log").glob("*.json"))
    newest.with_name(f"{int(newest.stem) + 1:020}.json").write_bytes(bytes(100))

    open_store(store, {"b": {}}).close()

    assert table.read() == []
    assert unfinished(store) == []


@pytest.mark.parametrize("metadata", [b"", b"version: 0\ntopic_"])
def test_delete_topic_when_a_directory_does_not_say_whose_it_is_then_it_goes_too(store: Path, metadata: bytes) -> None:
    """Its records would stay for ever, and a stream could not make the topic again."""
    for name in ("a-0", "a-1"):
        (log_directories(store)[name] / "partition.metadata").write_bytes(metadata)
    ids = {state.topic_id for log, state in _states(store).items() if log.topic == "a"}

    deleted = _delete(store, "a")

    assert len(deleted) == 2
    assert set(read_store(store)) == {"b-0"}
    _delete_again_starts_anew(store, ids)


def test_delete_topic_when_the_last_one_then_the_store_is_empty_and_can_be_used(store: Path) -> None:
    """A store without logs is a store."""
    _delete(store, "a")
    _delete(store, "b")

    assert read_store(store) == {}
    with closing(open_store(store, {"c": {}})) as writer:
        writer.append("query", 1, in_process(rows(topic=["c"], value=["1"])))
    assert [record.offset for record in read_store(store)["c-0"]] == [0]


def test_delete_topic_when_there_is_none_then_refused(store: Path) -> None:
    """The message names those that are there."""
    before = contents(store, without=("writer.lock", "maintenance.lock"))

    with pytest.raises(UnknownTopicError, match=r"name=c topics=a, b"):
        _delete(store, "c")

    assert contents(store, without=("writer.lock", "maintenance.lock")) == before


def test_delete_topic_when_a_sink_runs_then_refused(store: Path) -> None:
    """A sink holds descriptors of the topic's files."""
    with closing(open_store(store, _TOPICS)), pytest.raises(StoreLockedError):
        _delete(store, "a")


def test_open_when_a_later_topic_has_the_name_then_it_is_not_touched(store: Path) -> None:
    """The old topic's directory comes back with its disk: its id tells it from the new one's."""
    directory = log_directories(store)["a-1"]
    root, offline = directory.parent, directory.parent.with_name("offline")
    root.rename(offline)
    _delete(store, "a")
    other = "logs" if root.name == "more" else "more"
    _write_anew(store, log_dirs=(other,))
    before = {name: records for name, records in read_store(store).items() if name != "b-0"}
    LostRangeTable(store / "control" / "lost_ranges").add([_LOST])
    assert [(str(state.log), state.log_dir) for state in unfinished(store)] == [("a-1", root.name)]
    offline.rename(root)

    open_store(store, _TOPICS, log_dirs=("logs", "more")).close()

    assert {name: read_store(store)[name] for name in before} == before
    assert not directory.exists()
    assert unfinished(store) == []
    assert LostRangeTable(store / "control" / "lost_ranges").read() == [_LOST]


def test_remove_deleted_when_a_directory_is_no_deleted_one_then_refused(store: Path) -> None:
    """Nothing but what is set aside is ever removed."""
    with pytest.raises(ValueError, match=r"not set aside"):
        remove_deleted([store / "logs" / "a-0"])

    assert (store / "logs" / "a-0").is_dir()


def _states(store: Path) -> dict[TopicPartition, LogState]:
    return Ledger.open(store / "ledger").states()
