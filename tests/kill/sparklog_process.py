"""The command `sparklog` in a session of its own, whose processes can be killed or stopped one by one."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.kill.session_processes import SessionProcess, kill_session, processes_of

__all__ = ["SparklogProcess"]

_PATIENCE_S = 240.0


class SparklogProcess:
    """One run of the command, with a file of what it says.

    Args:
        log: the file; a run that says more goes on in it.
        arguments: of the command.
    """

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log
        self._begins_at = log.stat().st_size if log.exists() else 0
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [str(Path(sys.executable).with_name("sparklog")), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def has_ended(self) -> bool:
        """Whether the driver has ended."""
        return self._process.poll() is not None

    @property
    def said(self) -> str:
        """What this run said so far."""
        return self._log.read_bytes()[self._begins_at :].decode(errors="replace")

    def signal(self, role: str, number: int, choose: Callable[[list[int]], int]) -> bool:
        """Send a signal to one process of a role, or to all; return whether there was any.

        Args:
            role: `driver`, `jvm`, `daemon`, `worker`, or `all`.
            number: of the signal.
            choose: one of several.
        """
        deadline = time.monotonic() + 10
        while not (found := self._pids(role)) and time.monotonic() < deadline and not self.has_ended:
            time.sleep(0.02)
        sent = 0
        for pid in found if role == "all" or not found else [choose(found)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
                sent += 1
        return sent > 0

    def wait(self) -> int:
        """Wait for the driver to end, kill what it leaves, and return its exit code."""
        try:
            return self._process.wait(_PATIENCE_S)
        finally:
            self.kill()

    def stop(self) -> int:
        """Ask the driver to end, and wait for it."""
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """Kill all of its processes."""
        kill_session(self._process.pid)
        self._process.wait()

    def _pids(self, role: str) -> list[int]:
        others = processes_of(self._process.pid)
        is_wanted: dict[str, Callable[[SessionProcess], bool]] = {
            "driver": lambda each: each.pid == self._process.pid,
            "jvm": lambda each: each.is_jvm,
            "daemon": lambda each: "worker_daemon" in each.command and not each.is_worker(others),
            "worker": lambda each: each.is_worker(others),
            "all": lambda _each: True,
        }
        return sorted(pid for pid, each in others.items() if is_wanted[role](each))
