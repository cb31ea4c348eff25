"""Lock descriptors that are closed in every forked child.

An `flock` belongs to the open file, not to the process: a child that a program forks (`os.fork`, `multiprocessing`)
inherits it, and would hold the lock after its owner has died. Closing the child's copy does not unlock the owner's.
What executes another program loses it anyway (`O_CLOEXEC`).
"""

import os
import threading
import weakref
from collections.abc import Callable

__all__ = ["OwnDescriptor"]


class OwnDescriptor:
    """An open file of this process alone.

    Args:
        opened: opens it, and returns its descriptor.

    Raises:
        OSError: it can't be opened.
    """

    def __init__(self, opened: Callable[[], int]) -> None:
        with _NO_FORK:
            self._number: int | None = opened()
            _OPEN.add(self)

    @property
    def is_open(self) -> bool:
        """Whether this process opened it and has not closed it."""
        return self._number is not None

    def fileno(self) -> int:
        """Return the descriptor.

        Raises:
            ValueError: it is closed.
        """
        if self._number is None:
            raise ValueError("the descriptor is closed, or was opened by the process that forked this one")
        return self._number

    def close(self) -> None:
        """Close it; a second time does nothing."""
        with _NO_FORK:
            if self._number is not None:
                os.close(self._number)
                self._number = None
                _OPEN.discard(self)


_OPEN: weakref.WeakSet[OwnDescriptor] = weakref.WeakSet()
_NO_FORK = threading.RLock()
"""Held until an opened descriptor is listed: a child that another thread forks meanwhile would keep it."""


def _close_in_child() -> None:
    for each in list(_OPEN):
        each.close()
    _NO_FORK.release()


os.register_at_fork(before=_NO_FORK.acquire, after_in_parent=_NO_FORK.release, after_in_child=_close_in_child)
