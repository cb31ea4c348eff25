"""Checks log directories against themselves and, where there is one, against a ledger. Reads only.

Without a ledger a log is judged by what it must be in itself. Two things then stay open: a log may have been cut at a
batch border, and a gap may be real (compaction, a mirror of a log with gaps). A gap is reported only in a log whose
other batches are contiguous and complete.

Source: Kafka LogLoader, LogSegment.recover; what each byte is checked by: `verify_pass`, `verify_segment`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparklog.storage_core.errors import CorruptBatchError, StorageError
from sparklog.storage_core.inspect.verify.epoch_check import EpochCheck
from sparklog.storage_core.inspect.verify.findings import ExpectedLog, LogReport, OffsetRange, Rule
from sparklog.storage_core.inspect.verify.indexes import IndexCheck
from sparklog.storage_core.inspect.verify.offset_walk import OffsetFault, OffsetWalk
from sparklog.storage_core.inspect.verify.segment_pass import Event, SoundBatches, pass_over
from sparklog.storage_core.inspect.verify.small_files import SmallFilesCheck
from sparklog.storage_core.inspect.verify.transactions import TransactionWalk
from sparklog.storage_core.inspect.verify.verify_root import META_FILE
from sparklog.storage_core.inspect.verify.verify_segment import LogChecks, SegmentCheck
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.log.files.segments import SegmentFiles, list_segments, segments_from
from sparklog.storage_core.log.scan.segment_reader import SegmentReader

__all__ = ["ExpectedLog", "LogReport", "RunPass", "VerifyOptions", "verify_directory"]

RunPass = Callable[[Sequence[SegmentFiles], Callable[[SegmentFiles], Iterator[Event]]], Iterator[Iterator[Event]]]
"""Passes over segments, side by side if it likes, and yields the results in the order of the segments."""

_BATCHES_AHEAD: Final = 200_000
"""Batches of a segment whose headers are held until the segments before it are judged: some 20 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """How a log is checked.

    Attributes:
        deep: whether every record is decoded, not only its batch's CRC computed.
        known_lost: offsets that a repair has written down as lost.
        run: passes over the segments.
        progress: called with the bytes of a segment that are done.
    """

    deep: bool = False
    known_lost: Sequence[OffsetRange] = ()
    run: RunPass | None = None
    progress: Callable[[int], None] = lambda _bytes: None


def verify_directory(
    directory: Path, expected: ExpectedLog | None = None, options: VerifyOptions | None = None, *, deep: bool = False
) -> LogReport:
    """Check one log.

    Without `expected` a directory without a single batch is a finding; with it, an empty log that must be empty is not.
    """
    report = LogReport(directory)
    try:
        _LogCheck(report, expected, options or VerifyOptions(deep=deep)).run()
    except StorageError as error:
        rule = _rule_of_unreadable(directory)
        if expected is None:
            report.add("missing", rule, report.log, str(error))
        else:
            offsets = (expected.log_start_offset, expected.log_end_offset - 1)
            report.add_offsets("missing", rule, report.log, str(error), offsets)
    if expected is None and not report.batches and not report.findings:
        report.add("nothing", "nothing", report.log, "no batch was found: nothing to check")
    return report


def _rule_of_unreadable(directory: Path) -> Rule:
    """A log is gone only where its root is there: a disk that is not mounted, or refuses, is no reason to repair."""
    is_gone = (directory.parent / META_FILE).is_file() and not directory.exists()
    return "directory" if is_gone else "unreadable"


def _one_by_one(
    segments: Sequence[SegmentFiles], pass_over_one: Callable[[SegmentFiles], Iterator[Event]]
) -> Iterator[Iterator[Event]]:
    return map(pass_over_one, segments)


