"""Where time comes from: a wall clock for timestamps, a monotonic one for durations.

The wall clock can be set, also back. So it tells when something happened, for records, files and other processes. How
long something took, or has to wait inside one process, is measured by the monotonic one.
"""

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


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
