"""Moving a log of a store to another log directory."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sparklog.pipeline.checks.verify_logs import verify
from sparklog.pipeline.places.store_view import open_logs
from sparklog.sink.ledger.intents import Copy, future_name, render_intents
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.opening.access import writing
from sparklog.sink.operations.move_log import move_log, plan_move
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.checkpoint.meta_properties import parse_meta_properties, render_meta_properties
from sparklog.storage_core.checkpoint.offset_checkpoint import parse_offset_checkpoint
from sparklog.storage_core.cleaner.hold_log import held_alone
from sparklog.storage_core.errors import InvalidConfigError, StorageError, StoreLockedError, UnknownTopicError
from sparklog.storage_core.storage.owned_names import UNSHARED
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.ledger_rows import change_row, unfinished
from tests.build.sink_store import (
    contents,
    in_process,
    numbers,
    open_events,
    open_store,
    read_store,
    rows,
    stored_numbers,
)

_LOG = TopicPartition("events", 0)
_LOCKS = ("writer.lock", "maintenance.lock")


@pytest.fixture
def store(memory_path: Path) -> Path:
    """A closed store with 0..99 in rolled segments of `events`."""
    with closing(open_events(memory_path / "store")) as writer:
        writer.append("query", 0, in_process(numbers(0, 100)))
    return memory_path / "store"


def _move(store: Path, target: str, log: TopicPartition = _LOG) -> None:
    with writing(store) as written:
        move_log(written, log, target)


def _is_sound(store: Path) -> bool:
    return verify(open_logs(store), lambda _finding: None).is_sound


@pytest.mark.parametrize("target", ["more", "{absolute}"])
def test_move_log_then_every_byte_is_on_the_target_and_none_left(store: Path, memory_path: Path, target: str) -> None:
    """Files, names, records and times of files are the same; the store goes on there."""
    target = target.format(absolute=memory_path / "disk")
    before, files = read_store(store), contents(store / "logs" / "events-0")
    times = {path.name: path.stat().st_mtime_ns for path in (store / "logs" / "events-0").iterdir()}

    _move(store, target)

    moved = store / target / "events-0"
    assert contents(moved) == files
    assert {path.name: path.stat().st_mtime_ns for path in moved.iterdir()} == times
    assert not (store / "logs" / "events-0").exists()
    assert sorted(path.name for path in (store / target).iterdir() if path.is_dir()) == ["events-0"]
    assert read_store(store) == before
    assert unfinished(store) == []
    assert _is_sound(store)
    with closing(open_events(store)) as writer:
        writer.append("query", 1, in_process(numbers(100, 200)))
    assert stored_numbers(store) == list(range(200))
    assert Ledger.open(store / "ledger").states()[_LOG].log_dir == target


def test_move_log_when_a_task_of_a_dead_run_still_holds_it_then_refused_and_nothing_changes(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it replaces meanwhile would be copied half."""
    monkeypatch.setattr("sparklog.storage_core.cleaner.hold_log._PATIENCE_S", 0.0)

    with held_alone(store / "logs" / "events-0"), pytest.raises(StoreLockedError, match="still at work on this log"):
        _move(store, "more")

    assert unfinished(store) == []
    assert not (store / "more").exists()
    _move(store, "more")
    assert stored_numbers(store) == list(range(100))


def test_move_log_then_the_roots_files_speak_of_their_own_logs(store: Path) -> None:
    """A new root is the store's; checkpoint files name a log where it lies."""
    _move(store, "more")

    found = Store.find(store)
    metas = [parse_meta_properties((store / root / "meta.properties").read_bytes()) for root in ("logs", "more")]
    assert [meta["cluster.id"] for meta in metas] == [found.store_id] * 2
    assert metas[0]["directory.id"] != metas[1]["directory.id"]
    for root, names in {"logs": ["events-1"], "more": ["events-0"]}.items():
        for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
            offsets = parse_offset_checkpoint((store / root / name).read_bytes())
            assert [str(log) for log in offsets] == names


def test_move_log_when_all_left_a_root_then_its_checkpoint_files_are_empty(store: Path) -> None:
    """A log that is not there must not be named there."""
    for partition in (0, 1):
        _move(store, "more", TopicPartition("events", partition))

    assert parse_offset_checkpoint((store / "logs" / "replication-offset-checkpoint").read_bytes()) == {}
    assert stored_numbers(store) == list(range(100))
    _move(store, "logs")
    assert stored_numbers(store) == list(range(100))
    assert _is_sound(store)


def test_move_log_when_a_crash_left_bytes_behind_the_end_then_they_do_not_travel(store: Path) -> None:
    """Only what is committed is copied."""
    before = read_store(store)
    log = max((store / "logs" / "events-0").glob("*.log"))
    with log.open("ab") as file:
        file.write(b"x" * 100)
    for name in ("9" * 20 + ".log.abc.cleaned", "0" * 20 + ".index.deleted"):
        (store / "logs" / "events-0" / name).write_bytes(b"left")
    (store / "writer.lock").write_text('{"pid": 1}')

    _move(store, "more")

    assert read_store(store) == before
    assert not [name for name in contents(store / "more" / "events-0") if name.endswith((".cleaned", ".deleted"))]
    assert _is_sound(store)


