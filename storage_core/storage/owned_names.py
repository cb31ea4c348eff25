"""Removals and renames by path, for owners that may lose what they own at any moment.

A check of the ownership followed by `unlink(path)` is a race: a process that is suspended in between (SIGSTOP, a paused
virtual machine, a slow disk) wakes up later, and then removes the file of that name which its successor has committed
records to. So each deed here stands between `Owner.holding()` and its end: the owner is checked while it holds a lock
that a successor needs before it may begin. Every removal and rename of a store's writer goes through this module, and
nothing slow happens while the lock is held: content is written and synced before, trees are removed after.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

__all__ = ["UNSHARED", "Owner"]


class Owner(Protocol):
    """Who may change some files, until somebody else takes them over."""

    def check(self) -> None:
        """Raise `WriterFencedError` once another one owns the files.

        It says nothing of the next moment: before a removal or a rename by path `holding` is needed.
        """

    def holding(self) -> AbstractContextManager[None]:
        """Check, and let nobody take the files over before the context ends; it must end soon.

        Raises:
            WriterFencedError: another one owns the files.
        """


class _Unshared:
    """An owner whom nobody can take the files from: a broker's folder under the broker's lock, a new folder."""

    def check(self) -> None:
        """Return: nobody else owns them."""

    def holding(self) -> AbstractContextManager[None]:
        """Hold nothing."""
        return nullcontext()


UNSHARED: Final[Owner] = _Unshared()
