"""A disk that fails at one call while a log moves or a topic goes: the log stays whole, the topic is there or gone."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparklog.pipeline.places.store_view import open_logs
from sparklog.storage_core.errors import CommitStateUnknownError, StorageError
from sparklog.storage_core.topic_partition import TopicPartition
from tests.faults.fault_plan import Fault, FaultPlan
from tests.faults.system_calls import watched
from tests.kill.directory_job import (
    open_and_close,
    problems_of_directories,
    read_values,
    run_deletion,
    run_move,
    write_store,
)

_KINDS = {
    run_move: ("open", "create", "write", "copy", "fsync", "rename", "unlink", "rmdir", "mkdir", "ledger"),
    run_deletion: ("open", "create", "write", "fsync", "rename", "unlink", "rmdir", "ledger"),
}
_LONG = bool(os.environ.get("SPARKLOG_SOAK"))
"""Whether every call is refused in every way; otherwise every second in one way, of those that open every sixth."""

_KEPT = list(range(10))
_ALL = sorted([*range(100), *_KEPT])

Work = Callable[[Path], None]


def run_watched(work: Work, store: Path, plan: FaultPlan) -> Exception | None:
    """Do the work with failing calls; return its error."""
    with watched(store, plan):
        try:
            work(store)
        except Exception as error:
            return error
    return None


def faults(count: int, kind: str) -> Iterator[Fault]:
    """Yield the ways in which the calls of a kind fail."""
    ways = [Fault(kind, 1), Fault(kind, 1, lasts=True)]
    if kind in ("write", "copy"):
        ways.append(Fault(kind, 1, errno.ENOSPC, is_short=True))
    for number in range(1, count + 1):
        if _LONG:
            yield from (replace(way, number=number) for way in ways)
        elif number % (step := 6 if kind == "open" else 2) == 1:
            yield replace(ways[number // step % len(ways)], number=number)


def _wrong_after(work: Work, store: Path, fault: Fault) -> Iterator[str]:
    refusal = run_watched(work, store, FaultPlan(fault))
    if refusal is not None and not isinstance(refusal, StorageError | CommitStateUnknownError):
        yield repr(refusal)
    allowed = [_ALL] if work is run_move else [_ALL, _KEPT]
    if (found := read_values(open_logs(store))) not in allowed:
        yield f"a reader finds {len(found)} records right after"
    open_and_close(store)
    if (found := read_values(open_logs(store))) not in allowed:
        yield f"a reader finds {len(found)} records"
    yield from problems_of_directories(store)
    if not _is_done(work, store):
        work(store)
        yield from problems_of_directories(store)


def _is_done(work: Work, store: Path) -> bool:
    directories = {each.log: each.directory.parent.name for each in open_logs(store).logs}
    return directories.get(TopicPartition("events", 0)) == ("moved" if work is run_move else None)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store."""
    store = tmp_path_factory.mktemp("written") / "store"
    write_store(store)
    return store


@pytest.mark.parametrize(
    ("work", "kind"),
    [pytest.param(work, kind, id=f"{work.__name__}-{kind}") for work in _KINDS for kind in _KINDS[work]],
)
def test_work_when_a_call_fails_then_the_next_opening_leaves_one_whole_log_or_none(
    written: Path, memory_path: Path, work: Work, kind: str
) -> None:
    """Whichever call the disk refuses: readers find all or, of a deleted topic, nothing; a second try gets there."""

    def copied(name: str) -> Path:
        shutil.rmtree(memory_path / name, ignore_errors=True)
        return Path(shutil.copytree(written, memory_path / name))

    calls = FaultPlan()
    assert run_watched(work, copied("counted"), calls) is None

    wrong = {
        str(fault): found
        for fault in faults(calls.counts[kind], kind)
        if (found := list(_wrong_after(work, copied("faulty"), fault)))
    }

    assert calls.counts[kind]
    assert wrong == {}
