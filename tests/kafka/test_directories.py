"""Roots after deletions and moves, opened by a broker as they are: the store's id is the cluster's, nothing is copied.

A broker keeps a log only if it knows the topic's id. So it makes the topics first, in a root of its own, and our
directories get the ids that it gave.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sparklog.pipeline.verbs.delete_topic import execute_deletion
from sparklog.pipeline.verbs.move_log import execute_move
from sparklog.sink.store.set_aside import find_deleted
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.checkpoint.meta_properties import store_of
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.sink_store import in_process, log_directories, open_store, rows
from tests.kafka.broker import KafkaBroker, TopicSpec
from tests.kafka.consumed import Consumed, read_with_confluent, read_with_kafka_python
from tests.kafka.judge import judge_directory
from tests.kafka.ours import read_log
from tests.kafka.toolbox import KafkaToolbox, KafkaToolError

pytestmark = pytest.mark.kafka

_KEPT, _DELETED = "dirs.kept", "dirs.deleted"
_TOPICS: dict[str, dict[str, object]] = {
    _KEPT: {"partitions": 3, "segment.bytes": 2000, "batch.size": 500, "compression.type": "lz4"},
    _DELETED: {"partitions": 2, "segment.bytes": 2000},
}
_LOG_DIRS = ("logs", "more")
_MOVED = TopicPartition(_KEPT, 0)
_TARGET = "moved"
_START_MS = 1_700_000_000_000

_Made = tuple[KafkaBroker, Path]


class _KilledError(Exception):
    """Stands for a kill: what comes behind a step does not happen."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store of two topics in two log directories."""
    store = tmp_path_factory.mktemp("written") / "store"
    with closing(open_store(store, _TOPICS, log_dirs=_LOG_DIRS)) as writer:
        for turn in range(3):
            numbers = range(turn * 200, (turn + 1) * 200)
            columns: dict[str, list[Any]] = {
                "topic": [_KEPT if number % 3 else _DELETED for number in numbers],
                "timestamp": [_START_MS + number for number in numbers],
                "key": [f"key-{number % 17}" for number in numbers],
                "value": [f"value-{number}" * 5 for number in numbers],
            }
            writer.append("query", turn, in_process(rows(**columns)))
    return store


@pytest.fixture
def made(written: Path, toolbox: KafkaToolbox, tmp_path: Path) -> Iterator[_Made]:
    """A stopped broker of the store's cluster that knows the kept topic, and a copy of the store with its topic id."""
    store = Path(shutil.copytree(written, tmp_path / "store"))
    with KafkaBroker(toolbox, tmp_path / "broker") as broker:
        broker.format(Store.find(store).store_id)
        broker.start()
        config = {"retention.ms": -1, "message.timestamp.before.max.ms": 2**63 - 1}
        broker.create_topics(TopicSpec(name=_KEPT, partitions=3, config=config))
        broker.stop()
        yield broker, store


def _serve(broker: KafkaBroker, store: Path) -> None:
    """Start the broker on the store's roots, every log under the id that it knows."""
    for number in range(3):
        own = broker.log_dir / f"{_KEPT}-{number}"
        for directory in store.glob(f"*/{_KEPT}-{number}*"):
            shutil.copy2(own / "partition.metadata", directory / "partition.metadata")
        shutil.rmtree(own)
    roots = sorted(path.parent for path in store.glob("*/meta.properties"))
    settings = {"log.dirs": ",".join(map(str, [broker.log_dir, *roots])), "log.segment.delete.delay.ms": 500}
    broker.start(settings)


def _records(store: Path) -> dict[tuple[str, int], list[Consumed]]:
    logs = {name: path for name, path in log_directories(store).items() if name.startswith(_KEPT)}
    return {(_KEPT, int(name.rpartition("-")[2])): read_log(path) for name, path in logs.items()}


def _delete(store: Path) -> None:
    """Delete a topic, but be killed while its directories wait."""

    def die(_seconds: float) -> None:
        raise _KilledError

    with pytest.raises(_KilledError):
        execute_deletion(store, _DELETED, SystemClock(), lambda _directories, _until_ms: None, die)


def test_broker_when_a_topic_was_deleted_and_a_log_moved_then_serves_the_others_as_they_were(made: _Made) -> None:
    """Same records and offsets from three roots; what is left of the deleted topic is not taken for a log."""
    broker, store = made
    expected = _records(store)
    execute_move(store, _MOVED, _TARGET)
    _delete(store)
    assert _records(store) == expected
    assert sorted(path.name for path in (store / _TARGET).iterdir() if path.is_dir()) == [str(_MOVED)]
    assert sum(len(find_deleted(store / root)) for root in _LOG_DIRS) == 2
    verdict = judge_directory(store, broker.toolbox)
    assert verdict.findings == []

    roots = {path: path.read_bytes() for path in sorted(store.glob("*/meta.properties"))}
    _serve(broker, store)

    assert [store_of(data) for data in roots.values()] == [str(store)] * 3  # a name that a broker does not know
    assert {path: path.read_bytes() for path in roots} == roots
    assert read_with_confluent(broker.bootstrap, {_KEPT: 3}) == expected
    assert read_with_kafka_python(broker.bootstrap, {_KEPT: 3}) == expected
    _await_gone(store)
    assert [line for line in broker.complaints() if "dirs." in line and "clean shutdown" not in line] == []


def _await_gone(store: Path) -> None:
    """A broker removes `-delete` directories that it finds."""
    deadline = time.monotonic() + 30
    while any(find_deleted(store / root) for root in _LOG_DIRS):
        assert time.monotonic() < deadline, "the broker leaves deleted directories"
        time.sleep(0.1)


def _kill_at(step: str, visit: int = 1) -> Callable[[str], None]:
    seen = [0]

    def die(name: str) -> None:
        seen[0] += name == step
        if name == step and seen[0] == visit:
            raise _KilledError

    return die


@pytest.mark.parametrize("step", ["move.copied", "move.committed"])
def test_broker_when_a_kill_left_a_future_directory_then_every_record_is_served(
    made: _Made, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The log has its name still; a broker takes the other directory for a move of its own, and may finish it."""
    broker, store = made
    expected = _records(store)
    monkeypatch.setattr("sparklog.sink.operations.move_log.reach", _kill_at(step))
    with pytest.raises(_KilledError):
        execute_move(store, _MOVED, _TARGET)

    _serve(broker, store)

    assert read_with_confluent(broker.bootstrap, {_KEPT: 3}) == expected


def test_broker_when_a_kill_left_a_log_twice_then_refuses_to_start_and_the_next_opening_mends_it(
    made: _Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be worse if it found none, for it would begin an empty log."""
    broker, store = made
    expected = _records(store)
    monkeypatch.setattr("sparklog.sink.opening.finish_intents.reach", _kill_at("move.renamed"))
    with pytest.raises(_KilledError):
        execute_move(store, _MOVED, _TARGET)
    monkeypatch.undo()
    assert len(list(store.glob(f"*/{_MOVED}"))) == 2
    copy = Path(shutil.copytree(store, store.with_name("mended")))

    with pytest.raises(KafkaToolError, match=r"Duplicate log directories"):
        _serve(broker, store)

    open_store(copy, _TOPICS, log_dirs=_LOG_DIRS).close()
    assert _records(copy) == expected
    assert len(list(copy.glob(f"*/{_MOVED}"))) == 1
