"""A writer that is stopped at any of its removals and renames by path: its successor waits, and nothing is lost.

The call sites are found in the source, not listed here. Each one is taken twice: its writer is woken, while its
successor tries again and again, or killed. One that no scenario comes to fails the test, unless it says here why.
"""

import ast
import contextlib
import inspect
import os
import shutil
import signal
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

import sparklog.sink.locks.takeover_lock
from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.errors import LogStorageError, StoreLockedError
from sparklog.storage_core.storage import owned_names
from tests.kill.fenced_job import ended, note_all, open_job, pause_in, problems
from tests.kill.fenced_scenarios import SCENARIOS, Scenario
from tests.kill.harness import exit_code, wait_until_stopped

pytestmark = pytest.mark.kill

_Work = Callable[[Path], None]

_ROOT = Path(__file__).resolve().parents[2]
_UNDER_MAINTENANCE = "only under maintenance.lock, which refuses a taking by force for as long as it is held"
_BROKERS = "only where a broker's directory is loaded or filled, under the broker's lock"
_THIRD_PROCESS = "only by a taker beside a live writer; then it is the taker of these tests that comes to it"
_COPY = "only in a new folder of this process alone, where it copies a log of a store of objects"
_NOT_REACHED = {
    ("sink/importing/import_logs.py", "remove_new_store"): _UNDER_MAINTENANCE,
    ("sink/locks/broker_lock.py", "_replaced"): _THIRD_PROCESS,
    ("sink/mount/into_broker.py", "_clear"): _BROKERS,
    ("sink/mount/into_broker.py", "_put_in"): _BROKERS,
    ("sink/mount/into_broker.py", "_merge"): _BROKERS,
    ("sink/objects/fetch_log.py", "fetch_log"): _COPY,
    ("sink/operations/repair_store.py", "write_roots"): _UNDER_MAINTENANCE,
    ("sink/operations/upgrade_store.py", "upgrade_store"): _UNDER_MAINTENANCE,
    ("sink/operations/upgrade_store.py", "_commit"): _UNDER_MAINTENANCE,
    ("sink/store/cleaner_checkpoint_files.py", "write_cleaner_checkpoints"): _UNDER_MAINTENANCE,
    ("storage_core/log/files/deleted_files.py", "mark_replaced"): _UNDER_MAINTENANCE,
    ("storage_core/log/load/finish_leftovers.py", "carry_out_leftovers"): _UNDER_MAINTENANCE,
    ("storage_core/log/load/finish_leftovers.py", "_remove"): _UNDER_MAINTENANCE,
    ("storage_core/log/load/changes.py", "write_epochs"): _BROKERS,
    ("storage_core/log/load/changes.py", "write_snapshots"): _BROKERS,
    ("storage_core/log/load/changes.py", "_unlink"): _BROKERS,
    ("storage_core/log/load/load_root.py", "_write_checkpoint"): _BROKERS,
    ("storage_core/log/load/recover_segment.py", "_replace_indexes"): _BROKERS,
    ("storage_core/log/load/recover_segment.py", "_write_unpublished"): _BROKERS,
    ("storage_core/log/load/split_segment.py", "split_segment"): _BROKERS,
    ("storage_core/log/load/split_segment.py", "_write"): _BROKERS,
}
"""File and function of calls that no writer comes to while its store can be taken, and why."""

_REFUSED = (
    r"stopped in the middle of removing or renaming a file: .*; end that process \(kill -9 {pid} on |another maint"
)


def _call_sites() -> dict[tuple[str, int], tuple[str, str]]:
    """Return where a writer calls a function that takes an owner: file and line, with file and function."""
    names = {
        name
        for name, function in inspect.getmembers(owned_names, inspect.isfunction)
        if name in owned_names.__all__ and "owner" in inspect.signature(function).parameters
    }
    found = {}
    for folder in ("sink", "storage_core/log"):
        for path in sorted((_ROOT / folder).rglob("*.py")):
            file, nodes = str(path.relative_to(_ROOT)), list(ast.walk(ast.parse(path.read_text())))
            if not any(isinstance(each, ast.ImportFrom) and each.module == owned_names.__name__ for each in nodes):
                continue
            for function in (each for each in nodes if isinstance(each, ast.FunctionDef)):
                for call in (each for each in ast.walk(function) if isinstance(each, ast.Call)):
                    if isinstance(call.func, ast.Name) and call.func.id in names:
                        found[file, call.lineno] = (file, function.name)
    return found


