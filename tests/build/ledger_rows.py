"""What rows of a store's ledger say of unfinished work, and changes of rows as a killed operation leaves them."""

from pathlib import Path

import numpy as np

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["change_row", "unfinished"]


def unfinished(store: Path) -> list[LogState]:
    """Return the rows, those of deleted logs too, that say that something is left to do."""
    return [state for state in Ledger.open(store / "ledger").all_states() if state.intent]


def change_row(store: Path, log: TopicPartition, **values: int | str) -> None:
    """Commit other values in the row of a log."""
    ledger = Ledger.open_beside_writer(store / "ledger")
    columns = {
        name: [value] if isinstance(value, str) else np.array([value], np.int64) for name, value in values.items()
    }
    ledger.correct(np.array([ledger.rows[log]]), columns)
