"""Writes a group of segments as one, without superseded records.

The new segment lies beside the log as synced `.cleaned` files until it is swapped in.

Source: Kafka Cleaner.cleanSegments, cleanInto.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.checkpoint.producer_snapshot import ProducerState
from sparklog.storage_core.cleaner.keys.keyed_records import KeyedRecords, LargeBatch, iter_opened
from sparklog.storage_core.cleaner.keys.offset_map import KeySet
from sparklog.storage_core.cleaner.keys.superseded import LaterRecords
from sparklog.storage_core.cleaner.rewrite.cleaned_output import CleanedOutput
from sparklog.storage_core.cleaner.rewrite.filter_batches import Action, RebuildOptions, filter_batches, filter_large
from sparklog.storage_core.cleaner.rewrite.survivors import (
    BatchFates,
    RecordFacts,
    RecordFates,
    RetentionRules,
    judge_batches,
    judge_records,
)
from sparklog.storage_core.cleaner.survey.cleaned_transactions import CleanedTransactions
from sparklog.storage_core.cleaner.survey.read_batches import checked_chunks
from sparklog.storage_core.index.transaction_index import AbortedTransaction, pack_transaction_entries
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.producers.transactions import read_control_types
from sparklog.storage_core.log.scan.segment_reader import BatchChunk, SegmentReader
from sparklog.storage_core.log_config import INT64_MAX
from sparklog.storage_core.record.batch_scan import BatchScan
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import read_if_there
from sparklog.storage_core.storage.owned_names import Owner

__all__ = ["CleanCounts", "CleanRequest", "CleanedSegment", "clean_segments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanRequest:
    """Settings of all groups of a round.

    Attributes:
        legacy_delete_horizon_ms: tombstones of format v0 and v1 are dropped from segments that were not modified after
            it: modification time of the last segment below the first dirty offset, minus `delete_retention_ms`; 0
            without one.
        cleaning_end_offset: the first uncleanable offset; the batch right below it stays, at least empty.
        producers: the log's active producers; the last batch of each stays, at least empty.
        codec: of rebuilt batches; None keeps each one's own.
        level: of `codec`, 0 for Kafka's default.
        erased: keys to erase, tombstones included.
        tombstones_stay_from: tombstones of batches that reach this offset stay, old or to be erased.
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
    tombstones_stay_from: int = INT64_MAX