class _Case:
    """One scenario in one folder, whose store can be put back to how it was left."""

    def __init__(self, context: ForkServerContext, folder: Path, scenario: Scenario) -> None:
        self._context = context
        self.scenario = scenario
        self.store = folder / "store"
        self._kept = folder / "kept"
        for work, step in scenario.left_by:
            code = exit_code(self._start(_leave, work, step))
            assert code == (-signal.SIGKILL if step else 0), (work, step, self.error)
        if self.store.exists():
            shutil.copytree(self.store, self._kept)

    @property
    def error(self) -> str:
        """What the last process said."""
        file = self.store.parent / "error.txt"
        return file.read_text() if file.exists() else ""

    def points(self) -> list[str]:
        """Return where a writer that nobody stops comes to."""
        noted = self.store.parent / "noted"
        assert exit_code(self._start(_note, self.scenario.work, noted)) == 0, self.error
        return list(dict.fromkeys(noted.read_text().splitlines()))

    def problems_at(self, point: str, wakes: bool) -> list[str]:
        """Stop a writer at a point, let another one take the store and write all, and return what is wrong then."""
        shutil.rmtree(self.store, ignore_errors=True)
        if self._kept.exists():
            shutil.copytree(self._kept, self.store)
        first = self._start(_pause, self.scenario.work, point)
        try:
            wait_until_stopped(first)
            with pytest.raises(StoreLockedError, match=_REFUSED.format(pid=first.pid)):
                self._open()
            os.kill(first.pid or 0, signal.SIGCONT if wakes else signal.SIGKILL)
            second = self._take()
            self.scenario.write(second, diverts=self.scenario.diverts)
            first.join(60)
            second.close()
            told = problems(self.store, diverts=self.scenario.diverts) + self.scenario.problems(self.store)
            if first.exitcode not in ((0, 1) if wakes else (-signal.SIGKILL,)):
                told.append(f"exit code {first.exitcode}: {self.error}")
            return told
        except (AssertionError, LogStorageError, TimeoutError) as error:
            return [f"{type(error).__name__}: {error}"[:300]]
        finally:
            first.kill()

    def _take(self) -> StoreWriter:
        deadline = time.monotonic() + 120
        while True:
            with contextlib.suppress(StoreLockedError):
                return self._open()
            assert time.monotonic() < deadline, "the store can't be taken"
            time.sleep(0.01)

    def _open(self) -> StoreWriter:
        return open_job(self.store, by_force=True, **self.scenario.options)

    def _start(self, target: Callable[[Path, _Work, Any], None], work: _Work, what: str | Path) -> ForkServerProcess:
        process = self._context.Process(target=target, args=(self.store, work, what))
        process.start()
        return process


def _leave(store: Path, work: _Work, step: str) -> None:
    if step:
        os.environ["SPARKLOG_FAULT_POINT"] = step
    ended(store.parent, lambda: work(store))


def _note(store: Path, work: _Work, noted: Path) -> None:
    note_all(noted)
    ended(store.parent, lambda: work(store))


def _pause(store: Path, work: _Work, point: str) -> None:
    pause_in(point)
    ended(store.parent, lambda: work(store))


def test_writer_when_stopped_at_any_removal_or_rename_then_its_successor_waits_and_nothing_is_lost(
    context: ForkServerContext, memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every acknowledged record is there once, read by the record format alone; so is every diverted row."""
    monkeypatch.setattr(sparklog.sink.locks.takeover_lock, "_WAIT_S", 0.02)
    sites, taken, told = _call_sites(), set(), []
    for name, scenario in SCENARIOS.items():
        folder = memory_path / name.replace(" ", "-")
        folder.mkdir()
        case = _Case(context, folder, scenario)
        for point in (each for each in case.points() if each not in taken):
            taken.add(point)
            for wakes in (True, False):
                told += [f"{name}: {point} {wakes=}: {each}" for each in case.problems_at(point, wakes)]
    reached = {(file, int(line)) for file, line in (point.split(" ")[0].split(":") for point in taken)}
    left = {place for site, place in sites.items() if site not in reached}
    print(f"\n{len(sites)} call sites; {len(reached)} of them reached, at {len(taken)} steps, each taken twice")

    assert told == []
    assert left == set(_NOT_REACHED), "call sites that no scenario comes to, or that one does come to by now"
