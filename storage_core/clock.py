"""Source of time: a wall clock for timestamps, a monotonic one for durations; no other module sleeps.

The wall clock can be set, also back. So it only dates records, files and other processes' events; durations and waits
inside one process use the monotonic clock.
"""

import time
from collections.abc import Callable
from typing import Protocol

__all__ = ["Clock", "SystemClock", "sleep", "wait_until"]


class Clock(Protocol):
    """Time in ms."""

    def now_ms(self) -> int:
        """Return the current time in ms since the epoch."""
        ...

    def monotonic_ms(self) -> int:
        """Return ms since a moment that is fixed for the life of a process; never goes back."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Return the current time in ms since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return ms since the machine was started, suspended time included."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def sleep(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)


def wait_until(holds: Callable[[], bool], at_most_s: float, every_s: float) -> bool:
    """Poll until `holds` is true or the time is over; return whether it was true."""
    deadline = time.monotonic() + at_most_s
    while not holds():
        if time.monotonic() >= deadline:
            return False
        time.sleep(every_s)
    return True
