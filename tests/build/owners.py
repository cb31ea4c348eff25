"""Owners of files whose check a test decides."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class CheckedBy:
    """An owner who finds out by a call whether the files are still his."""

    ask: Callable[[], None]

    def check(self) -> None:
        """Ask."""
        self.ask()

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Ask, and hold nothing."""
        self.ask()
        yield
