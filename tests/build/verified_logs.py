"""What a deep verification finds in some logs."""

from collections.abc import Iterable
from pathlib import Path

from sparklog.storage_core.inspect.verify.findings import ExpectedLog, Finding
from sparklog.storage_core.inspect.verify.verify_log import verify_directory

__all__ = ["findings_of"]


def findings_of(logs: Iterable[tuple[Path, ExpectedLog | None]]) -> list[Finding]:
    """Return the findings of logs, given by directory and what the ledger says of each."""
    return [
        found for directory, expected in logs for found in verify_directory(directory, expected, deep=True).findings
    ]
