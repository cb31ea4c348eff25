"""The maintenance job in a loop, killed as a whole or in part, and started again where it does not go on by itself."""

import contextlib
import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.kill.harness import SparkJob
from tests.kill.session_processes import SessionProcess, processes_of

__all__ = ["KILLS", "KilledMaintenance"]

_PATIENCE_S: Final = 240.0
_STEP_S: Final = 20.0
"""How long a process may take to come to a step; then the whole job is killed."""

_TASK_STEPS: Final = ("clean.cleaned", "clean.swap", "clean.deleted", "clean.renamed", "clean.checkpoint")
_DRIVER_STEPS: Final = (
    "retain.committed",
    "retain.renamed",
    "retain.deleted",
    "clean.announced",
    "checkpoint.written",
    "checkpoint.replaced",
    "commit.written",
)
KILLS: Final = ("all", "driver", "jvm", "worker", "driver at a step", "worker at a step", "worker and driver at a step")
"""Which processes of the job are killed at once."""


class KilledMaintenance:
    """The job of `tests.kill.maintenance_job` over one store after the other.

    Args:
        folder: of the job.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._jobs: list[SparkJob] = []

    def maintain(self, store: Path) -> None:
        """Let the job maintain a store from now on; it is started if it does not run."""
        self._order(store=str(store), ahead_ms=0, once=False)

    def maintain_once_more(self, store: Path, ahead_ms: int) -> None:
        """Let the job end what it does, maintain a store well once more, and rest.

        Args:
            store: to maintain.
            ahead_ms: how far the job's clock is ahead of the machine's.
        """
        self._order(store=str(store), ahead_ms=ahead_ms, once=True)
        self._wait(lambda: not (self._folder / "order.json").exists(), "the run does not end well")

    def runs(self, store: Path | None = None) -> list[dict[str, Any]]:
        """Return what was told of the runs of a store, or of all."""
        path = self._folder / "runs.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        return [told for told in map(json.loads, lines) if store is None or told["store"] == str(store)]

    def wait_for_runs(self, store: Path, count: int) -> None:
        """Return once so many more runs of a store have ended well."""
        wanted = count + len(self._good_runs(store))
        self._wait(lambda: len(self._good_runs(store)) >= wanted, "runs do not end well")

    def kill(self, which: str, choose: random.Random) -> str:
        """Kill some of the job's processes; return which, and where they were.

        Args:
            which: one of `KILLS`.
            choose: the step.
        """
        runs = len(self._good_runs())
        if which == "all":
            done = self._kill_all("all")
        elif which.endswith("at a step"):
            done = self._kill_at_step(which, choose)
        else:
            done = self._kill_one(which, choose)
        if "driver" in done:  # gone from the list of processes, its threads may still be on their way
            self._until(lambda: self._job.has_ended, f"the driver lives: {done}")
        elif not done.startswith("worker"):  # without its JVM the driver ends, or takes a new one
            self._until(lambda: self._job.has_ended or len(self._good_runs()) > runs, f"what is left hangs: {done}")
        return done

    def close(self) -> None:
        """End what is left of the job, and of those before it."""
        for job in self._jobs:
            job.kill()

    @property
    def _job(self) -> SparkJob:
        return self._jobs[-1]

    def _order(self, **order: object) -> None:
        path = self._folder / "order.tmp"
        path.write_text(json.dumps(order))
        path.rename(self._folder / "order.json")
        if not self._jobs or self._jobs[-1].has_ended:
            self._jobs.append(SparkJob(self._folder, module="tests.kill.maintenance_job"))

    def _kill_all(self, words: str) -> str:
        self._job.kill()
        return words

    def _kill_one(self, which: str, choose: random.Random) -> str:
        while pids := self._wait_for_pids(which):
            with contextlib.suppress(ProcessLookupError):  # a worker may have ended by itself
                os.kill(choose.choice(pids), signal.SIGKILL)
                return which
        return self._kill_all(f"all: no {which}")

    def _wait_for_pids(self, which: str) -> list[int]:
        is_wanted: Callable[[SessionProcess, dict[int, SessionProcess]], bool] = {
            "driver": lambda each, _: each.pid == self._job.pid,
            "jvm": lambda each, _: each.is_jvm,
            "worker": lambda each, others: each.is_worker(others),
        }[which]
        deadline = time.monotonic() + _STEP_S
        while True:
            processes = processes_of(self._job.pid)
            found = sorted(pid for pid, each in processes.items() if is_wanted(each, processes))
            if found or time.monotonic() > deadline:
                return found
            time.sleep(0.02)

    def _kill_at_step(self, which: str, choose: random.Random) -> str:
        """Arm a process, and wait until it has come to its step."""
        is_worker = which.startswith("worker")
        step = f"{choose.choice(_TASK_STEPS if is_worker else _DRIVER_STEPS)}:{choose.randint(1, 2)}"
        environment = [f"SPARKLOG_FAULT_POINT={step}"]
        environment += [f"SPARKLOG_FAULT_PID={self._job.pid}"] if "and driver" in which else []
        arms = self._folder / ("arm-worker" if is_worker else "arm-driver")
        arms.with_suffix(".tmp").write_text("\n".join(environment))
        arms.with_suffix(".tmp").rename(arms)
        deadline = time.monotonic() + _STEP_S
        while time.monotonic() < deadline:
            armed = [int(path.name.removeprefix("armed-")) for path in self._folder.glob("armed-*")]
            if any(pid not in processes_of(self._job.pid) for pid in armed):
                break
            time.sleep(0.02)
        else:
            self._job.kill()
        was_reached = not arms.exists() and time.monotonic() < deadline
        arms.unlink(missing_ok=True)
        for path in self._folder.glob("armed-*"):
            path.unlink()
        return f"{which} {step}" if was_reached else f"all: not at {step}"

    def _good_runs(self, store: Path | None = None) -> list[dict[str, Any]]:
        return [told for told in self.runs(store) if told["run_id"] is not None]

    def _wait(self, is_done: Callable[[], bool], words: str) -> None:
        self._until(lambda: is_done() or self._job.has_ended, words)
        if not is_done():
            raise AssertionError(f"the maintenance job has ended: {self._job.told}")

    def _until(self, is_done: Callable[[], bool], words: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not is_done():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{words}: {self._job.told}")
            time.sleep(0.02)
