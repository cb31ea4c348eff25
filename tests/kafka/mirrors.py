"""The verb `mirror` in a process of its own, to its end or until it is killed."""

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.kill.session_processes import kill_session

__all__ = ["MirrorRun", "mirror_until_now"]

_ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 300


class MirrorRun:
    """A running mirror, in a session of its own.

    Args:
        folder: for its output.
        options: further ones of the verb.
        environment: more variables.
    """

    def __init__(
        self, folder: Path, bootstrap: str, store: Path, topics: str, *options: str, **environment: str
    ) -> None:
        self._output = folder / "mirror.txt"
        settings = ("spark.master=local[2]", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        arguments = ["--bootstrap-server", bootstrap, "--topics", topics, str(store), *options]
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sparklog", "mirror", *arguments, *(f"--conf={each}" for each in settings)],
                cwd=_ROOT,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        """What it has printed."""
        return self._output.read_text(errors="replace")

    def await_text(self, text: str) -> None:
        """Return once it has printed a text."""
        deadline = time.monotonic() + _TIMEOUT_S
        while text not in self.output:
            assert self._process.poll() is None, self.output[-4000:]
            assert time.monotonic() < deadline, self.output[-4000:]
            time.sleep(0.1)

    def finish(self) -> int:
        """Wait for its end, and return its exit code."""
        try:
            return self._process.wait(_TIMEOUT_S)
        finally:
            self.kill()

    def stop(self) -> int:
        """Ask it to stop, and return its exit code."""
        self._process.terminate()
        return self.finish()

    def kill(self) -> None:
        """End it with all that it has started, if it still runs."""
        kill_session(self._process.pid)
        self._process.wait()


def mirror_until_now(folder: Path, bootstrap: str, store: Path, topics: str, *options: str) -> str:
    """Mirror all that the source has now; return what the verb printed."""
    run = MirrorRun(folder, bootstrap, store, topics, "--until", "now", *options)
    assert run.finish() == 0, run.output[-4000:]
    return run.output
