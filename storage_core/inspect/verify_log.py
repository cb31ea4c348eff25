"""Checks log directories against themselves and, where there is one, against a ledger. Reads only.

Without a ledger a log is judged by what it must be in itself. Two things then stay open: a log may have been cut at a
batch border, and a gap may be real (compaction, a mirror of a log with gaps). A gap is reported only in a log whose
other batches are contiguous and complete.

Source: Kafka LogLoader, LogSegment.recover; what each byte is checked by: `verify_segment`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from storage_core.checkpoint.leader_epochs import parse_leader_epochs
from storage_core.checkpoint.partition_metadata import parse_partition_metadata
from storage_core.errors import CorruptFileError, StorageError
from storage_core.inspect.epoch_check import EpochCheck
from storage_core.inspect.findings import ExpectedLog, Finding, FindingKind, LogReport
from storage_core.inspect.offset_walk import OffsetWalk
from storage_core.inspect.verify_indexes import IndexCheck
from storage_core.inspect.verify_segment import LogChecks, SegmentCheck
from storage_core.log.log_files import CLEANED, INDEX, LOG, SWAP, TIMEINDEX, parse_base_offset, segment_file_name
from storage_core.log.segment_reader import SegmentReader
from storage_core.log.segments import SegmentFiles, list_segments
from storage_core.storage.local import storage_errors

__all__ = ["ExpectedLog", "Finding", "LogReport", "verify_directory", "verify_logs"]

_EPOCH_FILE = "leader-epoch-checkpoint"
_METADATA_FILE = "partition.metadata"


def verify_logs(logs: Iterable[tuple[Path, ExpectedLog | None]], *, deep: bool = False) -> list[LogReport]:
    """Check several logs; if none of them holds a batch, that is a finding of the last report.

    Args:
        logs: directory of each log, and what the ledger says of it.
        deep: whether every record is decoded, not only its batch's CRC computed.

    Returns:
        One report per log. No log at all gives one report with a finding.
    """
    reports = [verify_directory(directory, expected, deep=deep) for directory, expected in logs]
    if not reports:
        reports.append(LogReport(Path()))
    if not any(report.batches or report.findings for report in reports):
        reports[-1].add("nothing", reports[-1].log, "no batch was found: nothing to check")
    return reports


def verify_directory(directory: Path, expected: ExpectedLog | None = None, *, deep: bool = False) -> LogReport:
    """Check one log.

    Without `expected` a directory without a single batch is a finding; with it, an empty log that must be empty is not.
    """
    report = LogReport(directory)
    try:
        _LogCheck(report, expected, deep).run()
    except StorageError as error:
        first, last = (expected.log_start_offset, expected.log_end_offset - 1) if expected else (None, None)
        finding = Finding(
            log=report.log, file=report.log, kind="missing", what=str(error), first_offset=first, last_offset=last
        )
        report.findings.append(finding)
    if expected is None and not report.batches and not report.findings:
        report.add("nothing", report.log, "no batch was found: nothing to check")
    return report


@dataclass(frozen=True, slots=True)
class _LogCheck:
    report: LogReport
    expected: ExpectedLog | None
    deep: bool

    def run(self) -> None:
        segments = self._committed(list_segments(self.report.directory))
        self._check_leftovers({each.base_offset for each in segments})
        self._check_metadata()
        epochs = self._check_epoch_file()
        walk = OffsetWalk()
        checks = LogChecks(self.report, walk, EpochCheck(epochs, self.expected is not None), self.deep)
        self.report.segments = len(segments)
        if segments:
            self.report.log_start_offset = segments[0].base_offset
            walk.next_offset = segments[0].base_offset
        for number, segment in enumerate(segments):
            limit = segments[number + 1].base_offset if number + 1 < len(segments) else None
            self._check_segment(segment, checks, limit)
        self.report.log_end_offset = walk.next_offset
        self._report_offsets(walk)
        if epochs is not None and segments:
            self._check_epoch_range(epochs, walk.next_offset)

    def _committed(self, segments: list[SegmentFiles]) -> list[SegmentFiles]:
        """Return the segments that the ledger covers; report those behind it, and what is not there."""
        expected = self.expected
        if expected is None:
            return segments
        beyond = [each for each in segments if each.base_offset > expected.active_base_offset]
        for each in beyond:
            what = f"segment behind the committed end {expected.log_end_offset}"
            self.report.add("uncommitted", each.log_path.name, what)
        kept = segments[: len(segments) - len(beyond)]
        has_active = bool(kept) and kept[-1].base_offset == expected.active_base_offset
        if expected.active_size_bytes and not has_active:
            name = segment_file_name(expected.active_base_offset, LOG)
            self._missing(name, 0, expected.active_base_offset, expected.log_end_offset - 1, "segment is missing")
        first = kept[0].base_offset if kept else expected.log_end_offset
        if expected.log_start_offset < first and (kept or not expected.active_size_bytes):
            name = kept[0].log_path.name if kept else self.report.log
            self._missing(name, 0, expected.log_start_offset, first - 1, "segments before it are missing")
        return kept

    def _check_segment(self, segment: SegmentFiles, checks: LogChecks, limit: int | None) -> None:
        expected = self.expected
        is_active = limit is None
        with SegmentReader(segment) as reader:
            size = reader.size_bytes
            if is_active and expected is not None:
                limit = expected.log_end_offset
                if segment.base_offset == expected.active_base_offset:
                    self._check_size(reader, expected)
            indexes = IndexCheck(reader, self.report, is_active, expected is not None)
            if is_active and expected is not None and size < expected.active_size_bytes:
                indexes.skip(size, expected.active_size_bytes)  # said once, as missing bytes
            SegmentCheck(reader, checks, indexes, limit).run()
            indexes.finish()

    def _check_size(self, reader: SegmentReader, expected: ExpectedLog) -> None:
        name, size, committed = reader.files.log_path.name, reader.size_bytes, expected.active_size_bytes
        if size < committed:
            what = f"has {size} bytes, the ledger names {committed}"
            self.report.add("missing", name, what, size)
        elif size > committed:
            what = f"{size - committed} uncommitted bytes behind the committed {committed}"
            self.report.add("uncommitted", name, what, committed)
        reader.size_bytes = min(size, committed)

    def _report_offsets(self, walk: OffsetWalk) -> None:
        for lost in walk.lost:
            last = None if lost.last_offset is None else max(lost.last_offset, lost.first_offset)
            self._add("damage", lost.file, lost.position, lost.first_offset, last, lost.what)
        for fault in walk.faults:
            self._add("damage", fault.file, fault.position, fault.first_offset, fault.last_offset, fault.what)
        self._report_end(walk)
        has_gaps = self.expected.has_gaps if self.expected else None
        if has_gaps is None:
            has_gaps = walk.sparse_batches > 0 or walk.inside_gap_count > 1
        for gap in [] if has_gaps else [*walk.inside_gaps, *walk.border_gaps]:
            self._add("gap", gap.file, gap.position, gap.first_offset, gap.last_offset, gap.what)

    def _report_end(self, walk: OffsetWalk) -> None:
        """Compare the end with the ledger's; a segment that stops short of it shows as a gap before the limit."""
        expected = self.expected
        if expected is None or walk.next_offset == expected.log_end_offset or not self.report.segments:
            return
        name = segment_file_name(expected.active_base_offset, LOG)
        walk.border_gaps[:] = [gap for gap in walk.border_gaps if gap.last_offset != expected.log_end_offset - 1]
        if walk.next_offset < expected.log_end_offset:
            what = f"log ends at offset {walk.next_offset}, the ledger says {expected.log_end_offset}"
            self._missing(name, None, walk.next_offset, expected.log_end_offset - 1, what)

    def _check_epoch_range(self, epochs: list[tuple[int, int]], end: int) -> None:
        """Epochs start inside the log; where a ledger names it, every batch has one, so the first covers its start."""
        if epochs and epochs[-1][1] > end:
            what = f"epoch {epochs[-1][0]} starts at {epochs[-1][1]}, behind the log's end {end}"
            self.report.add("checkpoint", _EPOCH_FILE, what)
        if self.expected is None or not self.report.batches:
            return
        start = max(self.expected.log_start_offset, self.report.log_start_offset or 0)
        if not epochs:
            self.report.add("checkpoint", _EPOCH_FILE, f"names no epoch for offsets from {start} on")
        elif start < epochs[0][1] < end:
            self.report.add("checkpoint", _EPOCH_FILE, f"names no epoch for offsets {start}..{epochs[0][1] - 1}")

    def _check_leftovers(self, bases: set[int]) -> None:
        """Report files that belong to no segment; `bases` are those of the segments."""
        with storage_errors(self.report.directory):
            names = sorted(path.name for path in self.report.directory.iterdir())
        for name in names:
            if name.endswith(SWAP):
                self.report.add("damage", name, "replacement of segments was not finished; opening the log does")
            elif name.endswith(CLEANED):
                self.report.add("uncommitted", name, "segment that was not published")
            elif name.endswith((INDEX, TIMEINDEX)) and (base := parse_base_offset(name)) not in bases:
                is_beyond = self.expected is not None and (base or 0) > self.expected.active_base_offset
                self.report.add("uncommitted" if is_beyond else "index", name, "index without its .log")

    def _check_metadata(self) -> None:
        data = self._read(_METADATA_FILE)
        if data is None:
            return
        try:
            topic_id = parse_partition_metadata(data)
        except CorruptFileError as error:
            self.report.add("checkpoint", _METADATA_FILE, str(error))
            return
        if self.expected is not None and topic_id != self.expected.topic_id:
            what = f"has topic id {topic_id}, the ledger says {self.expected.topic_id}"
            self.report.add("checkpoint", _METADATA_FILE, what)

    def _check_epoch_file(self) -> list[tuple[int, int]] | None:
        data = self._read(_EPOCH_FILE)
        if data is None:
            return None
        try:
            epochs = parse_leader_epochs(data)
        except CorruptFileError as error:
            self.report.add("checkpoint", _EPOCH_FILE, str(error))
            return None
        if self.expected is not None and epochs and epochs[-1][0] > self.expected.leader_epoch:
            what = f"has epoch {epochs[-1][0]}, the ledger says {self.expected.leader_epoch}"
            self.report.add("checkpoint", _EPOCH_FILE, what)
        return epochs

    def _read(self, name: str) -> bytes | None:
        path = self.report.directory / name
        with storage_errors(path):
            if path.exists():
                return path.read_bytes()
        if self.expected is not None:
            self.report.add("checkpoint", name, "is missing")
        return None

    def _missing(self, file: str, position: int | None, first: int, last: int, what: str) -> None:
        self._add("missing", file, position, first, last, what)

    def _add(self, kind: FindingKind, file: str, position: int | None, first: int, last: int | None, what: str) -> None:
        self.report.findings.append(
            Finding(
                log=self.report.log,
                file=file,
                kind=kind,
                what=what,
                position=position,
                first_offset=first,
                last_offset=last,
            )
        )
