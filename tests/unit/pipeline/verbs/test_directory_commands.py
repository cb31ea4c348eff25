"""The commands that delete a topic and move a log."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from sparklog.pipeline.places.store_view import open_logs
from sparklog.pipeline.verbs.delete_topic import execute_deletion
from sparklog.sink.store.set_aside import find_deleted
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import contents, in_process, open_store, rows
from tests.sparklog_command import Sparklog


@pytest.fixture
def store(memory_path: Path) -> Path:
    """A closed store of the topics `a` (2 logs) and `b`, one record in each log."""
    path = memory_path / "store"
    topics: dict[str, dict[str, object]] = {"a": {"partitions": 2, "file.delete.delay.ms": 1500}, "b": {}}
    with closing(open_store(path, topics)) as writer:
        writer.append("q", 0, in_process(rows(topic=["a", "a", "b"], partition=[0, 1, 0], value=["x", "y", "z"])))
    return path


def test_delete_topic_when_not_executed_then_only_says_what_it_would_do(sparklog: Sparklog, store: Path) -> None:
    """Logs, offsets, bytes; nothing is changed, not even a lock is taken."""
    before = contents(store)
    ran, as_json = sparklog("delete-topic", store, "a"), sparklog("delete-topic", store, "a", "--json")

    size = sum(len(data) for name, data in before.items() if name.startswith("logs/a-"))
    assert ran.code == 0
    assert ran.out.splitlines()[0].startswith("a-0: 1 offsets, ")
    assert ran.out.splitlines()[-1] == f"planned: topic a, 2 logs, {size:,} bytes; --execute does it"
    assert sum(log["size_bytes"] for log in json.loads(as_json.out)["logs"]) == size
    assert json.loads(as_json.out)["executed"] is False
    assert contents(store) == before


def test_delete_topic_when_executed_then_waits_and_removes_everything(sparklog: Sparklog, store: Path) -> None:
    """What is waited for goes to stderr."""
    ran = sparklog("delete-topic", store, "a", "--execute")

    assert ran.code == 0
    assert ran.out.splitlines()[-1].startswith("deleted: topic a, 2 logs, ")
    assert "to remove 2 directories; Ctrl-C leaves them" in ran.err
    assert sorted(path.name for path in (store / "logs").iterdir() if path.is_dir()) == ["b-0"]
    assert sparklog("verify", store).code == 0


def test_delete_topic_when_interrupted_while_it_waits_then_the_next_opening_removes_the_rest(store: Path) -> None:
    """The topic is gone all the same."""
    waiting: list[int] = []

    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute_deletion(
            store, "a", ManualClock(7), lambda found, until: waiting.extend((len(found), until)), interrupt
        )

    assert waiting == [2, 1507]
    assert len(find_deleted(store / "logs")) == 2
    assert [str(each.log) for each in open_logs(store).logs] == ["b-0"]
    open_store(store, {"b": {}}).close()
    assert find_deleted(store / "logs") == []


def test_delete_topic_when_the_wall_clock_is_set_while_it_waits_then_waits_as_long_as_it_should(store: Path) -> None:
    """Not for an hour longer."""
    clock, slept = ManualClock(7_200_000), list[float]()

    def sleep(seconds: float) -> None:
        clock.set_wall(-3_600_000)
        slept.append(seconds)
        clock.advance(int(seconds * 1000))
        assert sum(slept) <= 1.5

    execute_deletion(store, "a", clock, lambda _found, _until: None, sleep)

    assert sum(slept) == 1.5
    assert find_deleted(store / "logs") == []


@pytest.mark.parametrize(("topic", "code"), [("c", 1), ("a-0", 1), ("", 1)])
def test_delete_topic_when_there_is_none_then_fails(sparklog: Sparklog, store: Path, topic: str, code: int) -> None:
    """One line that names those that are there."""
    ran = sparklog("delete-topic", store, topic, "--execute")

    assert (ran.code, ran.out) == (code, "")
    assert ran.err == f"error: no topic of that name: name={topic} topics=a, b\n"


def test_delete_topic_when_the_place_is_no_store_then_wrong_use(sparklog: Sparklog, store: Path) -> None:
    """A broker's folder has no ledger that could forget the topic."""
    assert sparklog("delete-topic", store / "logs", "a").code == 2


def test_move_log_when_not_executed_then_only_says_what_it_would_do(sparklog: Sparklog, store: Path) -> None:
    """From where, to where, how much."""
    before = contents(store)
    ran, as_json = (sparklog("move-log", store, "a:0", "--to", "more", *more) for more in ((), ("--json",)))

    size = sum(len(data) for name, data in before.items() if name.startswith("logs/a-0/"))
    where = f"a-0 from {store}/logs to {store}/more, a new log directory"
    assert (ran.code, ran.out) == (0, f"planned: {where}: 5 files, {size:,} bytes; --execute does it\n")
    assert json.loads(as_json.out) == {
        "executed": False,
        "topic": "a",
        "partition": 0,
        "from": f"{store}/logs",
        "to": f"{store}/more",
        "is_new": True,
        "files": 5,
        "size_bytes": size,
    }
    assert contents(store) == before


def test_move_log_when_executed_then_the_log_lies_there(sparklog: Sparklog, store: Path) -> None:
    """And the store is sound."""
    ran = sparklog("move-log", store, "a:0", "--to", "more", "--execute")

    assert ran.code == 0
    assert ran.out.startswith(f"moved: a-0 from {store}/logs to {store}/more")
    assert [path.name for path in (store / "more").iterdir() if path.is_dir()] == ["a-0"]
    assert not (store / "logs" / "a-0").exists()
    assert sparklog("verify", store).code == 0
    assert sparklog("read", store, "a:0").out.endswith("\tx\n")


@pytest.mark.parametrize(
    ("name", "target", "code", "message"),
    [
        ("a", "more", 2, "name one log as TOPIC:PARTITION: name=a"),
        ("a:x", "more", 2, "name one log as TOPIC:PARTITION: name=a:x"),
        ("a:9", "more", 1, "no such log in the ledger: log=a:9"),
        ("a:0", "logs", 2, "the log lies there already"),
    ],
)
def test_move_log_when_it_makes_no_sense_then_refused(
    sparklog: Sparklog, store: Path, name: str, target: str, code: int, message: str
) -> None:
    """Before anything is changed."""
    ran = sparklog("move-log", store, name, "--to", target, "--execute")

    assert ran.code == code
    assert message in ran.err


def test_describe_when_directories_are_set_aside_then_lists_them(sparklog: Sparklog, store: Path) -> None:
    """They take room, and are no logs."""
    (store / "logs" / f"x-0.{'a' * 32}-stray").mkdir()

    ran, text = sparklog("describe", store, "--json"), sparklog("describe", store)

    assert json.loads(ran.out)["set_aside"] == [f"{store}/logs/x-0.{'a' * 32}-stray"]
    assert f"set aside: {store}/logs/x-0.{'a' * 32}-stray" in text.out
    assert sparklog("verify", store).code == 0
