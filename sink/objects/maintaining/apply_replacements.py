"""Commits new extents of some logs in place of old ones."""

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from sparklog.sink.ledger.rows import LedgerRows
from sparklog.sink.objects.extents import Extent
from sparklog.sink.objects.merge_extents import Replacement, replace_extents
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.storage_core.errors import StorageError
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["apply_replacements"]

logger = logging.getLogger(__name__)


def apply_replacements(
    ledger: ObjectLedger,
    replacements: Sequence[Replacement],
    now_ms: int,
    compacted: Mapping[TopicPartition, int] | None = None,
) -> bool:
    """Commit new extents in place of old ones, or none of them; return whether the old ones were all still there.

    New objects that do not come into a version go at once: they may hold records that another run has erased.

    Args:
        compacted: how far logs were cleaned.

    Raises:
        WriterFencedError, CommitStateUnknownError, StorageError: as `ObjectLedger.rewrite`.
    """
    cleaned = compacted or {}

    def change(rows: LedgerRows, held: dict[TopicPartition, list[Extent]]) -> LedgerRows | None:
        if not all(replace_extents(held, each) for each in replacements):
            return None
        numbers = np.array([rows.number_of[log] for log in cleaned], np.int64)
        return rows.with_values(numbers, {"compacted_offset": np.array([*cleaned.values()], np.int64)})

    if ledger.rewrite(change, now_ms):
        return True
    try:
        ledger.place.open().remove(sorted({new.object for each in replacements for new in each.new}))
    except StorageError as error:
        logger.warning("Objects that no version names were not removed: %s", error)
    return False
