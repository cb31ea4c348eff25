"""Writes a group of segments as one, without the records that a later one of the same key replaces.

What is written lies beside the log as `.cleaned` files, durable, until somebody swaps it in.

Source: Kafka Cleaner.cleanSegments, cleanInto.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from storage_core.checkpoint.producer_snapshot import ProducerState
from storage_core.cleaner.cleaned_transactions import CleanedTransactions
from storage_core.cleaner.offset_map import KeySet, OffsetMap
from storage_core.log.segments import SegmentFiles

__all__ = ["CleanCounts", "CleanRequest", "CleanedSegment", "clean_segments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanRequest:
    """What all groups of a round share.

    Attributes:
        now_ms: time of the round.
        delete_retention_ms: Kafka's `delete.retention.ms`.
        legacy_delete_horizon_ms: tombstones of format v0 and v1 go from segments that were not modified after it:
            modification time of the last segment below the first dirty offset, minus `delete_retention_ms`; 0 if there
            is none.
        cleaning_end_offset: the first uncleanable offset; the batch right before it stays, empty at least.
        producers: the log's active producers; the last batch of each stays, empty at least.
        codec: of batches that are built again; None keeps each one's own.
        level: of `codec`, 0 for Kafka's default.
        index_interval_bytes: Kafka's `index.interval.bytes`.
        erased: keys whose records all go, tombstones included, whatever the map says.
    """

    now_ms: int
    delete_retention_ms: int
    cleaning_end_offset: int
    legacy_delete_horizon_ms: int = 0
    producers: Sequence[ProducerState] = ()
    codec: str | None = None
    level: int = 0
    index_interval_bytes: int = 4096
    erased: KeySet | None = None


@dataclass(slots=True, kw_only=True)
class CleanCounts:
    """What became of batches and records."""

    bytes_read: int = 0
    records_read: int = 0
    bytes_kept: int = 0
    records_kept: int = 0
    superseded_records: int = 0
    tombstones_removed: int = 0
    keyless_records: int = 0
    aborted_records: int = 0
    erased_records: int = 0
    markers_removed: int = 0
    batches_copied: int = 0
    batches_rebuilt: int = 0
    batches_emptied: int = 0
    batches_removed: int = 0
    tombstones_kept: int = 0
    horizons_set: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedSegment:
    """One segment, written and durable, not yet part of its log.

    Attributes:
        base_offset: of the group's first segment, and its own.
        paths: of its `.cleaned` files: log, offset index, time index, and the transaction index if it has entries.
        size_bytes: of its `.log`; 0 where nothing was left.
        next_offset: behind its last batch; the base offset where there is none.
        is_unchanged: whether the group is one segment and every byte of its `.log` was kept.
        counts: see there.
    """

    base_offset: int
    paths: tuple[Path, ...]
    size_bytes: int
    next_offset: int
    is_unchanged: bool
    counts: CleanCounts = field(default_factory=CleanCounts)


def clean_segments(
    group: Sequence[SegmentFiles],
    offset_map: OffsetMap,
    transactions: CleanedTransactions,
    request: CleanRequest,
    check_owner: Callable[[], None],
) -> CleanedSegment:
    """Write the surviving records of a group of closed segments as `<base>.log.cleaned` and its indexes, durably.

    Leftovers of the same names are replaced. Its modification time is that of the group's last segment.

    Args:
        group: segments that follow each other, at least one.
        offset_map: of the round.
        transactions: of the round; groups come in order.
        request: of the round.
        check_owner: raises once somebody else owns the log; called every few MiB.

    Raises:
        CorruptBatchError: a batch is damaged, or the group ends inside one; names file and position.
        OffsetOutOfRangeError: an offset is too far above the base for an index; the segment has to be split first.
        StorageError: the disk refused.

    Whatever is raised, no file of it is left behind.
    """
    raise NotImplementedError
