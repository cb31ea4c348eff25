"""The ledger version at the last clean end: a ledger below it has lost entries and is refused.

A ledger whose newest entries are missing, as after an incomplete copy, is sound in itself. Versions only grow, so a
version that was durable once is a lower bound for ever, also beside a running sink and after crashed owners. The writer
lock and the maintenance lock have a file each, which only the owner of that lock replaces. Without a file there is no
bound.
"""

import json
import logging
from pathlib import Path
from typing import Final

from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.storage_core.errors import CorruptFileError, LedgerDamagedError
from sparklog.storage_core.storage.local import make_directory, storage_errors
from sparklog.storage_core.storage.open_regular import read_if_there
from sparklog.storage_core.storage.owned_names import Owner, remove_file, replace_file

__all__ = ["forget_signed_off", "is_signed_off", "require_signed_off", "sign_off_version", "signed_off_version"]

logger = logging.getLogger(__name__)

_FILES: Final = {"writer.lock": "ledger-version.writer.json", "maintenance.lock": "ledger-version.maintenance.json"}
"""Files in a store's `control/`, by the name of the lock."""
_KEY: Final = "ledger_version"


def signed_off_version(ledger: Path) -> int:
    """Return the least version that a ledger has; -1 where none is recorded.

    Raises:
        CorruptFileError: a file is damaged; the message names it.
    """
    return max(_read(_folder(ledger) / name) for name in _FILES.values())


def is_signed_off(ledger: Path) -> bool:
    """Whether an owner that recorded a version has ended well."""
    return signed_off_version(ledger) >= 0


def require_signed_off(ledger: Path, version: int, least: int) -> None:
    """Refuse a ledger that has lost its newest entries.

    Args:
        version: that it has.
        least: the version that it had; read before that one.

    Raises:
        LedgerDamagedError: it has.
    """
    if version >= least:
        return
    files = [name for name in _FILES.values() if _read(_folder(ledger) / name) > version]
    raise LedgerDamagedError(
        f"the ledger has lost its newest entries: path={ledger} version={version} signed_off_version={least}"
        f" missing={version + 1:020}.json; restore it from a copy, ledger, logs and control folder of one moment; to"
        f" give up what these entries committed, remove {' and '.join(files) or 'its file'} from {_folder(ledger)}"
    )


def sign_off_version(ledger: Path, lock: WriterLock, version: int) -> None:
    """Record a durable ledger version and sync the file, before the owner of the lock signs off.

    The lock's own file is replaced if it is damaged. Damage of the other file is ignored here; the next opening refuses
    the store for it.
    """
    path = _folder(ledger) / _FILES[lock.name]
    recorded = {name: _read_sound(_folder(ledger) / name) for name in _FILES.values()}
    if recorded[path.name] is not None and version <= max(each for each in recorded.values() if each is not None):
        return
    with storage_errors(path):
        make_directory(path.parent)
        replace_file(lock, path, json.dumps({_KEY: version}).encode() + b"\n")


def forget_signed_off(ledger: Path, owner: Owner) -> None:
    """Remove the recorded versions of a ledger that is made anew; the owner has the store."""
    for name in _FILES.values():
        with storage_errors(_folder(ledger) / name):
            remove_file(owner, _folder(ledger) / name)


def _folder(ledger: Path) -> Path:
    return ledger.parent / "control"


def _read_sound(path: Path) -> int | None:
    """Return a file's version, -1 without a file, None and a warning if it is damaged."""
    try:
        return _read(path)
    except CorruptFileError as error:
        logger.warning("%s", error)
        return None


def _read(path: Path) -> int:
    with storage_errors(path):
        data = read_if_there(path)
    if data is None:
        return -1
    try:
        version = json.loads(data)[_KEY]
        if isinstance(version, bool) or not isinstance(version, int) or version < 0:
            raise ValueError(f"{_KEY}={str(version)[:40]}")
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(
            f"the ledger's last version is damaged: path={path} ({error}); restore the file from a copy, or remove it"
        ) from error
    return version
