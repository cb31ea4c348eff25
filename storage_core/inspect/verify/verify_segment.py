"""Judges a segment's batches as parts of their log: offsets, leader epochs, transactions, index entries.

The bytes were read by `segment_pass`; here its results meet, in order. What the CRC leaves out is covered by
`OffsetWalk` (base offset) and `EpochCheck` (leader epoch).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparklog.storage_core.checkpoint.leader_epochs import assign_batch_epochs
from sparklog.storage_core.inspect.verify.epoch_check import EpochCheck
from sparklog.storage_core.inspect.verify.findings import LogReport
from sparklog.storage_core.inspect.verify.indexes import IndexCheck
from sparklog.storage_core.inspect.verify.offset_walk import OffsetWalk
from sparklog.storage_core.inspect.verify.segment_pass import Event, SoundBatches, UnreadableBytes
from sparklog.storage_core.inspect.verify.transactions import TransactionWalk
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.record.batch_probe import MAGIC_V2

__all__ = ["LogChecks", "SegmentCheck"]


@dataclass(frozen=True, slots=True)
class LogChecks:
    """What the checks of a log's segments share."""

    report: LogReport
    walk: OffsetWalk
    epochs: EpochCheck
    transactions: TransactionWalk


class SegmentCheck:
    """Follows one segment.

    Args:
        files: of the segment.
        size_bytes: how many bytes of its `.log` were passed over.
        limit: the offset that no batch may reach, or None.
    """

    def __init__(
        self, files: SegmentFiles, size_bytes: int, checks: LogChecks, indexes: IndexCheck, limit: int | None
    ) -> None:
        self._files, self._size_bytes, self._indexes, self._limit = files, size_bytes, indexes, limit
        self._report, self._walk, self._epochs = checks.report, checks.walk, checks.epochs
        self._transactions = checks.transactions
        self._file = files.log_path.name
        self._previous: tuple[int, int, int] | None = None
        self._wrapper_spans: dict[int, int] = {}

    def run(self, events: Iterable[Event]) -> None:
        """Take in everything; findings go to the report, offsets to the walk, entries to the index check."""
        known_faults = len(self._walk.faults)
        indexes = self._indexes
        self._walk.start_segment(self._file, self._files.base_offset, indexes.offset_named_at, indexes.is_timed)
        for event in events:
            if isinstance(event, SoundBatches):
                self._follow(event)
            elif isinstance(event, UnreadableBytes):
                self._report.add("damage", "unreadable", self._file, event.what, event.position)
            else:
                self._indexes.skip(event.position, event.end)
                self._walk.lose(event)
        self._walk.end_segment(self._limit, self._size_bytes)
        for fault in self._walk.faults[known_faults:]:
            if fault.surplus_end is not None:
                self._indexes.skip(fault.position, fault.surplus_end)
                copy: dict[str, int | None] = {"position": fault.position, "end_position": fault.surplus_end}
                self._report.add_offsets("damage", "surplus", self._file, fault.what, (None, None), **copy)
                continue
            self._indexes.skip(fault.position, fault.position + 1)
            span = self._wrapper_spans.get(fault.position, 0)
            due = None if fault.due is None else fault.due + span
            offsets = (fault.first_offset, fault.last_offset)
            place = {"position": fault.position, "due": due}
            self._report.add_offsets("damage", "base-offset", self._file, fault.what, offsets, **place)

    def _follow(self, sound: SoundBatches) -> None:
        position, scan = sound.position, sound.scan
        self._report.batches += len(scan)
        self._report.bytes_checked += int(scan.size.sum())
        self._walk.follow(scan.position + position, scan.base_offset, scan.last_offset, scan.records_count)
        self._indexes.follow(position, scan)
        self._transactions.follow(scan, sound.control_types)
        if (scan.magic < MAGIC_V2).any():
            self._note_wrappers(sound)
        self._check_epochs(sound)
        for fault in sound.faults:
            number = fault.number
            offsets = int(scan.base_offset[number]), int(scan.last_offset[number])
            start = position + int(scan.position[number])
            place = {"position": start, "end_position": start + int(scan.size[number]), "due": fault.due}
            self._report.add_offsets("damage", fault.rule, self._file, fault.what, offsets, **place)

    def _note_wrappers(self, sound: SoundBatches) -> None:
        """Remember how far each wrapper's own offset lies above its first inner one."""
        scan = sound.scan
        is_wrapper = (scan.magic < MAGIC_V2) & (scan.base_offset < scan.last_offset)
        for start, span in zip(scan.position[is_wrapper], scan.last_offset_delta[is_wrapper], strict=True):
            self._wrapper_spans[sound.position + int(start)] = int(span)

    def _check_epochs(self, sound: SoundBatches) -> None:
        """Compare the epochs of v2 batches; older ones have none."""
        scan = sound.scan.take(sound.scan.magic == MAGIC_V2)
        if not len(scan):
            return
        placed = scan.base_offset >= 0  # a damaged one may be anything
        self._report.epochs = assign_batch_epochs(
            self._report.epochs, scan.leader_epoch[placed], scan.base_offset[placed]
        )
        starts = scan.position + sound.position
        for wrong in self._epochs.wrong(scan.base_offset, scan.leader_epoch):
            if wrong.last < 0 and self._previous is not None:
                start, first_offset, last_offset = self._previous
                end = None
            else:
                first = max(wrong.first, 0)
                start, end = int(starts[first]), int(starts[wrong.last] + scan.size[wrong.last])
                first_offset, last_offset = int(scan.base_offset[first]), int(scan.last_offset[wrong.last])
            place = {"position": start, "end_position": end, "due": wrong.due if wrong.due >= 0 else None}
            offsets = (first_offset, last_offset)
            self._report.add_offsets("damage", "leader-epoch", self._file, wrong.what, offsets, **place)
        self._previous = int(starts[-1]), int(scan.base_offset[-1]), int(scan.last_offset[-1])
