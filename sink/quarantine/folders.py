"""The quarantine folders of a store, for commands without the stream's settings file.

`control/quarantine.json`: paths, relative to the store if they lie in it. A sink adds its own before it diverts rows.
"""

from pathlib import Path
from typing import Any, Final

from sparklog.sink.store.control_file import ControlFile, check_name
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.storage.owned_names import Owner

__all__ = ["keep_quarantine_folder", "quarantine_folders"]

_FILE: Final = ControlFile(
    name="quarantine.json",
    what="the list of quarantine folders is",
    remedy="delete it, the next stream that diverts rows writes it anew",
)


def quarantine_folders(store: Store) -> list[Path]:
    """Return the folders, the first one first.

    Raises:
        CorruptFileError: the file is damaged.
    """
    return [store.root / each for each in _FILE.read(store, _paths) or ()]


def keep_quarantine_folder(store: Store, folder: Path, owner: Owner) -> None:
    """Add a folder, durably; a damaged file is replaced."""
    try:
        known = _FILE.read(store, _paths) or []
    except CorruptFileError:
        known = []
    name = str(folder.relative_to(store.root)) if folder.is_relative_to(store.root) else str(folder)
    if name not in known:
        _FILE.replace(store, {"folders": [*known, name]}, owner)


def _paths(content: Any) -> list[str]:
    return [check_name(each) for each in content["folders"]]
