"""Where time comes from: a wall clock for timestamps, a monotonic one for durations.

The wall clock can be set, also back. So it tells when something happened, for records, files and other processes. How
long something took, or has to wait inside one process, is measured by the monotonic one.
"""

import time
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock"]


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


class ManualClock:
    """A clock that moves only when told."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 1_000

    def now_ms(self) -> int:
        """Return the time set last."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """Return how far it was moved on, from 1,000."""
        return self._monotonic_ms

    def advance(self, by_ms: int) -> None:
        """Move on by so many ms."""
        self._now_ms += by_ms
        self._monotonic_ms += by_ms

    def set_wall(self, by_ms: int) -> None:
        """Set the wall clock forward, or back if negative, as an administrator does; no time passes."""
        self._now_ms += by_ms
