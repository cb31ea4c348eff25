"""The ledger as it was: at an earlier version, or at a time.

The ledger keeps its past for minutes, not for ever: a version is there as long as its data file is.
"""

from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from sink.ledger import Ledger
from storage_core.errors import InvalidConfigError

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
        InvalidConfigError: there is no such version, or it is no longer kept; the message names what there is.
        LedgerDamagedError: the ledger can't be read at all.
    """
    newest = Ledger.open(path).version
    uri = path.absolute().as_uri()
    version = as_of.version
    try:
        if version is None:
            version = _version_at(DeltaTable(uri), as_of.timestamp_ms or 0)
        return Ledger(path, DeltaTable(uri, version=version))
    except (DeltaError, OSError) as error:
        raise InvalidConfigError(
            f"the ledger does not hold {as_of} any more, or never did: newest_version={newest} path={path}"
        ) from error


def _version_at(table: DeltaTable, timestamp_ms: int) -> int:
    commits = table.history()
    for commit in commits:
        if int(commit["timestamp"]) <= timestamp_ms:
            return int(commit["version"])
    oldest = int(commits[-1]["timestamp"]) if commits else -1
    raise InvalidConfigError(
        f"the ledger's past does not reach back so far: timestamp_ms={timestamp_ms} oldest_timestamp_ms={oldest}"
    )