@dataclass(slots=True, kw_only=True)
class CleanCounts:
    """Numbers of kept and dropped batches and records."""

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
        size_bytes: of its `.log`; 0 if no batch is left.
        next_offset: above its last batch; the base offset without one.
        is_unchanged: whether the group is one segment and every byte of its `.log` was kept.
        erased: number of erased records, by base offset of the old segment.
    """

    base_offset: int
    paths: tuple[Path, ...]
    size_bytes: int
    next_offset: int
    is_unchanged: bool
    erased: Mapping[int, int] = field(default_factory=dict)
    counts: CleanCounts = field(default_factory=CleanCounts)


def clean_segments(
    group: Sequence[SegmentFiles],
    later: LaterRecords,
    transactions: CleanedTransactions,
    request: CleanRequest,
    owner: Owner,
) -> CleanedSegment:
    """Write the surviving records of a group of closed segments as `<base>.log.cleaned` and its indexes, durably.

    Leftovers of the same names are replaced. Its modification time is that of the group's last segment.

    Args:
        group: adjacent segments, at least one.
        later: the map of the round, or the superseded records of this group.
        transactions: of the round; groups come in order.
        owner: checked every few MiB.

    Raises:
        CorruptBatchError: a batch is damaged, or partial at the group's end; names file and position.
        OffsetOutOfRangeError: an offset is too far above the base for an index; the segment must be split first.

    After an error no file of it is left.
    """
    cleaning = _Cleaning(group, later, transactions, request)
    try:
        for number, files in enumerate(group):
            following = group[number + 1].base_offset if number + 1 < len(group) else INT64_MAX
            cleaning.clean(files, following, owner)
        owner.check()
        return cleaning.finish()
    except BaseException:
        cleaning.output.discard()
        raise


class _Cleaning:
    """State of one group's cleaning."""

    def __init__(
        self,
        group: Sequence[SegmentFiles],
        later: LaterRecords,
        transactions: CleanedTransactions,
        request: CleanRequest,
    ) -> None:
        self._group = group
        self._later = later
        self._transactions = transactions
        self._request = request
        self._rules = RetentionRules(
            now_ms=request.now_ms,
            cleaning_end_offset=request.cleaning_end_offset,
            producers=request.producers,
            tombstones_stay_from=request.tombstones_stay_from,
        )
        self._options = RebuildOptions(
            delete_horizon_ms=min(request.now_ms + request.delete_retention_ms, INT64_MAX),
            codec=request.codec,
            level=request.level,
        )
        self._aborted: list[AbortedTransaction] = []
        self._counts = CleanCounts()
        self._erased: dict[int, int] = {}
        self.output = CleanedOutput(group[0].log_path.parent, group[0].base_offset, request.index_interval_bytes)

    def clean(self, files: SegmentFiles, next_base_offset: int, owner: Owner) -> None:
        """Write the kept batches of one segment."""
        erased_before = self._counts.erased_records
        with SegmentReader(files) as reader:
            keeps_legacy_tombstones = _modified_ms(files) > self._request.legacy_delete_horizon_ms
            for chunk in checked_chunks(reader, files.base_offset, next_base_offset, owner.check):
                may_go, aborted = self._transactions.follow(chunk.scan, read_control_types(reader, chunk))
                self._aborted += aborted
                with reader.errors_in(chunk):
                    self._filter(chunk, may_go, keeps_legacy_tombstones)
        if erased := self._counts.erased_records - erased_before:
            self._erased[files.base_offset] = erased

    def finish(self) -> CleanedSegment:
        """Sync the segment."""
        entries = pack_transaction_entries(self._aborted)
        newest = self._group[-1].log_path
        with storage_errors(newest):
            modified_ns = newest.stat().st_mtime_ns
        paths = self.output.finish(entries, modified_ns)
        counts = self._counts
        counts.bytes_kept = self.output.size_bytes
        is_copied = counts.batches_rebuilt + counts.batches_emptied + counts.batches_removed == 0
        return CleanedSegment(
            base_offset=self._group[0].base_offset,
            paths=paths,
            size_bytes=self.output.size_bytes,
            next_offset=self.output.next_offset,
            is_unchanged=len(self._group) == 1 and is_copied and _has_entries(self._group[0], entries),
            erased=self._erased,
            counts=counts,
        )

    def _filter(self, chunk: BatchChunk, may_go: npt.NDArray[np.bool_], keeps_legacy_tombstones: bool) -> None:
        place = 0
        for opened in iter_opened(chunk.data, chunk.scan):
            after = place + len(opened.scan)
            fates = judge_batches(opened.scan, may_go[place:after], keeps_legacy_tombstones, self._rules)
            if isinstance(opened, LargeBatch):
                filtered, actions = filter_large(opened, fates, partial(self._judge, fates), self._options)
            else:
                judged = self._judge(fates, opened)
                filtered, actions = filter_batches(chunk.data, opened, fates, judged, self._options)
            self._count_batches(opened.scan, actions, filtered.horizons_set)
            self.output.append(filtered, chunk.data)
            place = after

    def _judge(self, fates: BatchFates, records: KeyedRecords) -> RecordFates:
        """Judge and count records."""
        digests = records.digests(self._later.hash_key)
        erased = self._request.erased
        facts = RecordFacts(
            batch=records.batch,
            offset=records.offset,
            has_later=self._later.has_later(digests, records.offset),
            has_key=records.has_key,
            has_value=records.has_value,
            is_erased=erased.contains(digests) if erased else None,
        )
        judged = judge_records(fates, facts, self._later.latest_offset)
        self._count_records(records, fates, judged)
        return judged

    def _count_records(self, records: KeyedRecords, fates: BatchFates, judged: RecordFates) -> None:
        counts = self._counts
        counts.records_read += len(records)
        counts.records_kept += int(np.count_nonzero(judged.stays))
        counts.superseded_records += int(np.count_nonzero(judged.is_superseded))
        counts.tombstones_removed += int(np.count_nonzero(judged.is_expired))
        counts.keyless_records += int(np.count_nonzero(judged.is_keyless))
        counts.erased_records += int(np.count_nonzero(judged.is_erased))
        if fates.loses_records.any():
            counts.aborted_records += int(records.counts[fates.loses_records & fates.is_aborted].sum())
            counts.markers_removed += int(records.counts[fates.loses_records & fates.is_control].sum())
        if not records.has_value.all():
            counts.tombstones_kept += int(np.count_nonzero(judged.stays & ~records.has_value))

    def _count_batches(self, scan: BatchScan, actions: npt.NDArray[np.int8], horizons_set: int) -> None:
        counts = self._counts
        counts.bytes_read += int(scan.size.sum())
        done = np.bincount(actions, minlength=Action.EMPTY + 1).tolist()
        counts.batches_removed += done[Action.DROP]
        counts.batches_copied += done[Action.COPY]
        counts.batches_rebuilt += done[Action.REBUILD]
        counts.batches_emptied += done[Action.EMPTY]
        counts.horizons_set += horizons_set


def _modified_ms(files: SegmentFiles) -> int:
    with storage_errors(files.log_path):
        return files.log_path.stat().st_mtime_ns // 1_000_000


def _has_entries(files: SegmentFiles, entries: bytes) -> bool:
    """Whether a segment's transaction index has only these entries."""
    path = files.txn_index_path
    with storage_errors(path):
        return (read_if_there(path) or b"") == entries
