"""Removals and renames by path, for owners that may lose what they own at any moment.

A check of the ownership followed by `unlink(path)` is a race: a process that is suspended in between (SIGSTOP, a paused
virtual machine, a slow disk) wakes up later, and then removes the file of that name which its successor has committed
records to. So each removal and rename here happens inside `Owner.holding()`: the owner is checked while it holds a lock
that a successor has to wait for. Nothing slow happens meanwhile: content is written and synced before, and a tree gets
a unique name first and is removed afterwards.

What has a unique name needs no owner: no successor can have a file of that name.
"""

import contextlib
import glob
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final, Protocol

from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.storage.local import sync_directory, write_all
from sparklog.storage_core.storage.open_regular import open_to_change

__all__ = [
    "UNSHARED",
    "Owner",
    "change_names",
    "make_file",
    "remove_empty_folder",
    "remove_file",
    "remove_tree",
    "remove_unique",
    "rename",
    "replace_file",
]

_SET_ASIDE: Final = "-delete"
_UNIQUE: Final = re.compile(r"(^|\.)[0-9a-f]{8}(\.|$)|[.-][0-9a-f]{32}(\.|$)|-delete$|\.deleted$|\.cleaned$")
"""What is in a name that no writer commits to: an owner's token, a UUID, or that its file comes or goes."""


class Owner(Protocol):
    """Who may change some files, until another one takes them over."""

    def check(self) -> None:
        """Raise `WriterFencedError` once another one owns the files.

        It says nothing of the next moment: before a removal or a rename by path `holding` is needed.
        """

    def holding(self) -> AbstractContextManager[None]:
        """Check, and let no other owner take the files over before the context ends; it must end soon.

        Raises:
            WriterFencedError: another one owns the files.
        """


class _Unshared:
    """An owner whose files no other one can take: a broker's folder under the broker's lock, a new folder."""

    def check(self) -> None:
        """Return: no other one owns them."""

    def holding(self) -> AbstractContextManager[None]:
        """Hold nothing."""
        return nullcontext()


UNSHARED: Final[Owner] = _Unshared()


def remove_file(owner: Owner, path: Path) -> None:
    """Remove a file that may be gone already."""
    with _held(owner):
        path.unlink(missing_ok=True)


def remove_empty_folder(owner: Owner, path: Path) -> None:
    """Remove a folder, unless there is anything in it, or it is gone."""
    with _held(owner), contextlib.suppress(OSError):
        path.rmdir()


def remove_tree(owner: Owner, path: Path) -> None:
    """Remove a folder with everything in it, and what an earlier call left that was killed; it may be gone already.

    Under a unique name it is removed without the lock, which is held for a rename only.
    """
    with contextlib.suppress(FileNotFoundError):
        rename(owner, path, path.with_name(f"{path.name}.{uuid.uuid4().hex}{_SET_ASIDE}"))
    for each in path.parent.glob(f"{glob.escape(path.name)}.*{_SET_ASIDE}"):
        remove_unique(each)


def remove_unique(path: Path) -> None:
    """Remove a file, or a folder with everything in it, whose name no successor can use; it may be gone already.

    Raises:
        ValueError: its name does not say so.
    """
    if not _UNIQUE.search(path.name):
        raise ValueError(f"a successor may have a file of that name: {path}")
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, onerror=_raise_unless_gone)
    else:
        path.unlink(missing_ok=True)


def rename(owner: Owner, source: Path, target: Path) -> None:
    """Give a file or folder another name; a file that has that name is replaced."""
    with _held(owner):
        source.replace(target)


def make_file(owner: Owner, path: Path) -> int:
    """Make a new file in the place of one that may be there, and return its descriptor.

    Truncating the old one instead would write into a file that a successor may have renamed by then.
    """
    with _held(owner):
        path.unlink(missing_ok=True)
        return open_to_change(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)


def replace_file(owner: Owner, path: Path, data: bytes) -> None:
    """Put `data` under `path` atomically and durably, as Kafka replaces its checkpoint files."""
    temporary = path.with_name(path.name + ".tmp")
    descriptor = make_file(owner, temporary)
    try:
        write_all(descriptor, data, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    reach("checkpoint.written")
    rename(owner, temporary, path)
    reach("checkpoint.replaced")
    sync_directory(path.parent)


def change_names(owner: Owner, change: Callable[[], object]) -> None:
    """Let a library make, remove or replace files that only it knows; it must not take long."""
    with _held(owner):
        change()


def _raise_unless_gone(_function: object, _path: str, raised: tuple[object, BaseException, object]) -> None:
    """Go on where another process removes the same tree."""
    if not isinstance(raised[1], FileNotFoundError):
        raise raised[1]


@contextlib.contextmanager
def _held(owner: Owner) -> Iterator[None]:
    with owner.holding():
        reach("names.held")
        yield
