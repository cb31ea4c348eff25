"""The ledger as it was: at an earlier version, or at a time.

The ledger keeps its past for minutes, not for ever: a version is there as long as its data file is.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable

from sparklog.sink.ledger.damage import damage_refused
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LEDGER_PARTITION
from sparklog.storage_core.errors import InvalidConfigError, LedgerDamagedError

__all__ = ["AsOf", "open_ledger_at"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOf:
    """A version of the ledger.

    Attributes:
        version: its number; None where a time says which.
        timestamp_ms: the newest version that is not later.
    """

    version: int | None = None
    timestamp_ms: int | None = None

    def __str__(self) -> str:
        return f"version={self.version}" if self.version is not None else f"timestamp_ms={self.timestamp_ms}"


def open_ledger_at(path: Path, as_of: AsOf) -> Ledger:
    """Open the ledger as it was, read-only.

    Raises:
        InvalidConfigError: there is no such version, it is no longer kept, or an upgrade of the store has replaced its
            layout; the message names the newest version.
        LedgerDamagedError: the ledger, or that version of it, is kept but can't be read.
    """
    newest = Ledger.open(path).version
    version = _version_at(path, as_of.timestamp_ms or 0) if as_of.version is None else as_of.version
    absent = f"the ledger does not hold {as_of} any more, or never did: newest_version={newest} path={path}"
    if not 0 <= version <= newest:
        raise InvalidConfigError(absent)
    try:
        return Ledger.open_at(path, version)
    except LedgerDamagedError as error:
        if isinstance(error.__cause__, FileNotFoundError) or not _is_kept(path / "_delta_log", version):
            raise InvalidConfigError(absent) from error
        if _has_older_layout(path, version):
            raise InvalidConfigError(
                f"this version of the ledger is older than the store's layout, and can't be read any more: {version=}"
                f" newest_version={newest} path={path}; name a version since the upgrade"
            ) from error
        raise


def _is_kept(log: Path, version: int) -> bool:
    """Whether the log still has what makes up a version: a checkpoint, or the first entry, and all entries since."""
    names = set(os.listdir(log))
    checkpoints = (int(name[:20]) for name in names if name.endswith(".checkpoint.parquet") and name[:20].isdigit())
    checkpoint = max((each for each in checkpoints if each <= version), default=-1)
    return names.issuperset(f"{number:020}.json" for number in range(checkpoint + 1, version + 1))


def _has_older_layout(path: Path, version: int) -> bool:
    """Whether the table had other columns then: `sparklog upgrade` changed them in a later version."""
    with damage_refused(path):
        table = DeltaTable(path.absolute().as_uri(), version=version)
        return bool(table.metadata().partition_columns != [LEDGER_PARTITION[0]])


def _version_at(path: Path, timestamp_ms: int) -> int:
    with damage_refused(path):
        history = DeltaTable(path.absolute().as_uri()).history()
        commits = [(int(each["version"]), int(each["timestamp"])) for each in history]
    for version, commit_ms in commits:
        if commit_ms <= timestamp_ms:
            return version
    oldest = commits[-1][1] if commits else -1
    raise InvalidConfigError(
        f"the ledger's past does not reach back so far: timestamp_ms={timestamp_ms} oldest_timestamp_ms={oldest}"
    )
