"""A job that does everything to a store is killed at each named step, and at random moments again and again."""

import importlib
import inspect
import itertools
import os
import pkgutil
import random
import shutil
import time
from collections.abc import Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

import tests.kill
from sparklog.storage_core import fault_points, operation_fault_points
from tests.kafka.judge import judge_directory
from tests.kill.harness import exit_code
from tests.kill.matrix_job import Script, any_kinds, problems_of, start, steps_done
from tests.seeds import GIVEN, take_seed

pytestmark = pytest.mark.kill

_LONG = bool(os.environ.get("SPARKLOG_SOAK"))
_EVERYTHING = (
    *("append", "append", "append", "move", "append", "truncate", "append", "delete-records", "retain", "append"),
    *("close", "expire", "append", "empty", "append", "delete-topic", "append", "move", "retain", "close"),
    *("append", "move", "delete-topic", "move", "append", "move", "append", "close"),
)
_TIDIED = ("append", "idle", "append")
_ONCE = ("open.created:2", "flush.synced:2")
"""The job makes one store, and its closes sync the one log that they have to sync once."""
_UNDO = ("undo.deleted", "undo.cut")
_STEPS = [
    point
    for points in (
        fault_points.FAULT_POINTS,
        fault_points.CHECKPOINT_FAULT_POINTS,
        fault_points.OWNED_NAMES_FAULT_POINTS,
        operation_fault_points.DIRECTORY_FAULT_POINTS,
        fault_points.FLUSH_FAULT_POINTS,
        operation_fault_points.RETENTION_FAULT_POINTS,
        operation_fault_points.TRUNCATE_FAULT_POINTS,
    )
    for point in points
    if point not in (*_UNDO, "commit.quarantined")
]
"""Steps that the job comes past; loading, repairing and cleaning are killed by tests of their own."""

_SHORT = ("place.published:5", "checkpoint.replaced:9", "truncate.committed", "move.renamed", "retain.renamed:2")
_ROUNDS, _KILLS = (25, 20) if _LONG else (1, 5)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Script]:
    """A job that comes past every step, and what it leaves undisturbed."""
    folder = tmp_path_factory.mktemp("everything")
    return folder, Script.write(folder, random.Random(7), _EVERYTHING)


def _kill_at(context: ForkServerContext, folder: Path, script: Script, *steps: str) -> list[str]:
    """Kill a job at one step after the other, and let it go on to its end; return what is wrong on the way."""
    for step in steps:
        assert exit_code(start(context, folder, SPARKLOG_FAULT_POINT=step)) == -9, f"{step} was not reached"
    if steps[-1].startswith(_UNDO):
        wrong = []
    else:
        wrong = [f"{steps[-1]}: {problem}" for problem in problems_of(folder, script)]
    assert exit_code(start(context, folder)) == 0, (steps, (folder / "error.txt").read_text())
    assert steps_done(folder) == len(script.operations)
    return wrong + problems_of(folder, script)


@pytest.mark.parametrize(
    "step", [each for step in _STEPS for each in (f"{step}:1", f"{step}:2") if each not in _ONCE] if _LONG else _SHORT
)
def test_job_when_killed_at_a_step_then_each_log_holds_what_was_acknowledged(
    context: ForkServerContext, everything: tuple[Path, Script], memory_path: Path, step: str
) -> None:
    """Whatever it was doing: that is done, or not yet, or done to some of the logs; and it can be done again."""
    shutil.copy(everything[0] / "script.json", memory_path)

    assert _kill_at(context, memory_path, everything[1], step) == []


@pytest.mark.parametrize("step", [f"{step}:{visit}" for step in _UNDO for visit in (1, 3)] if _LONG else ["undo.cut"])
def test_job_when_killed_while_it_undoes_a_kill_then_holds_what_was_acknowledged(
    context: ForkServerContext, everything: tuple[Path, Script], memory_path: Path, step: str
) -> None:
    """An opening that dies leaves the next one enough to see."""
    shutil.copy(everything[0] / "script.json", memory_path)

    assert _kill_at(context, memory_path, everything[1], "place.synced:4", step) == []


@pytest.mark.parametrize("step", fault_points.LEDGER_FAULT_POINTS if _LONG else ["tidy.checkpointed"])
def test_job_when_killed_while_it_tidies_the_ledger_then_holds_what_was_acknowledged(
    context: ForkServerContext, memory_path: Path, step: str
) -> None:
    """A checkpoint of the ledger that is half there, or whose entries are half gone, is no obstacle."""
    script = Script.write(memory_path, random.Random(8), _TIDIED)

    assert _kill_at(context, memory_path, script, step) == []


@pytest.mark.parametrize("number", range(_ROUNDS if GIVEN is None else 1))
def test_job_when_killed_again_and_again_then_ends_with_exactly_its_records(
    context: ForkServerContext, memory_path: Path, number: int
) -> None:
    """At any moment: nothing acknowledged is lost, nothing is there twice, and every log is sound after each kill."""
    seed = take_seed(number)
    choose = random.Random(seed)
    script = Script.write(memory_path, choose, any_kinds(choose, 24))

    for kill in _kills(context, memory_path, choose):
        assert problems_of(memory_path, script) == [], f"{seed=} {kill=}"
        if steps_done(memory_path) == len(script.operations):
            _begin_again(memory_path)
    assert exit_code(start(context, memory_path)) == 0, (seed, (memory_path / "error.txt").read_text())

    assert steps_done(memory_path) == len(script.operations)
    assert problems_of(memory_path, script) == [], f"{seed=}"
    if _LONG:  # Kafka's tools take seconds to start
        assert judge_directory(memory_path / "store", gaps_allowed=True).findings == [], f"{seed=}"


def test_fault_points_when_all_are_listed_then_each_is_one_at_which_a_test_kills() -> None:
    """A step that no test dies at is a step that nobody knows the end of."""
    steps = {step.partition(":")[0] for step in _killed_at()} | set(_STEPS) | {*fault_points.LEDGER_FAULT_POINTS}
    named = {
        point
        for module in (fault_points, operation_fault_points)
        for name in module.__all__
        if name.endswith("FAULT_POINTS")
        for point in getattr(module, name)
    }

    assert named - steps == set()


def _kills(context: ForkServerContext, folder: Path, choose: random.Random) -> Iterator[str]:
    """Start the job, kill it somewhere, and say where; so many times."""
    for _ in range(_KILLS):
        if choose.random() < 0.3:
            step = f"{choose.choice(_STEPS)}:{choose.randint(1, 4)}"
            code = exit_code(start(context, folder, SPARKLOG_FAULT_POINT=step))
        else:
            step = f"{choose.uniform(0, 1.2):.3f} s"
            job = start(context, folder)
            time.sleep(float(step.split()[0]))
            job.kill()
            code = exit_code(job)
        assert code in (0, -9), (step, (folder / "error.txt").read_text())
        yield step


def _begin_again(folder: Path) -> None:
    (folder / "done").unlink()
    shutil.rmtree(folder / "store")


def _killed_at() -> Iterator[str]:
    """Yield every string that a kill test is parametrized with: the steps are among them."""
    for module in pkgutil.iter_modules(tests.kill.__path__):
        if not module.name.startswith("test_"):
            continue
        for test in vars(importlib.import_module(f"tests.kill.{module.name}")).values():
            if not inspect.isfunction(test):
                continue
            marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
            for value in itertools.chain.from_iterable(mark.args[1] for mark in marks):
                yield from (each for each in (value if isinstance(value, tuple) else (value,)) if isinstance(each, str))
