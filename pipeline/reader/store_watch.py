"""The logs of a place, looked at again and again by a stream.

Spark asks some hundred times a second whether there is anything new. A store's ledger is read only when its folder has
changed since.
"""

import os

from sparklog.pipeline.places.store_view import LogView, open_logs
from sparklog.pipeline.reader.options import ReaderOptions
from sparklog.pipeline.reader.selection import choose_logs
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.storage.local import storage_errors

__all__ = ["StoreWatch"]

_SETTLED_MS = 100
"""A folder's time stamp moves in steps of some ms: one this old, or seen for this long, can't hide a later change."""


class StoreWatch:
    """Finds the logs that a query reads."""

    def __init__(self, options: ReaderOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._changes = options.path / "ledger" / "_delta_log"
        self._seen_ns = -1
        self._first_seen = -1, 0
        self._logs: tuple[LogView, ...] = ()

    def logs(self) -> tuple[LogView, ...]:
        """Return the logs as they are now.

        Raises:
            LogStorageError: the place can't be read, or lacks what the query names.
        """
        changed_ns = self._changed_ns()
        if changed_ns == -1 or changed_ns != self._seen_ns:
            self._logs = choose_logs(open_logs(self._options.path), self._options)
            is_settled = self._is_settled(changed_ns) and not any(each.offline for each in self._logs)
            self._seen_ns = changed_ns if is_settled else -1  # a disk comes back without a word of the ledger
        return self._logs

    def _is_settled(self, changed_ns: int) -> bool:
        """Whether what was read is all that has this time stamp; a clock that was set back may be far below it."""
        monotonic_ms = self._clock.monotonic_ms()
        if self._first_seen[0] != changed_ns:
            self._first_seen = changed_ns, monotonic_ms
        age_ms = self._clock.now_ms() - changed_ns // 1_000_000
        return max(age_ms, monotonic_ms - self._first_seen[1]) > _SETTLED_MS

    def _changed_ns(self) -> int:
        """Return when the ledger changed last, -1 where there is none."""
        with storage_errors(self._changes):
            try:
                return os.stat(self._changes).st_mtime_ns
            except FileNotFoundError:
                return -1
