"""The processes of a session: of a job that was started in one of its own, whatever groups they are in."""

import contextlib
import os
import signal
from pathlib import Path
from typing import NamedTuple

__all__ = ["SessionProcess", "kill_session", "processes_of"]


class SessionProcess(NamedTuple):
    """A process.

    Attributes:
        command: its command line.
    """

    pid: int
    parent: int
    command: str

    @property
    def is_jvm(self) -> bool:
        """Whether it is Spark's."""
        return self.command.partition(" ")[0].endswith("java")

    def is_worker(self, of: dict[int, "SessionProcess"]) -> bool:
        """Whether it is a Python worker with a task, or waiting for one: a fork of a daemon that lives, or has died.

        The daemon itself is the JVM's child.
        """
        parent = of.get(self.parent)
        return "worker_daemon" in self.command and (parent is None or not parent.is_jvm)


def processes_of(session: int) -> dict[int, SessionProcess]:
    """Return the processes of a session that have not ended, by pid."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state, parent, _, its_session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(its_session) == session and state not in "ZX":
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                found[int(folder.name)] = SessionProcess(int(folder.name), int(parent), command)
    return found


def kill_session(session: int) -> None:
    """Kill all of them, and those that they start meanwhile."""
    while found := processes_of(session):
        for pid in sorted(found):  # the driver first, who would tell of the others
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
