"""Fills the offset map from a log's dirty range.

Source: Kafka Cleaner.buildOffsetMap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from storage_core.cleaner.offset_map import OffsetMap
from storage_core.index.transaction_index import AbortedTransaction
from storage_core.log.segments import SegmentFiles

__all__ = ["BuiltMap", "DirtyRange", "build_map"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DirtyRange:
    """What is to be mapped.

    Attributes:
        segments: of the log, in order; those outside of the range are not read.
        first_dirty_offset: where it begins.
        first_uncleanable_offset: where it ends: the base of a segment.
        aborted: the aborted transactions that overlap it, in any order.
    """

    segments: Sequence[SegmentFiles]
    first_dirty_offset: int
    first_uncleanable_offset: int
    aborted: Sequence[AbortedTransaction] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltMap:
    """How far the map got.

    Attributes:
        end_offset: behind the last offset that the map speaks for: the first dirty offset after the round.
        is_full: whether it ends before the range, perhaps in the middle of a batch.
        bytes_read, records_read: of batches and records looked at.
    """

    end_offset: int
    is_full: bool
    bytes_read: int
    records_read: int


def build_map(dirty: DirtyRange, offset_map: OffsetMap, check_owner: Callable[[], None]) -> BuiltMap:
    """Put the keys of a dirty range into an empty map.

    Args:
        dirty: see there.
        offset_map: filled; its `latest_offset` is set.
        check_owner: raises once somebody else owns the log; called every few MiB.

    Raises:
        CorruptBatchError: a batch is damaged; names file and position.
        InvalidRecordError: a record of format v2 has no key; names offset and file. Those of v0 and v1 are passed over.
        StorageError: the disk refused.
    """
    raise NotImplementedError
