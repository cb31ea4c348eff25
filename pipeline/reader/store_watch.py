"""The logs of a place, looked at again and again by a stream.

Spark asks some hundred times a second whether there is anything new. A store's ledger is read only when its folder has
changed since.
"""

import os
import time

from pipeline.reader.options import ReaderOptions
from pipeline.reader.selection import choose_logs
from pipeline.store_view import LogView, open_logs
from storage_core.storage.local import storage_errors

__all__ = ["StoreWatch"]

_SETTLED_NS = 100_000_000
"""A folder's time stamp moves in steps of some ms: one this old can't hide a later change."""


class StoreWatch:
    """Finds the logs that a query reads."""

    def __init__(self, options: ReaderOptions) -> None:
        self._options = options
        self._changes = options.path / "ledger" / "_delta_log"
        self._seen_ns = -1
        self._logs: tuple[LogView, ...] = ()

    def logs(self) -> tuple[LogView, ...]:
        """Return the logs as they are now.

        Raises:
            LogStorageError: the place can't be read, or lacks what the query names.
        """
        changed_ns = self._changed_ns()
        if changed_ns == -1 or changed_ns != self._seen_ns:
            self._logs = choose_logs(open_logs(self._options.path), self._options)
            is_settled = time.time_ns() - changed_ns > _SETTLED_NS and not any(each.offline for each in self._logs)
            self._seen_ns = changed_ns if is_settled else -1  # a disk comes back without a word of the ledger
        return self._logs

    def _changed_ns(self) -> int:
        """Return when the ledger changed last, -1 where there is none."""
        with storage_errors(self._changes):
            try:
                return os.stat(self._changes).st_mtime_ns
            except FileNotFoundError:
                return -1
