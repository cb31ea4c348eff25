"""Where time comes from: a wall clock for timestamps, a monotonic one for durations.

The wall clock can be set, also back. So it tells when something happened, for records, files and other processes. How
long something took, or has to wait inside one process, is measured by the monotonic one. Waiting is here, too: no other
module sleeps by itself.
"""

import time
from collections.abc import Callable
from typing import Protocol

__all__ = ["Clock", "SystemClock", "sleep", "wait_until"]


class Clock(Protocol):
    """Tells the time in ms."""

    def now_ms(self) -> int:
        """Return the current time in ms since the epoch."""
        ...

    def monotonic_ms(self) -> int:
        """Return ms since some moment, the same for the whole life of a process; never goes back."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Return the current time in ms since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return ms since the machine was started; time that it was suspended counts."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def sleep(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)


def wait_until(holds: Callable[[], bool], at_most_s: float, every_s: float) -> bool:
    """Ask at once and then every so often, until it holds or the time is over; return whether it held."""
    deadline = time.monotonic() + at_most_s
    while not holds():
        if time.monotonic() >= deadline:
            return False
        time.sleep(every_s)
    return True
