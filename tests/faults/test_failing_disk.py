"""A disk that fails at one call: the work fails as a whole, and nothing is lost or there twice once it works again."""

import errno
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparklog.storage_core.errors import CommitStateUnknownError, StorageError
from tests.faults.cleaning import Clean
from tests.faults.fault_plan import Fault, FaultPlan
from tests.faults.operations import OPERATIONS, operation_work
from tests.faults.system_calls import KINDS, watched
from tests.faults.works import AfterCrash, Append, Close, NewStore, Repair, Work

_WORKS: dict[type[Work], tuple[str, ...]] = {
    Append: ("open", "create", "write", "copy", "fsync", "rename", "unlink", "rmdir", "mkdir", "ledger"),
    Close: ("open", "create", "write", "fsync", "rename"),
    NewStore: ("open", "create", "write", "fsync", "rename", "mkdir", "ledger"),
    AfterCrash: ("open", "create", "write", "fsync", "rename", "unlink", "truncate"),
    Repair: ("open", "create", "write", "copy", "fsync", "rename", "unlink", "mkdir", "truncate", "ledger"),
    Clean: ("open", "create", "write", "fsync", "rename", "unlink"),
}
_OFTEN = ("write", "copy", "fsync", "rename")
_CHANGING = [kind for kind in KINDS if kind != "open"]
_LONG = bool(os.environ.get("SPARKLOG_SOAK"))
"""Whether every call is refused in every way; otherwise every second of `_OFTEN` in one way, every sixth of others."""


def _run(work: Work, plan: FaultPlan) -> tuple[int, Exception | None]:
    """Do the steps of a work on a disk with a fault; return how many ended well, and what was refused."""
    steps = work.steps()
    with watched(work.folder / "store", plan):
        for done, step in enumerate(steps):
            try:
                step()
            except Exception as error:
                return done, error
    return len(steps), None


def _faults(calls: Counter[str], kind: str) -> Iterator[Fault]:
    """Yield the ways in which the calls of a kind may go wrong."""
    ways = [Fault(kind, 1), Fault(kind, 1, lasts=True)]
    if kind in ("write", "copy"):
        ways.append(Fault(kind, 1, errno.ENOSPC, is_short=True))
    if kind == "ledger":
        ways = [Fault(kind, 1), Fault(kind, 1, is_made=True)]
        yield from (replace(way, number=number) for way in ways for number in range(1, calls[kind] + 1))
        return
    for number in range(1, calls[kind] + 1):
        if _LONG:
            yield from (replace(way, number=number) for way in ways)
        elif number % (step := 2 if kind in _OFTEN else 6) == 1:
            yield replace(ways[number // step % len(ways)], number=number)


def _wrong_after(work: Work, fault: Fault) -> Iterator[str]:
    plan = FaultPlan(fault)
    work.arrange()
    done, refusal = _run(work, plan)
    if not plan.failed:
        yield "the call was not made"
    if refusal is not None:
        if not isinstance(refusal, StorageError | CommitStateUnknownError) or str(work.folder) not in str(refusal):
            yield repr(refusal)
        if isinstance(refusal, StorageError):
            yield from work.problems_of_refused(done)
    yield from work.finish()


class _Copies:
    """Prepares a work once, and gives copies of it."""

    def __init__(self, work: type[Work], prepared: Path, place: Path) -> None:
        self._work, self._prepared, self._place = work, prepared, place
        work.prepare(prepared)

    def take(self) -> Work:
        """Return the work in a folder as it was prepared; the one before is gone."""
        shutil.rmtree(self._place, ignore_errors=True)
        return self._work(Path(shutil.copytree(self._prepared, self._place)))

    def count(self) -> Counter[str]:
        """Return how many calls of each kind it makes undisturbed."""
        plan, work = FaultPlan(), self.take()
        work.arrange()
        assert _run(work, plan)[1] is None
        assert work.finish() == []
        return plan.counts


@pytest.mark.parametrize(
    ("kind", "work"),
    [pytest.param(kind, work, id=f"{work.__name__}-{kind}") for work in _WORKS for kind in _WORKS[work]],
)
def test_work_when_a_call_fails_then_fails_as_a_whole_and_goes_on_later(
    tmp_path: Path, memory_path: Path, kind: str, work: type[Work]
) -> None:
    """Whichever call the disk refuses, nothing half done is visible, and nothing is lost or there twice afterwards."""
    copies = _Copies(work, tmp_path, memory_path / "copy")
    calls = copies.count()

    wrong = {str(fault): found for fault in _faults(calls, kind) if (found := list(_wrong_after(copies.take(), fault)))}

    assert calls[kind]
    assert wrong == {}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_when_a_call_fails_then_can_be_done_again(tmp_path: Path, memory_path: Path, name: str) -> None:
    """Maintenance that a disk refuses leaves each log as it was, or as it was to be, and the next time it ends well."""
    copies = _Copies(operation_work(name), tmp_path, memory_path / "copy")
    calls = copies.count()
    faults = [fault for kind in _CHANGING for fault in _faults(calls, kind)]
    if not _LONG:
        faults = random.Random(name).sample(faults, 5)

    wrong = {str(fault): found for fault in faults if (found := list(_wrong_after(copies.take(), fault)))}

    assert wrong == {}
