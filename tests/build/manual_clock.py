"""A clock that tests move by hand."""


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
