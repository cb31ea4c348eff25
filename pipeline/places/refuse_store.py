"""Keeps commands for a broker's folders away from a store's log directories, wherever these lie.

A store's ledger says what of a log is committed, and its own lock who may change it. Neither lies in a log directory
on another disk. What names the store there is a property in `meta.properties`, written by who opens the store.
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


def refuse_store(folders: Iterable[Path]) -> None:
    """Refuse folders that are a store, or lie in one or in one of its log directories, also where links lead there.

    Raises:
        InvalidConfigError: one does; the message names the store.
        StorageError: one can't be read.
    """
    for real in sorted({real for folder in set(folders) for real in _real_folders(folder)}):
        for each in (real, *real.parents):
            _refuse(real, each)


def _real_folders(folder: Path) -> Iterator[Path]:
    """Yield a folder, and those that links in it lead to."""
    with storage_errors(folder):
        yield folder.resolve()
        with os.scandir(folder) as entries:
            links = [Path(each.path) for each in entries if each.is_symlink() and each.is_dir()]
        yield from (each.resolve() for each in links)


def _refuse(folder: Path, above: Path) -> None:
    """Refuse a folder for what lies in it or in a folder above.

    Raises:
        InvalidConfigError: that is a store or its log directory.
    """
    meta = above / _META_FILE
    with storage_errors(above):
        if (above / _STORE_FILE).exists():
            store, remedy = str(above), ""
        elif meta.is_file() and (named := store_of(read_file(meta))):
            store = named
            remedy = f"; if this is a copy, or no store has it any more, take {STORE_PROPERTY} out of {meta}"
        else:
            return
    raise InvalidConfigError(
        f"a store's logs are not recovered or repaired by themselves: path={folder} store={store}; opening the store"
        f" for writing undoes what was not committed, and `sparklog repair {store}` mends damage{remedy}"
    )
