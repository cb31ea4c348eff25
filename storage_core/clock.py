"""Where time comes from."""

import time
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock"]


class Clock(Protocol):
    """Tells the time in ms since the epoch."""

    def now_ms(self) -> int:
        """Return the current time in ms since the epoch."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Return the current time in ms since the epoch."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that moves only when told."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Return the time set last."""
        return self._now_ms

    def advance(self, by_ms: int) -> None:
        """Move on by so many ms."""
        self._now_ms += by_ms
