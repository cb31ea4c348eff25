"""The present rows of a store's ledger, for `verify` beside writers and maintenance runs.

A check reads the ledger first and the files later, so the files may be newer. A finding counts only if the log's ledger
row is still the same; otherwise the log is checked again. Each pair of compared files, with the one that is changed
first: `docs/architecture.md`, "What `verify` compares beside a writer".
"""

import threading
from pathlib import Path

from sparklog.pipeline.places.store_view import LogView, StoreView, open_logs
from sparklog.sink.ledger.ledger import ledger_log
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.topic_partition import parse_set_aside_name

__all__ = ["NewestLogs"]


class NewestLogs:
    """The logs of a place as they are now; shared by the threads of a check.

    Args:
        view: the place at the start of the check.
    """

    def __init__(self, view: StoreView) -> None:
        self._view = view
        self._one_at_a_time = threading.Lock()

    def view(self, each: LogView) -> StoreView:
        """Return the place; read again if the ledger has changed, or if a moved log has got its final name."""
        with self._one_at_a_time:
            if self._view.ledger_version is not None and (self._has_changed() or _is_renamed(each)):
                self._view = open_logs(self._view.root)
            return self._view

    def _has_changed(self) -> bool:
        log = ledger_log(Store.find(self._view.root).ledger_path)
        return log.newest_version() != self._view.ledger_version


def _is_renamed(each: LogView) -> bool:
    directory: Path = each.directory
    return parse_set_aside_name(directory.name) is not None and not directory.is_dir()
