"""Starts the job, lets it die, starts it again."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from tests.kill.job import run_direct
from tests.kill.session_processes import kill_session

_ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 180.0


def fork_server() -> ForkServerContext:
    """Return a context whose processes start with everything imported and nothing used.

    A process imports its parent's main module, which is pytest; pyarrow imports pandas where it makes its first array.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "pandas", "tests.kill.job"])
    return context


def start_direct(
    context: ForkServerContext, folder: Path, *, take_lock_by_force: bool = False, **environment: str
) -> ForkServerProcess:
    """Start the job without Spark."""
    process = context.Process(target=run_direct, args=(folder, environment, take_lock_by_force))
    process.start()
    return process


def finish_direct(
    context: ForkServerContext, folder: Path, *, take_lock_by_force: bool = False, **environment: str
) -> int:
    """Run the job without Spark until it ends; return its exit code, negative for a signal."""
    return exit_code(start_direct(context, folder, take_lock_by_force=take_lock_by_force, **environment))


def exit_code(process: ForkServerProcess) -> int:
    """Wait for a process and return its exit code; one that does not end is killed and an error."""
    process.join(_TIMEOUT_S)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise TimeoutError("the job did not end")
    code = process.exitcode
    process.close()
    return code


def wait_until_stopped(process: ForkServerProcess) -> None:
    """Return once the process has stopped itself."""
    _wait_until_stopped(process.pid or 0)


def _wait_until_stopped(pid: int) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while (state := _state(pid)) != "T":
        if state in "ZX" or time.monotonic() > deadline:
            raise TimeoutError("the job did not stop where it should have")
        time.sleep(0.01)


def wake(process: ForkServerProcess) -> None:
    """Let a stopped process go on."""
    os.kill(process.pid or 0, signal.SIGCONT)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "X"


class SparkJob:
    """The job as a Spark stream, in a session of its own: whatever it starts dies with it.

    Args:
        folder: of the job.
        arguments: of the job behind its folder.
        module: the job.
        environment: more variables.
    """

    def __init__(self, folder: Path, *arguments: str, module: str = "tests.kill.job", **environment: str) -> None:
        self._folder = folder
        self._ready = folder / "ready"
        self._ready.unlink(missing_ok=True)
        (folder / "error.txt").unlink(missing_ok=True)
        self._log = (folder / "job.log").open("ab")
        self._begins_at = self._log.tell()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, str(folder), *arguments],
            cwd=_ROOT,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, **environment},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Of the driver, and of the session that all it starts is in."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the driver has ended."""
        return self._process.poll() is not None

    @property
    def told(self) -> str:
        """What the driver left of its failure, or the end of what it said."""
        error = self._folder / "error.txt"
        said = (self._folder / "job.log").read_bytes()[self._begins_at :].decode(errors="replace")
        return error.read_text() if error.exists() else said[-3000:]

    def finish(self) -> int:
        """Wait for the driver to end, kill what it leaves behind, and return its exit code."""
        try:
            return self._process.wait(_TIMEOUT_S)
        finally:
            self._clean_up()

    def wait_until_stopped(self) -> None:
        """Return once the driver has stopped itself; JVM and workers stay as they are."""
        _wait_until_stopped(self._process.pid)

    def wake(self) -> None:
        """Let the stopped driver go on."""
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> int:
        """Kill driver, JVM and workers at once, also stopped ones; return the driver's exit code."""
        self._clean_up()
        return self._process.wait()

    def kill_after(self, seconds: float) -> int:
        """Kill driver, JVM and workers so many seconds after Spark is up, unless the job ends before."""
        deadline = time.monotonic() + _TIMEOUT_S
        while not self._ready.exists() and self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self._clean_up()
        return self._process.wait()

    def _clean_up(self) -> None:
        kill_session(self._process.pid)
        self._process.wait()
        self._log.close()
