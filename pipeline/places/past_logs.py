"""Logs of a store as they were: refuses those that can't be read any more."""

import logging
from collections.abc import Sequence

from sparklog.pipeline.places.store_view import LogView, StoreView
from sparklog.sink.past.past_logs import PastLogs
from sparklog.sink.store.store_folder import Store

__all__ = ["past_of", "require_readable"]

logger = logging.getLogger(__name__)


def past_of(view: StoreView, logs: Sequence[LogView]) -> PastLogs | None:
    """Return the rows of logs in an earlier state; None if the view is of the state now."""
    if view.past is None:
        return None
    return PastLogs(
        ledger_path=str(Store.find(view.root).ledger_path),
        what=str(view.past),
        states=tuple(view.past.states[each.log] for each in logs),
        directories=tuple(str(each.directory) for each in logs),
    )


def require_readable(view: StoreView, logs: Sequence[LogView]) -> None:
    """Refuse logs of an earlier state that can't be read any more; warn of those that have lost their beginning.

    Raises:
        InvalidConfigError: the message names log and cause, and the oldest cut that can be read.
    """
    past = past_of(view, logs)
    for log, judged in ({} if past is None else past.require_readable()).items():
        if judged.state == "shortened":
            logger.warning("%s: log=%s: %s", view.past, log, judged.reason)