def test_plan_move_then_says_what_it_takes_and_changes_nothing(store: Path) -> None:
    """Bytes to copy, and whether the target is new."""
    before = contents(store)
    found = Store.find(store)

    plan = plan_move(found, Ledger.open(found.ledger_path), _LOG, "more")

    assert plan.size_bytes == sum(len(data) for data in contents(store / "logs" / "events-0").values())
    assert plan.is_new
    assert contents(store) == before
    assert not (store / "more").exists()


def _foreign_root(store: Path) -> str:
    (store / "more").mkdir()
    (store / "more" / "meta.properties").write_bytes(render_meta_properties("another", 1, "x" * 22))
    return "more"


def _not_empty(store: Path) -> str:
    (store / "more" / "lost+found").mkdir(parents=True)
    return "more"


def _taken(store: Path) -> str:
    _move(store, "more", TopicPartition("events", 1))
    (store / "more" / "events-0").mkdir()
    return "more"


def _file(store: Path) -> str:
    (store / "more").write_text("")
    return "more"


def _swap(store: Path) -> str:
    (store / "logs" / "events-0" / f"{0:020}.log.swap").write_bytes(b"damaged")  # nobody can finish it
    return "more"


_REFUSED: dict[str, tuple[Any, str]] = {
    "there already": (lambda _store: "logs", r"lies there already"),
    "there already, named otherwise": (lambda store: f"{store}/./logs", r"lies there already"),
    "the store": (str, r"is the store"),
    "a folder above": (lambda _store: "..", r"is the store, a folder above it"),
    "the ledger": (lambda _store: "ledger/x", r"itself uses"),
    "below a log directory": (lambda _store: "logs/more", r"one folder would lie in the other"),
    "below a log": (lambda _store: "logs/events-1", r"one folder would lie in the other"),
    "the quarantine": (lambda _store: "quarantine", r"one folder would lie in the other"),
    "another's": (_foreign_root, r"belongs to another store or broker"),
    "not empty": (_not_empty, r"neither a log directory nor an empty folder"),
    "a file": (_file, r"neither a log directory nor an empty folder"),
    "taken": (_taken, r"two directories|is there already"),
    "swap": (_swap, r"unfinished replacement"),
}


@pytest.mark.parametrize("case", _REFUSED)
def test_move_log_when_it_can_not_move_there_then_refused_and_nothing_changed(store: Path, case: str) -> None:
    """The message says why."""
    make, message = _REFUSED[case]
    target = make(store)
    before = contents(store, without=_LOCKS)

    with pytest.raises(InvalidConfigError, match=message):
        _move(store, target)

    assert contents(store, without=_LOCKS) == before


def test_open_when_a_kill_left_part_of_a_copy_then_it_is_removed_and_the_log_is_where_it_was(store: Path) -> None:
    """A `-future` directory counts for nothing before the commit."""
    before = read_store(store)
    found = Store.find(store)
    found.prepare_log_dirs(("more",), UNSHARED)
    copy = Copy(target="more", unique_id="ab" * 16)
    change_row(store, _LOG, intent=render_intents((copy,)))
    part = store / "more" / future_name(_LOG, copy)
    part.mkdir()
    (part / f"{0:020}.log").write_bytes((store / "logs" / "events-0" / f"{0:020}.log").read_bytes()[:100])
    assert _is_sound(store)

    open_events(store).close()

    assert read_store(store) == before
    assert [path for path in (store / "more").iterdir() if path.is_dir()] == []
    assert unfinished(store) == []


def test_move_log_when_there_is_no_such_log_then_refused(store: Path) -> None:
    """A typing error."""
    with pytest.raises(UnknownTopicError, match=r"log=events:7"):
        _move(store, "more", TopicPartition("events", 7))


def test_move_log_when_the_name_has_no_room_for_the_suffix_then_refused(memory_path: Path) -> None:
    """A `-future` name is not cut, and no file name has more than 255 characters."""
    topic = "t" * 230
    with closing(open_store(memory_path / "store", {topic: {}})) as writer:
        writer.append("query", 0, in_process(rows(topic=[topic], value=["1"])))

    with pytest.raises(InvalidConfigError, match=r"name is too long to copy"):
        _move(memory_path / "store", "more", TopicPartition(topic, 0))


def test_move_log_when_there_is_no_room_then_refused_before_anything_is_copied(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that can't end well is not begun."""
    monkeypatch.setattr("shutil.disk_usage", lambda _path: _Usage())
    before = contents(store, without=_LOCKS)

    with pytest.raises(StorageError, match=r"no space left on the disk.*needed=\d+ free=10"):
        _move(store, "more")

    assert contents(store, without=_LOCKS) == before


class _Usage:
    free = 10