@dataclass(frozen=True, slots=True)
class _LogCheck:
    report: LogReport
    expected: ExpectedLog | None
    options: VerifyOptions

    def run(self) -> None:
        segments = self._committed(list_segments(self.report.directory))
        small_files = SmallFilesCheck(self.report, self.expected)
        small_files.check_names({each.base_offset for each in segments})
        small_files.check_metadata()
        epochs = small_files.read_epochs()
        start = segments[0].base_offset if segments else 0
        walk = OffsetWalk(self.options.known_lost, self.expected.has_gaps if self.expected else None)
        transactions = TransactionWalk(self.report, walk, start)
        checks = LogChecks(self.report, walk, EpochCheck(epochs, self.expected is not None), transactions)
        self.report.segments = len(segments)
        if segments:
            self.report.log_start_offset = walk.next_offset = start
        self._check_segments(segments, checks)
        self.report.log_end_offset = walk.next_offset
        self._report_offsets(walk)
        if segments:
            small_files.check_snapshots(walk.next_offset)
        if epochs is not None and segments:
            small_files.check_epoch_range(epochs, walk.next_offset, checks.epochs.first_unnamed)

    def _committed(self, segments: list[SegmentFiles]) -> list[SegmentFiles]:
        """Return the segments that the ledger covers; report those above it, and what is missing.

        Those that end at the log's start or before are being deleted, and have no readers any more.
        """
        expected = self.expected
        if expected is None:
            return segments
        beyond = [each for each in segments if each.base_offset > expected.active_base_offset]
        for each in beyond:
            what = f"segment above the committed end {expected.log_end_offset}"
            self.report.add("uncommitted", "ledger-end", each.log_path.name, what)
        covered = segments[: len(segments) - len(beyond)]
        kept = segments_from(covered, expected.log_start_offset)
        self._check_below(covered[: len(covered) - len(kept)], kept)
        has_active = bool(kept) and kept[-1].base_offset == expected.active_base_offset
        if expected.active_size_bytes and not has_active:
            name = segment_file_name(expected.active_base_offset, LOG)
            self._missing(
                "segment", name, expected.active_base_offset, expected.log_end_offset - 1, "segment is missing"
            )
        first = kept[0].base_offset if kept else expected.log_end_offset
        if expected.log_start_offset < first and (kept or not expected.active_size_bytes):
            name = kept[0].log_path.name if kept else self.report.log
            self._missing("segment", name, expected.log_start_offset, first - 1, "segments before it are missing")
        return kept

    def _check_below(self, left_out: Sequence[SegmentFiles], kept: Sequence[SegmentFiles]) -> None:
        """Report segments below the log's start that reach above it: a loading would find two of one offset."""
        for each in left_out[-1:] if kept else ():
            first = kept[0].base_offset
            try:
                with SegmentReader(each) as reader:
                    ends = [int(chunk.scan.last_offset.max(initial=-1)) for chunk in reader.chunks_from(first)]
            except (StorageError, CorruptBatchError):  # it is being removed; its content does not count any more
                continue
            if (last := max(ends, default=-1)) >= first:
                what = f"reaches offset {last}, but another segment of the log starts at {first}"
                self.report.add("foreign", "name", each.log_path.name, what)

    def _check_segments(self, segments: list[SegmentFiles], checks: LogChecks) -> None:
        run = self.options.run or _one_by_one
        limits = [*(each.base_offset for each in segments[1:]), None][: len(segments)]
        for segment, limit, events in zip(segments, limits, run(segments, self._pass_over), strict=True):
            self._check_segment(segment, events, checks, limit)

    def _pass_over(self, segment: SegmentFiles) -> Iterator[Event]:
        """Pass over a segment, at least over its first batches; touches nothing that others share.

        Where batches are small there may be millions of them: the rest is passed over as it is taken in.
        """
        events = self._events(segment)
        head: list[Event] = []
        count = 0
        for event in events:
            head.append(event)
            count += len(event.scan) if isinstance(event, SoundBatches) else 1
            if count > _BATCHES_AHEAD:
                break
        return itertools.chain(head, events)

    def _events(self, segment: SegmentFiles) -> Iterator[Event]:
        with SegmentReader(segment) as reader:
            reader.size_bytes = self._checked_bytes(segment, reader.size_bytes)
            yield from pass_over(reader, deep=self.options.deep)
            self.options.progress(reader.size_bytes)

    def _checked_bytes(self, segment: SegmentFiles, size_bytes: int) -> int:
        expected = self.expected
        if expected is None or segment.base_offset != expected.active_base_offset:
            return size_bytes
        return min(size_bytes, expected.active_size_bytes)

    def _check_segment(
        self, segment: SegmentFiles, events: Iterator[Event], checks: LogChecks, limit: int | None
    ) -> None:
        expected = self.expected
        is_active = limit is None
        with SegmentReader(segment) as reader:
            size = reader.size_bytes
            reader.size_bytes = self._checked_bytes(segment, size)
            if is_active and expected is not None:
                limit = expected.log_end_offset
                if segment.base_offset == expected.active_base_offset:
                    self._check_size(segment, size, expected)
            indexes = IndexCheck(reader, self.report, is_active, expected is not None)
            if is_active and expected is not None and size < expected.active_size_bytes:
                indexes.skip(size, expected.active_size_bytes)  # reported once, as missing bytes
            SegmentCheck(segment, reader.size_bytes, checks, indexes, limit).run(events)
            indexes.finish()
        checks.transactions.finish_segment(segment)

    def _check_size(self, segment: SegmentFiles, size: int, expected: ExpectedLog) -> None:
        name, committed = segment.log_path.name, expected.active_size_bytes
        if size < committed:
            self.report.add("missing", "ledger-size", name, f"has {size} bytes, the ledger names {committed}", size)
        elif size > committed:
            what = f"{size - committed} uncommitted bytes past the committed {committed}"
            self.report.add("uncommitted", "ledger-size", name, what, committed)

    def _report_offsets(self, walk: OffsetWalk) -> None:
        for lost in walk.lost:
            offsets: tuple[int | None, int | None] = (lost.first_offset, lost.last_offset)
            if lost.last_offset is not None and lost.last_offset < lost.first_offset:
                offsets = (None, None)  # bytes too many: the offsets continue after them
            place = {"position": lost.position, "end_position": lost.end}
            self.report.add_offsets("damage", lost.rule, lost.file, lost.what, offsets, **place)
        self._report_end(walk)
        for gap in walk.known_gaps:
            offsets = (gap.first_offset, gap.last_offset)
            self.report.add_offsets("known", "gap", gap.file, "offsets that were lost before", offsets)
        has_gaps = self.expected.has_gaps if self.expected else None
        if self.expected is not None and self.expected.preserves_offsets:
            has_gaps = True
        if has_gaps is None:
            has_gaps = walk.sparse_batches > 0 or walk.inside_gap_count > 1
        for gap in [] if has_gaps else [*walk.inside_gaps, *walk.border_gaps]:
            self._add_gap(gap)

    def _add_gap(self, gap: OffsetFault) -> None:
        offsets = (gap.first_offset, gap.last_offset)
        self.report.add_offsets("gap", "gap", gap.file, gap.what, offsets, position=gap.position, due=gap.due)

    def _report_end(self, walk: OffsetWalk) -> None:
        """Compare the end with the ledger's; a segment that stops short of it shows as a gap before the limit."""
        expected = self.expected
        if expected is None or walk.next_offset == expected.log_end_offset or not self.report.segments:
            return
        name = segment_file_name(expected.active_base_offset, LOG)
        walk.border_gaps[:] = [gap for gap in walk.border_gaps if gap.last_offset != expected.log_end_offset - 1]
        first = max(walk.next_offset, expected.log_start_offset)  # what ends below the start is on its way out
        if first < expected.log_end_offset:
            what = f"log ends at offset {walk.next_offset}, the ledger says {expected.log_end_offset}"
            self._missing("ledger-end", name, first, expected.log_end_offset - 1, what)

    def _missing(self, rule: Rule, file: str, first: int, last: int, what: str) -> None:
        self.report.add_offsets("missing", rule, file, what, (first, last))
