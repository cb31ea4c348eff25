"""Removals and renames by path, safe against fencing: an owner may lose its files at any moment.

A check of the ownership followed by `unlink(path)` is a race: a process that is suspended in between (SIGSTOP, a paused
virtual machine, a slow disk) wakes up later, and removes a file of its successor that has the same name and committed
records. So each removal and rename here runs inside `Owner.holding()`: the check happens under a lock that a successor
has to wait for. It is held briefly: content is written and synced before, and a tree is first renamed to a unique name
and removed afterwards.

A file with a unique name needs no owner: no successor can have a file of that name.
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
"""Matches names without committed records: with an owner's token, a UUID, or a suffix of a temporary file."""


class Owner(Protocol):
    """The right to change some files, until another owner takes them over."""

    def check(self) -> None:
        """Raise `WriterFencedError` if another one owns the files; use `holding` for a removal or rename by path."""

    def holding(self) -> AbstractContextManager[None]:
        """Check, and block a takeover until the context ends; it must end soon.

        Raises:
            WriterFencedError: another one owns the files.
        """


class _Unshared:
    """An owner that can't lose its files: a broker's folder under the broker's lock, a new folder."""

    def check(self) -> None:
        """Do nothing."""

    def holding(self) -> AbstractContextManager[None]:
        """Return an empty context."""
        return nullcontext()


UNSHARED: Final[Owner] = _Unshared()


def remove_file(owner: Owner, path: Path) -> None:
    """Remove a file if it exists."""
    with _held(owner):
        path.unlink(missing_ok=True)


def remove_empty_folder(owner: Owner, path: Path) -> None:
    """Remove a folder if it exists and is empty."""
    with _held(owner), contextlib.suppress(OSError):
        path.rmdir()


def remove_tree(owner: Owner, path: Path) -> None:
    """Remove a folder, if it exists, with its content, and the rest of an earlier call that crashed.

    The lock is held only for a rename; the renamed tree needs none.
    """
    with contextlib.suppress(FileNotFoundError):
        rename(owner, path, path.with_name(f"{path.name}.{uuid.uuid4().hex}{_SET_ASIDE}"))
    for each in path.parent.glob(f"{glob.escape(path.name)}.*{_SET_ASIDE}"):
        remove_unique(each)


def remove_unique(path: Path) -> None:
    """Remove a file, or a folder with its content, if it exists, whose name no successor can use.

    Raises:
        ValueError: a successor may use the name.
    """
    if not _UNIQUE.search(path.name):
        raise ValueError(f"a successor may have a file of that name: {path}")
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, onerror=_raise_unless_gone)
    else:
        path.unlink(missing_ok=True)


def rename(owner: Owner, source: Path, target: Path) -> None:
    """Rename a file or folder; a file of the new name is replaced."""
    with _held(owner):
        source.replace(target)


def make_file(owner: Owner, path: Path) -> int:
    """Make a new file instead of an existing one, and return its descriptor.

    A truncation could hit a file that a successor has renamed meanwhile.
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
    """Run a library's change of file names while the owner is held; it must be short."""
    with _held(owner):
        change()


def _raise_unless_gone(_function: object, _path: str, raised: tuple[object, BaseException, object]) -> None:
    """Ignore files that another process has removed."""
    if not isinstance(raised[1], FileNotFoundError):
        raise raised[1]


@contextlib.contextmanager
def _held(owner: Owner) -> Iterator[None]:
    with owner.holding():
        reach("names.held")
        yield
