"""Watches the logs of a store or folder for a stream reader.

Spark asks for new offsets some hundred times a second. A store's ledger is read only after its folder has changed.
"""

import os
from pathlib import Path

from sparklog.pipeline.places.store_view import LogView, open_logs, view_stored
from sparklog.pipeline.reader.options import ReaderOptions
from sparklog.pipeline.reader.selection import choose_logs
from sparklog.sink.ledger.ledger import ledger_log
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.storage.local import storage_errors

__all__ = ["StoreWatch", "StoredWatch"]

_ASKED_EACH_MS = 200
_SETTLED_MS = 100
"""Folder timestamps have steps of some ms: one this old, or unchanged for this long, can't hide a later change."""


class StoredWatch:
    """Finds the logs that a query reads in a store of objects; asks its storage a few times a second at most."""

    def __init__(self, options: ReaderOptions, place: StoragePlace, clock: Clock) -> None:
        self._options = options
        self._place = place
        self._clock = clock
        self._ledger: ObjectLedger | None = None
        self._asked_ms = 0
        self._logs: tuple[LogView, ...] = ()

    def logs(self) -> tuple[LogView, ...]:
        """Return the logs as they are now; raises as that of `StoreWatch`."""
        monotonic_ms = self._clock.monotonic_ms()
        if self._ledger is not None and monotonic_ms - self._asked_ms < _ASKED_EACH_MS:
            return self._logs
        if self._ledger is None:
            self._ledger = ObjectLedger.open(self._place)
            has_changed = True
        else:
            has_changed = self._ledger.refresh()
        if has_changed:
            self._logs = choose_logs(view_stored(self._place, self._ledger), self._options)
        self._asked_ms = self._clock.monotonic_ms()
        return self._logs


class StoreWatch:
    """Finds the logs that a query reads in a folder of this machine."""

    def __init__(self, options: ReaderOptions, root: Path, clock: Clock) -> None:
        self._options = options
        self._root = root
        self._clock = clock
        self._changes = ledger_log(root / "ledger").folder
        self._seen_ns = -1
        self._first_seen = -1, 0
        self._logs: tuple[LogView, ...] = ()

    def logs(self) -> tuple[LogView, ...]:
        """Return the logs as they are now.

        Raises:
            LogStorageError: the place can't be read, or a log of the query does not exist.
        """
        changed_ns = self._changed_ns()
        if changed_ns == -1 or changed_ns != self._seen_ns:
            self._logs = choose_logs(open_logs(self._root), self._options)
            is_settled = self._is_settled(changed_ns) and not any(each.offline for each in self._logs)
            self._seen_ns = changed_ns if is_settled else -1  # a disk comes back without a ledger commit
        return self._logs

    def _is_settled(self, changed_ns: int) -> bool:
        """Whether no further change can have this timestamp, also if the clock was set back."""
        monotonic_ms = self._clock.monotonic_ms()
        if self._first_seen[0] != changed_ns:
            self._first_seen = changed_ns, monotonic_ms
        age_ms = self._clock.now_ms() - changed_ns // 1_000_000
        return max(age_ms, monotonic_ms - self._first_seen[1]) > _SETTLED_MS

    def _changed_ns(self) -> int:
        """Return the time of the ledger's last change; -1 without a ledger."""
        with storage_errors(self._changes):
            try:
                return os.stat(self._changes).st_mtime_ns
            except FileNotFoundError:
                return -1
