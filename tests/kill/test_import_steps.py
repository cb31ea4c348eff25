"""Killed at any step, an import has brought all logs or none, and the broker's files are as they were."""

import os
import shutil
import signal
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sparklog.pipeline.places.store_view import open_logs
from sparklog.sink.ledger.ledger import Ledger
from sparklog.storage_core.operation_fault_points import IMPORT_FAULT_POINTS
from tests.build.sink_store import contents
from tests.kill.directory_job import finish, open_and_close, start
from tests.kill.harness import exit_code, wait_until_stopped, wake
from tests.kill.import_job import IMPORTED, problems_of_import, run_import, write_places

pytestmark = pytest.mark.kill

_COMMITS = ("commit.data", "commit.written", "commit.synced")
_STEPS = [*IMPORT_FAULT_POINTS, *_COMMITS, *(f"{step}:2" for step in _COMMITS), "move.renamed", "move.renamed:2"]
_OPENING = ["move.renamed", "move.renamed:2", "commit.data", "open.settled"]
_BEFORE_THE_COMMIT = (*IMPORT_FAULT_POINTS[:4], *_COMMITS, "commit.data:2")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store and a broker's root."""
    return write_places(tmp_path_factory.mktemp("written"))


@pytest.fixture
def store(written: Path, memory_path: Path) -> Path:
    """A copy of both."""
    shutil.copytree(written.parent, memory_path / "places")
    return memory_path / "places" / "store"


def _imported(store: Path) -> bool:
    return IMPORTED.keys() <= {str(each.log) for each in open_logs(store).logs}


@pytest.mark.parametrize("step", _STEPS)
def test_import_when_killed_at_a_step_then_all_logs_or_none_and_a_second_one_completes_it(
    context: ForkServerContext, store: Path, step: str
) -> None:
    """Readers see each log as a whole from the commit on; the next opening names or removes the directories.

    A request to forget keys covers no log that a sink may make in place of one that never came.
    """
    broker = contents(store.parent / "broker")

    assert finish(context, run_import, store, SPARKLOG_FAULT_POINT=step) == -9

    is_committed = step not in _BEFORE_THE_COMMIT
    assert _imported(store) == is_committed
    assert finish(context, open_and_close, store) == 0
    assert _imported(store) == is_committed
    assert problems_of_import(store, broker) == []
    assert finish(context, run_import, store) == int(is_committed)  # the logs are there already
    assert _imported(store)
    assert problems_of_import(store, broker) == []


@pytest.mark.parametrize("step", _OPENING)
@pytest.mark.parametrize("first", ["import.copied", "import.committed"])
def test_import_when_the_opening_that_finishes_it_is_killed_too_then_the_third_one_finishes(
    context: ForkServerContext, store: Path, first: str, step: str
) -> None:
    """Finishing can itself be interrupted."""
    broker = contents(store.parent / "broker")
    assert finish(context, run_import, store, SPARKLOG_FAULT_POINT=first) == -9
    finish(context, open_and_close, store, SPARKLOG_FAULT_POINT=step)

    assert finish(context, open_and_close, store) == 0

    assert _imported(store) == (first == "import.committed")
    assert problems_of_import(store, broker) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("step", ["import.intended", "import.copied"])
def test_import_when_a_signal_comes_before_the_commit_then_nothing_half_made_is_left(
    context: ForkServerContext, store: Path, step: str, number: signal.Signals
) -> None:
    """Neither copied files nor rows wait for another opening, which may be far off."""
    broker = contents(store.parent / "broker")
    process = start(context, run_import, store, SPARKLOG_FAULT_POINT=step, SPARKLOG_FAULT_SIGNAL="STOP")
    wait_until_stopped(process)
    os.kill(process.pid or 0, number)
    wake(process)

    assert exit_code(process) == 1

    assert [state.intent for state in Ledger.open(store / "ledger").all_states() if state.intent] == []
    assert list(store.rglob("*-future")) == []
    assert not _imported(store)
    assert finish(context, run_import, store) == 0
    assert problems_of_import(store, broker) == []
