"""A mirror's loop without Spark, over a cluster that is a plain model: killed by its tests, started again, checked."""

import json
import os
import traceback
from collections.abc import Callable
from contextlib import closing
from multiprocessing.context import ForkServerContext
from pathlib import Path

from sparklog.pipeline.brokers.plan_ranges import Ranges
from sparklog.pipeline.checks.verify_logs import verify
from sparklog.pipeline.places.store_view import open_logs
from sparklog.sink.ledger.group_table import GroupTable
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.metrics import MicroBatchMetrics
from sparklog.sink.mount.plan_groups import GroupPlan, find_groups, plan_groups
from sparklog.sink.place.end_offsets import PlannedEnds
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.inspect.verify.findings import Finding
from sparklog.storage_core.kraft.group_offsets import GroupOffset
from tests.build.sink_store import read_store
from tests.kill.harness import exit_code
from tests.plain.model_source import ModelLog, ModelSource, ModelTarget, model_mirror

__all__ = ["finish_loop", "mirror_all", "problems_of_loop", "wrong_groups"]

_SOUND = ("known", "nothing", "gap")
_IDS = {"a": "AAAAAAAAAAAAAAAAAAAAAQ", "b": "AAAAAAAAAAAAAAAAAAAAAg"}
_ANSWERS = "answers.json"
"""How often the source was asked for groups, and which answer each micro-batch has; beside the store."""


class _Source(ModelSource):
    """A cluster whose groups go on between any two questions, also of two runs."""

    folder: Path

    def group_offsets(self) -> list[GroupOffset]:
        count, of_batches = _answers(self.folder)
        (self.folder / _ANSWERS).write_text(json.dumps([count + 1, of_batches]))
        return _groups(count + 1)


class _Target(ModelTarget):
    """A sink that notes which answer its micro-batch came with."""

    _source: _Source

    def write(
        self, ranges: Ranges, ends: PlannedEnds, query_id: str, batch_id: int, check_source: Callable[[], None]
    ) -> MicroBatchMetrics:
        folder = self._source.folder
        count, of_batches = _answers(folder)
        (folder / _ANSWERS).write_text(json.dumps([count, {**of_batches, str(batch_id): count}]))
        return super().write(ranges, ends, query_id, batch_id, check_source)


def _answers(folder: Path) -> tuple[int, dict[str, int]]:
    path = folder / _ANSWERS
    return tuple(json.loads(path.read_text())) if path.exists() else (0, {})


def _groups(answer: int) -> list[GroupOffset]:
    """Return an answer: no two have the same offsets."""
    return [
        GroupOffset(group="g", topic="a", partition=0, offset=answer, metadata=""),
        GroupOffset(group="g", topic="b", partition=0, offset=5 + answer % 5, metadata="m"),
    ]


def _source(folder: Path) -> _Source:
    """Logs with a gap at the end, with a start, and with one record."""
    logs = {
        ("a", 0): ModelLog([*range(0, 70), *range(90, 120)], end=150),
        ("a", 1): ModelLog(list(range(25, 90)), start=25, end=90),
        ("b", 0): ModelLog([7], start=5, end=9),
    }
    source = _Source(_IDS, logs)
    source.folder = folder
    return source


def mirror_all(store: Path) -> None:
    """Bring the store up to date, in several micro-batches."""
    with closing(model_mirror(store, _source(store.parent), target=_Target, until="now", max_offsets=80)) as mirror:
        while not mirror.is_done:
            mirror.advance()


def finish_loop(context: ForkServerContext, store: Path, **environment: str) -> int:
    """Run the job until it ends; return its exit code, negative for a signal; a refusal goes to `error.txt`."""
    process = context.Process(target=_run, args=(store, environment))
    process.start()
    return exit_code(process)


def problems_of_loop(store: Path) -> list[str]:
    """Return everything that is wrong with the store of a job that has ended well."""
    root, source = Store.find(store), _source(store.parent)
    problems = [f"left over: {path}" for path in (store / "staging").rglob("*") if path.is_file()]
    found = {log: [each.offset for each in records] for log, records in read_store(store).items()}
    for (topic, partition), log in source.logs.items():
        if found[f"{topic}-{partition}"] != log.offsets:
            problems.append(f"{topic}-{partition}: offsets are not the source's: {found}")
    for log_name, state in Ledger.open(root.ledger_path).states().items():
        held = source.logs[log_name.topic, log_name.partition]
        if (state.log_start_offset, state.log_end_offset, state.topic_id) != (held.start, held.end, _IDS[state.topic]):
            problems.append(f"{log_name}: not the source's: {state}")
    if plan := _groups_of(root)[0].refused:
        problems.append(f"groups: {plan}")
    problems += wrong_groups(store)
    findings: list[Finding] = []
    verify(open_logs(store), findings.append, deep=True)
    return problems + [str(each) for each in findings if each.kind not in _SOUND]


def wrong_groups(store: Path) -> list[str]:
    """Return the offsets of groups that a job's store has, if they are not those of its ledger's micro-batch."""
    if not any((store / "ledger" / "_delta_log").glob("*.json")) or not (store / "store.properties").exists():
        return []
    plan, newest = _groups_of(Store.find(store))
    found = [*plan.given, *(each.offset for each in plan.refused)]
    expected = [] if newest is None else _groups(_answers(store.parent)[1][str(newest)])
    return [] if sorted(found, key=str) == expected else [f"micro-batch {newest}: {plan}, not {expected}"]


def _groups_of(root: Store) -> tuple[GroupPlan, int | None]:
    """Return what groups would get, and the mirror's newest micro-batch."""
    ledger = Ledger.open(root.ledger_path)
    found = find_groups(GroupTable(root.root), ledger.transaction_version)
    return plan_groups(root, found, ledger.states()), ledger.transaction_version("mirror-model")


def _run(store: Path, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    try:
        mirror_all(store)
    except BaseException:
        (store.parent / "error.txt").write_text(traceback.format_exc())
        os._exit(3)
    os._exit(0)
