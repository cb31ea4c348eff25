"""Killed at any step, a moved log is one whole log, and a deleted topic is there as a whole or not at all."""

import shutil
from contextlib import closing
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sparklog.pipeline.places.store_view import open_logs
from sparklog.sink.ledger.ledger import Ledger
from sparklog.storage_core.operation_fault_points import DIRECTORY_FAULT_POINTS
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.ledger_rows import unfinished
from tests.build.sink_store import in_process, numbers, open_store, stored_numbers
from tests.kill.directory_job import (
    LOG_DIRS,
    TOPICS,
    finish,
    open_and_close,
    problems_of_directories,
    read_values,
    run_deletion,
    run_move,
    write_store,
)

pytestmark = pytest.mark.kill

_COMMIT = ("commit.written", "commit.synced")
_MOVE = [
    *(each for each in DIRECTORY_FAULT_POINTS if each.startswith("move.")),
    *_COMMIT,
    "commit.written:2",
    "commit.data:3",
    "commit.written:3",
    "move.renamed:2",
]
_DELETE = [*(each for each in DIRECTORY_FAULT_POINTS if each.startswith("delete-topic.")), *_COMMIT]
_DELETE += ["delete-topic.renamed:2", "delete-topic.deleted:2"]
_BEFORE_THE_COMMIT = ("move.intended", "move.copied", *_COMMIT)
_ALL = sorted([*range(100), *range(10)])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store."""
    store = tmp_path_factory.mktemp("written") / "store"
    write_store(store)
    return store


@pytest.fixture
def store(written: Path, memory_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(written, memory_path / "store"))


@pytest.mark.parametrize("step", _MOVE)
def test_move_when_killed_at_a_step_then_readers_see_every_record_and_the_next_opening_finishes(
    context: ForkServerContext, store: Path, step: str
) -> None:
    """Where the ledger says, the log is whole, before and after the next opening; a second move then completes it."""
    assert finish(context, run_move, store, SPARKLOG_FAULT_POINT=step) == -9

    assert read_values(open_logs(store)) == _ALL
    assert finish(context, open_and_close, store) == 0
    assert problems_of_directories(store) == []
    assert read_values(open_logs(store)) == stored_numbers(store) == _ALL
    is_moved = Ledger.open(store / "ledger").states()[TopicPartition("events", 0)].log_dir == "moved"
    assert is_moved == (step not in _BEFORE_THE_COMMIT)

    assert finish(context, run_move, store) == int(is_moved)  # it lies there already
    assert problems_of_directories(store) == []
    _append(store)


def _append(store: Path) -> None:
    with closing(open_store(store, TOPICS, topic="events", log_dirs=LOG_DIRS)) as writer:
        writer.append("query", 9, in_process(numbers(100, 150)))
    assert stored_numbers(store) == sorted([*range(150), *range(10)])


@pytest.mark.parametrize("step", ["move.renamed", "move.renamed:2", "open.settled"])
@pytest.mark.parametrize("first", ["move.intended", "move.committed", "move.renamed", "move.copied"])
def test_move_when_the_opening_that_finishes_it_is_killed_too_then_the_third_one_finishes(
    context: ForkServerContext, store: Path, first: str, step: str
) -> None:
    """Finishing can itself be interrupted."""
    assert finish(context, run_move, store, SPARKLOG_FAULT_POINT=first) == -9
    finish(context, open_and_close, store, SPARKLOG_FAULT_POINT=step)
    assert read_values(open_logs(store)) == _ALL

    assert finish(context, open_and_close, store) == 0

    assert problems_of_directories(store) == []
    assert stored_numbers(store) == _ALL


@pytest.mark.parametrize("step", _DELETE)
def test_deletion_when_killed_at_a_step_then_the_topic_is_gone_and_the_next_opening_clears_up(
    context: ForkServerContext, store: Path, step: str
) -> None:
    """From the commit on it does not exist; its directories go, and a new one of its name starts at 0."""
    assert finish(context, run_deletion, store, SPARKLOG_FAULT_POINT=step) == -9

    assert read_values(open_logs(store)) == list(range(10))
    assert finish(context, open_and_close, store) == 0
    assert problems_of_directories(store) == []
    assert unfinished(store) == []
    assert stored_numbers(store) == list(range(10))

    with closing(open_store(store, TOPICS, topic="events", log_dirs=LOG_DIRS)) as writer:
        writer.append("query", 9, in_process(numbers(10, 20)))
    assert stored_numbers(store) == list(range(20))
    assert problems_of_directories(store) == []


@pytest.mark.parametrize("step", ["delete-topic.renamed", "delete-topic.renamed:2", "commit.data", "open.settled"])
def test_deletion_when_the_opening_that_finishes_it_is_killed_too_then_the_third_one_finishes(
    context: ForkServerContext, store: Path, step: str
) -> None:
    """Finishing can itself be interrupted."""
    assert finish(context, run_deletion, store, SPARKLOG_FAULT_POINT="delete-topic.committed") == -9
    assert finish(context, open_and_close, store, SPARKLOG_FAULT_POINT=step) == -9

    assert finish(context, open_and_close, store) == 0

    assert problems_of_directories(store) == []
    assert unfinished(store) == []
    assert stored_numbers(store) == list(range(10))
