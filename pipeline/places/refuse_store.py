"""Refuses log directories of a store for the commands on a broker's folders, also on other disks.

Only a store's ledger knows the committed end of a log, and only its lock protects the log. A log directory on another
disk has neither, but the store's opening writes a property with the store's path into its `meta.properties`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from sparklog.storage_core.checkpoint.meta_properties import STORE_PROPERTY, store_of
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import read_file

__all__ = ["refuse_store"]

_STORE_FILE = "store.properties"
_META_FILE = "meta.properties"
_RECOVERY = (
    "logs of a store can't be recovered or repaired without it",
    "its next opening for writing truncates uncommitted bytes, and `sparklog repair {store}` repairs damage",
)


def refuse_store(folders: Iterable[Path], why: tuple[str, str] = _RECOVERY) -> None:
    """Refuse a folder that is a store, or lies in one or in one of its log directories, also through links.

    Args:
        why: the beginning of the message, and what to do.

    Raises:
        InvalidConfigError: there is such a folder; the message names the store.
        StorageError: a folder can't be read.
    """
    for real in sorted({real for folder in set(folders) for real in _real_folders(folder)}):
        for each in (real, *real.parents):
            _refuse(real, each, why)


def _real_folders(folder: Path) -> Iterator[Path]:
    """Yield a folder, and the targets of links in it."""
    with storage_errors(folder):
        yield folder.resolve()
        with os.scandir(folder) as entries:
            links = [Path(each.path) for each in entries if each.is_symlink() and each.is_dir()]
        yield from (each.resolve() for each in links)


def _refuse(folder: Path, above: Path, why: tuple[str, str]) -> None:
    """Refuse a folder if it, or a folder above, is a store or a log directory of one.

    Raises:
        InvalidConfigError: it is.
    """
    meta = above / _META_FILE
    with storage_errors(above):
        if (above / _STORE_FILE).exists():
            store, remedy = str(above), ""
        elif meta.is_file() and (named := store_of(read_file(meta))):
            store = named
            remedy = f"; if this is a copy, or no store uses it any more, remove {STORE_PROPERTY} from {meta}"
        else:
            return
    raise InvalidConfigError(f"{why[0]}: path={folder} store={store}; {why[1].format(store=store)}{remedy}")
