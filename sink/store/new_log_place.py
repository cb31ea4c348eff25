"""Where a log can get a new directory in a store: an existing log directory root or a new one, with room for it."""

import os
import shutil
import uuid
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sparklog.sink.config import log_dir_problem
from sparklog.sink.store.log_dirs import check_root
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import InvalidConfigError, StorageError
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.owned_names import remove_unique
from sparklog.storage_core.storage.share_file import share_only
from sparklog.storage_core.topic_partition import TopicPartition, set_aside_name

__all__ = ["can_share", "check_new_log", "check_rooms", "is_unmade", "known_log_dir"]

_LONGEST_NAME: Final = 255


def known_log_dir(store: Store, names: Iterable[str], target: str) -> str:
    """Return the ledger's name of a log directory, else the given one.

    Args:
        names: of the log directories in the ledger.
        target: relative to the store or absolute.

    Raises:
        InvalidConfigError: a new one overlaps the store's own folders or another log directory.
    """
    names = sorted(set(names))
    wanted = os.path.realpath(store.log_dir(target))
    known = next((name for name in names if os.path.realpath(store.log_dir(name)) == wanted), None)
    if known is not None:
        return known
    problem = log_dir_problem(store.root, target)
    if problem is not None:
        raise InvalidConfigError(problem)
    root = Path(wanted)
    for other in (*names, "quarantine"):
        path = Path(os.path.realpath(store.log_dir(other)))
        if root.is_relative_to(path) or path.is_relative_to(root):
            raise InvalidConfigError(f"one folder would lie in the other: log_dir={store.log_dir(target)} path={path}")
    return target


def check_new_log(store: Store, log: TopicPartition, name: str) -> None:
    """Refuse a log directory root that can't get a `-future` directory of a log, and then the log.

    Raises:
        InvalidConfigError: the message has the reason.
    """
    root = store.log_dir(name)
    if len(set_aside_name(log, "0" * 32, "future")) > _LONGEST_NAME:
        raise InvalidConfigError(f"the topic's name is too long to copy a log of it: topic={log.topic}")
    with storage_errors(root):
        if (root / log.directory_name).exists():
            raise InvalidConfigError(f"a directory of that name is there already: path={root / log.directory_name}")
        if is_unmade(root):
            return
        if not (root / "meta.properties").exists():
            raise InvalidConfigError(f"neither a log directory nor an empty folder: log_dir={root}")
    problem = check_root(store, name)
    if problem is not None:
        raise InvalidConfigError(f"the log can't get there: log_dir={root} reason={problem}")


def is_unmade(root: Path) -> bool:
    """Return whether a log directory root is still to be made: a missing or empty folder, also after a crash."""
    with storage_errors(root):
        return not root.exists() or (root.is_dir() and set(os.listdir(root)) <= {"meta.properties.tmp"})


def check_rooms(needed: Iterable[tuple[Path, int]]) -> None:
    """Refuse filesystems with less free space than what comes there needs.

    Args:
        needed: a folder, which may not exist yet, and the bytes that it gets; a folder may be there more than once.

    Raises:
        StorageError: one has less; the message names the first folder on it.
    """
    sizes, roots = Counter[int](), dict[int, Path]()
    for root, size_bytes in needed:
        with storage_errors(root):
            device = _existing(root).stat().st_dev
        roots.setdefault(device, root)
        sizes[device] += size_bytes
    for device, root in roots.items():
        with storage_errors(root):
            free = shutil.disk_usage(_existing(root)).free
        if free < sizes[device]:
            raise StorageError(f"no space left on the disk: log_dir={root} needed={sizes[device]} free={free}")


def can_share(source: Path, log: TopicPartition, root: Path, *, may_link: bool) -> bool:
    """Return whether a file of a log needs no copy in a root; tried there, in a directory that goes again.

    The directory has the name of a deleted log. If a crash leaves it in a root, the next opening, or a broker's start,
    removes it. For a root that does not exist yet it lies in the nearest folder above, and a crash leaves it there.

    Args:
        root: of a store or of a broker; it may not exist yet.

    Returns:
        false also where no directory can be made, as for somebody who may only read: a plan then asks for more room.

    Raises:
        StorageError: the disk refused.
    """
    trial = _existing(root) / set_aside_name(log, uuid.uuid4().hex, "delete")
    with storage_errors(root):
        try:
            trial.mkdir()
        except OSError:
            return False
        try:
            return share_only(source, trial / source.name, may_link=may_link) is not None
        finally:
            remove_unique(trial)


def _existing(path: Path) -> Path:
    """Return a folder, or the nearest one above it that exists."""
    return next(each for each in (path, *path.absolute().parents) if each.exists())
