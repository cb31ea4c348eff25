"""Ownership of a store's part of a quarantine folder: copies of a store have the same id, and may share the folder.

A file in the part names the store, as `meta.properties` does in a log directory. Otherwise one copy would replace the
other's rows, and its opening would remove the other's unfinished files.
"""

from pathlib import Path
from typing import Final

from sparklog.sink.quarantine.folders import quarantine_folders
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.storage.local import make_directory, storage_errors
from sparklog.storage_core.storage.open_regular import read_if_there
from sparklog.storage_core.storage.owned_names import Owner, replace_file

__all__ = ["claim_part", "claimed_parts", "sign_part", "store_part"]

_FILE: Final = "_store.properties"
_HEAD: Final = b"# The store whose rows these are\n"


def store_part(folder: Path, store: Store) -> Path:
    """Return a store's part of a quarantine folder."""
    return folder / f"store-{store.store_id}"


def claim_part(store: Store, folder: Path, owner: Owner) -> None:
    """Check that a part is this store's; make it if it does not exist.

    Raises:
        InvalidConfigError: another copy of the store has it; nothing was changed.
    """
    part = store_part(folder, store)
    with storage_errors(part):
        make_directory(part)
    other = _claimant(store, part)
    if other is not None:
        raise InvalidConfigError(
            f"a quarantine folder belongs to another copy of this store: quarantine={part} store={store.root}"
            f" other={other}; two copies in one folder destroy each other's rows. Name another folder, or, if {other}"
            f" is not used any more, take the folder over: sparklog adopt {store.root} --execute"
        )
    sign_part(store, part, owner)


def sign_part(store: Store, part: Path, owner: Owner) -> None:
    """Write this store's name into a part."""
    path = part / _FILE
    with storage_errors(path):
        data = read_if_there(path)
        signed = store.signed(data or _HEAD)
        if data != signed:
            replace_file(owner, path, signed)


def claimed_parts(store: Store) -> list[tuple[Path, Path]]:
    """Return the parts that another copy of the store has, each with that copy's folder."""
    folders = dict.fromkeys([store.root / "quarantine", *quarantine_folders(store)])
    parts = [part for folder in folders if (part := store_part(folder, store)).is_dir()]
    return [(part, other) for part in parts if (other := _claimant(store, part)) is not None]


def _claimant(store: Store, part: Path) -> Path | None:
    name = part.relative_to(store.root) if part.is_relative_to(store.root) else part
    return store.claimant(str(name), _FILE)
