"""A clock that goes with the maintenance job to its tasks, and arms the process it is read in: it dies at a step.

A test writes `<folder>/arm-driver` or `<folder>/arm-worker`; the first such process that looks at the clock takes it
over, leaves `<folder>/armed-<pid>`, and is killed when it comes to the step that the file names.
"""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from sparklog.storage_core.clock import SystemClock

__all__ = ["ArmedClock"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmedClock:
    """The machine's clock, ahead of it by a while.

    Attributes:
        folder: of the job.
        driver: pid of the job's driver.
        ahead_ms: of the machine's clock.
    """

    folder: str
    driver: int
    ahead_ms: int

    def now_ms(self) -> int:
        """Return the current time in ms since the epoch, and be armed if somebody is to be."""
        role = "driver" if os.getpid() == self.driver else "worker"
        armed = Path(self.folder, f"armed-{os.getpid()}")
        with contextlib.suppress(FileNotFoundError):
            Path(self.folder, f"arm-{role}").rename(armed)
            for line in armed.read_text().splitlines():
                name, _, value = line.partition("=")
                os.environ[name] = value
        return SystemClock().now_ms() + self.ahead_ms

    def monotonic_ms(self) -> int:
        """Return ms since the machine was started."""
        return SystemClock().monotonic_ms()
