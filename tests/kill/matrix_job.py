"""A job that does everything to a store that can be done, one thing after the other, and can be killed anywhere.

What it does is written down before, and how far it got after each thing; started again it goes on there, and does once
more what it was killed in. What a refusal said is in `error.txt`.
"""

import copy
import itertools
import json
import os
import random
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from tests.plain.store_model import LOGS, NOW_MS, RETENTION_MS, Model, Operation, RunningStore

__all__ = ["Script", "any_kinds", "problems_of", "run", "start", "steps_done"]

_KINDS = ("append",) * 6 + (
    "truncate",
    "truncate",
    "empty",
    "delete-records",
    "retain",
    "expire",
    "move",
    "delete-topic",
)


@dataclass(frozen=True)
class Script:
    """What a job does.

    Attributes:
        operations: one after the other.
        states: of the lists of records, before the first one and behind each.
    """

    operations: list[Operation]
    states: list[Model]

    @classmethod
    def write(cls, folder: Path, choose: random.Random, kinds: Sequence[str]) -> "Script":
        """Make up a job, do it undisturbed beside the place where it will be killed, and write it down there.

        Args:
            folder: of the job.
            choose: makes up what is not said.
            kinds: of what is to be done; `expire` is a retention that finds everything too old.

        Raises:
            AssertionError: undisturbed, the store is not what the lists say.
        """
        store, model = RunningStore(folder / "undisturbed"), Model()
        script = cls([], [copy.deepcopy(model)])
        for number, kind in enumerate(kinds):
            operation = _choose(choose, number, kind, model)
            model.apply(operation, store.root)
            store.apply(operation)
            assert model.problems(store.root) == [], operation
            script.operations.append(operation)
            script.states.append(copy.deepcopy(model))
        store.close()
        (folder / "script.json").write_text(json.dumps([each.as_dict() for each in script.operations]))
        return script


def start(context: ForkServerContext, folder: Path, **environment: str) -> ForkServerProcess:
    """Start the job, or let it go on."""
    process = context.Process(target=run, args=(folder, environment))
    process.start()
    return process


def run(folder: Path, environment: dict[str, str]) -> None:
    """Do the job in this process, a fresh one."""
    os.environ.update(environment)
    operations = [Operation.from_dict(each) for each in json.loads((folder / "script.json").read_text())]
    store = RunningStore(folder / "store")
    (folder / "error.txt").unlink(missing_ok=True)
    try:
        for number in range(steps_done(folder), len(operations)):
            store.apply(operations[number])
            (folder / "done.tmp").write_text(str(number + 1))
            (folder / "done.tmp").rename(folder / "done")
        store.close()
    except BaseException:
        (folder / "error.txt").write_text(traceback.format_exc())
        os._exit(3)
    os._exit(0)


def steps_done(folder: Path) -> int:
    """Return how many things were acknowledged."""
    return int((folder / "done").read_text()) if (folder / "done").exists() else 0


def problems_of(folder: Path, script: Script) -> list[str]:
    """Return what is wrong with a store whose job was killed, once it is opened again.

    Each log is as it was behind the last thing that was acknowledged, or the thing that the job was killed in is done
    to it.
    """
    store = RunningStore(folder / "store")
    store.open()
    store.close()
    done = steps_done(folder)
    before, after = script.states[done], script.states[min(done + 1, len(script.operations))]
    found, wrong = Model(), list[str]()
    for log in LOGS:
        tried = {each.logs[log]: list(each.problems_of(store.root, log)) for each in (before, after)}
        found.logs[log] = min(tried, key=lambda each: len(tried[each]))
        if tried[found.logs[log]]:
            wrong += [f"in {script.operations[done : done + 1]}"[:120], *itertools.chain.from_iterable(tried.values())]
    return wrong or found.problems(store.root)


def any_kinds(choose: random.Random, count: int) -> list[str]:
    """Return so many kinds of things to do; the first ones append."""
    return ["append", "append", *(choose.choice(_KINDS) for _ in range(count - 2))]


def _choose(choose: random.Random, number: int, kind: str, model: Model) -> Operation:
    """Return the next thing to do; everything it takes is fixed here, so that it can be done twice."""
    log = choose.randrange(2)
    known = model.logs[LOGS[log]]
    now_ms = NOW_MS + number * 1000
    if kind == "append":
        records = tuple(
            (choose.randrange(len(LOGS)), now_ms - choose.randrange(RETENTION_MS), choose.randint(5, 90))
            for _ in range(choose.randint(20, 60))
        )
        return Operation(kind=kind, number=number, records=records)
    if kind == "expire":
        return Operation(kind="retain", now_ms=now_ms + 3 * RETENTION_MS)
    beside_sink = kind in ("retain", "delete-records") and choose.random() < 0.5
    offsets = {
        "truncate": max(known.end - choose.randint(1, 30), 0),
        "empty": max(known.end + choose.randint(-20, 20), 0),
        "delete-records": choose.randint(known.start, known.end),
    }
    log_dir = choose.choice(("logs", "more", "other"))
    log = len(LOGS) - 1 if kind == "delete-topic" else log
    offset = offsets.get(kind, 0)
    return Operation(kind=kind, log=log, offset=offset, log_dir=log_dir, now_ms=now_ms, beside_sink=beside_sink)
