"""Opens the ledger at an earlier version, or as of a time.

The ledger keeps its past for minutes: a version can be read until its data file is removed.
"""

from dataclasses import dataclass
from pathlib import Path

from sparklog.sink.delta.delta_log import DeltaLog
from sparklog.sink.ledger.ledger import Ledger, ledger_log
from sparklog.sink.ledger.rows import ROWS_SCHEMA
from sparklog.storage_core.errors import InvalidConfigError, LedgerDamagedError

__all__ = ["AsOf", "open_ledger_at"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOf:
    """A version of the ledger.

    Attributes:
        version: its number; None if a time is given.
        timestamp_ms: means the newest version that is not later.
    """

    version: int | None = None
    timestamp_ms: int | None = None

    def __str__(self) -> str:
        return f"version={self.version}" if self.version is not None else f"timestamp_ms={self.timestamp_ms}"


def open_ledger_at(path: Path, as_of: AsOf) -> Ledger:
    """Open the ledger as it was, read-only.

    Raises:
        InvalidConfigError: this version does not exist, is no longer kept, or is older than an upgrade of the store;
            the message names the newest version.
        LedgerDamagedError: the ledger, or this version of it, is damaged.
    """
    log, newest = ledger_log(path), Ledger.open(path).version
    version = _version_at(log, as_of.timestamp_ms or 0) if as_of.version is None else as_of.version
    absent = f"the ledger does not hold {as_of} any more, or never did: newest_version={newest} path={path}"
    if not 0 <= version <= newest:
        raise InvalidConfigError(absent)
    try:
        return Ledger.open_at(path, version)
    except LedgerDamagedError as error:
        if isinstance(error.__cause__, FileNotFoundError) or not all(each.exists() for each in log.parts(version)):
            raise InvalidConfigError(absent) from error
        if _has_older_layout(log, version):
            raise InvalidConfigError(
                f"this version of the ledger is older than the store's layout, and can't be read any more: {version=}"
                f" newest_version={newest} path={path}; name a version since the upgrade"
            ) from error
        raise


def _has_older_layout(log: DeltaLog, version: int) -> bool:
    """Whether the table had other columns then: `sparklog upgrade` changed them in a later version."""
    with log.refusing_damage():
        return not {field.name for field in log.open(version).schema().fields}.issuperset(ROWS_SCHEMA.names)


def _version_at(log: DeltaLog, timestamp_ms: int) -> int:
    with log.refusing_damage():
        commits = [(int(each["version"]), int(each["timestamp"])) for each in log.open().history()]
    for version, commit_ms in commits:
        if commit_ms <= timestamp_ms:
            return version
    oldest = commits[-1][1] if commits else -1
    raise InvalidConfigError(
        f"the ledger's past does not reach back so far: timestamp_ms={timestamp_ms} oldest_timestamp_ms={oldest}"
    )
