"""What a repair does about the findings of a check. Decides, touches nothing.

Damaged bytes are left out of their segment and the rest stays where its offsets are: Kafka reads over offsets that are
missing, as compaction leaves them. At the end of a plain folder's log the bytes are simply cut, as a broker cuts them,
and the log ends earlier. A store's committed end never goes back: there an empty batch, as compaction leaves one too,
stands for the offsets up to the end.

Source: Kafka LogLoader, LogSegment.recover, LogCleaner (empty batches); KIP-98.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from sparklog.storage_core.checkpoint.leader_epochs import render_leader_epochs
from sparklog.storage_core.checkpoint.partition_metadata import render_partition_metadata
from sparklog.storage_core.inspect.verify.findings import (
    HARMLESS_KINDS,
    ExpectedLog,
    Finding,
    LogReport,
    OffsetRange,
    Rule,
)
from sparklog.storage_core.inspect.verify.small_files import EPOCH_FILE, METADATA_FILE
from sparklog.storage_core.log.files.names import CLEANED, DELETED, LOG, SWAP, parse_base_offset, segment_file_name
from sparklog.storage_core.log_config import INT32_MAX

__all__ = ["HeaderPatch", "LogRepair", "LostOffsets", "RepairStep", "SegmentRewrite", "plan_repair"]

_LEFT_OUT: Final[frozenset[Rule]] = frozenset({"crc", "length", "magic", "zeros", "wrapper", "surplus"})
_DROPPED: Final[frozenset[Rule]] = frozenset({"snapshot", "orphan-index"})
_INDEX_RULES: Final[frozenset[Rule]] = frozenset({"offset-index", "time-index", "txn-index"})

Field = Literal["base_offset", "leader_epoch"]


@dataclass(frozen=True, slots=True)
class HeaderPatch:
    """A header field outside the CRC that is set to what is due, in every v2 batch that starts in [start, end)."""

    field: Field
    start: int
    end: int
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRewrite:
    """One segment as it has to be.

    Attributes:
        used_bytes: of its `.log`, from its start; what lies past them was never committed. 0 where the file is gone.
        left_out: (start, end) of bytes that go, in order.
        fill: offsets that an empty batch at the end stands for.
    """

    base_offset: int
    used_bytes: int
    left_out: tuple[tuple[int, int], ...] = ()
    patches: tuple[HeaderPatch, ...] = ()
    fill: OffsetRange | None = None


@dataclass(frozen=True, slots=True)
class LostOffsets:
    """Offsets that are gone for good; `last` is None where the log's own end is not known."""

    first: int
    last: int | None
    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class RepairStep:
    """One change, for people."""

    log: str
    file: str
    what: str


@dataclass(slots=True)
class LogRepair:
    """Everything that is to be done to one log.

    Attributes:
        leftovers: files that no log has any use for.
        has_swaps: whether a replacement of segments has to be finished first; then the rest is planned again.
        makes_directory: whether the directory is gone.
        rewrites: segments whose `.log` changes; their indexes are built anew as well.
        rebuilds: base offsets of further segments whose indexes are built anew.
        dropped: files that go, and are kept beside.
        written: new content of small files.
        lost: offsets to write down first.
        log_start_offset: the ledger's new one, None if it stays.
        checks_size: whether the ledger's size of the active segment has to be compared with the file.
        left: findings that nothing is done about.
    """

    log: str
    leftovers: list[str] = field(default_factory=list)
    has_swaps: bool = False
    makes_directory: bool = False
    rewrites: list[SegmentRewrite] = field(default_factory=list)
    rebuilds: list[int] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    written: dict[str, bytes] = field(default_factory=dict)
    lost: list[LostOffsets] = field(default_factory=list)
    log_start_offset: int | None = None
    checks_size: bool = False
    left: list[Finding] = field(default_factory=list)

    def steps(self) -> list[RepairStep]:
        """Return the changes in their order."""
        done = [RepairStep(self.log, name, "drop a leftover") for name in self.leftovers]
        if self.has_swaps:
            done.append(RepairStep(self.log, self.log, "finish the replacement of segments; then plan again"))
        if self.makes_directory:
            done.append(RepairStep(self.log, self.log, "make the directory"))
        for lost in self.lost:
            end = "?" if lost.last is None else lost.last
            done.append(RepairStep(self.log, lost.file, f"write down offsets {lost.first}..{end} as lost"))
        for each in self.rewrites:
            done += [RepairStep(self.log, segment_file_name(each.base_offset, LOG), what) for what in _changes(each)]
        for base in self.rebuilds:
            done.append(RepairStep(self.log, segment_file_name(base, ""), "build its indexes anew"))
        done += [RepairStep(self.log, name, "drop it, keep it beside") for name in self.dropped]
        done += [RepairStep(self.log, name, "write it anew") for name in self.written]
        if self.log_start_offset is not None:
            done.append(RepairStep(self.log, "ledger", f"let the log start at offset {self.log_start_offset}"))
        if self.checks_size:
            done.append(RepairStep(self.log, "ledger", "take over the active segment's size"))
        return done


def _changes(rewrite: SegmentRewrite) -> Iterable[str]:
    for start, end in rewrite.left_out:
        yield f"leave out bytes {start}..{end - 1}, keep them beside"
    for patch in rewrite.patches:
        yield f"set {patch.field} at position {patch.start} to {patch.value}"
    if rewrite.fill is not None:
        yield f"add an empty batch for offsets {rewrite.fill[0]}..{rewrite.fill[1]}"


def plan_repair(report: LogReport, expected: ExpectedLog | None, sizes: Mapping[str, int]) -> LogRepair:
    """Return what is to be done about a log's findings.

    Args:
        report: of the log.
        expected: what the ledger holds of it, None in a plain folder.
        sizes: of the files in its directory, by name.
    """
    repair = LogRepair(report.log)
    repair.left = [each for each in report.findings if each.rule == "unreadable"]
    if repair.left:
        return repair  # what can't be read may be whole
    names = sorted(sizes)
    repair.has_swaps = any(name.endswith(SWAP) for name in names)
    if not repair.has_swaps:  # which of these go is decided with the replacement
        repair.leftovers = [name for name in names if name.endswith((CLEANED, DELETED))]
    findings = [_with_marker(each, report) for each in _with_epoch_file_blamed(report)]
    by_segment: dict[int, list[Finding]] = defaultdict(list)
    for finding in findings:
        base = parse_base_offset(finding.file)
        if finding.kind in ("damage", "missing") and base is not None and finding.file.endswith(LOG):
            by_segment[base].append(finding)
        _plan_beside(repair, finding, base, expected)
    for base, of_segment in sorted(by_segment.items()):
        _plan_segment(repair, base, of_segment, expected, sizes)
    rewritten = {each.base_offset for each in repair.rewrites}
    repair.rebuilds = sorted(set(repair.rebuilds) - rewritten)
    _leave_doubtful(repair, findings)
    _plan_epochs(repair, findings, report, expected, sizes)
    return repair


def _leave_doubtful(repair: LogRepair, findings: Sequence[Finding]) -> None:
    """Leave segments with doubtful base offsets as they are: other damage may be the only evidence."""
    doubtful = {
        parse_base_offset(each.file)
        for each in repair.left
        if each.rule == "base-offset" or (each.rule == "gap" and each.due is not None)
    }
    if not doubtful:
        return
    known = {id(each) for each in repair.left}
    repair.left += [
        each
        for each in findings
        if parse_base_offset(each.file) in doubtful
        and each.kind not in HARMLESS_KINDS
        and each.rule not in _DROPPED
        and id(each) not in known
    ]
    repair.rebuilds = [base for base in repair.rebuilds if base not in doubtful]
    repair.rewrites = [each for each in repair.rewrites if each.base_offset not in doubtful]
    repair.lost = [each for each in repair.lost if parse_base_offset(each.file) not in doubtful]
    repair.checks_size &= bool(repair.rewrites)


def _with_epoch_file_blamed(report: LogReport) -> list[Finding]:
    """Return the findings; where most bytes of a log disagree with its epoch file, it is the file that is wrong."""
    epochs = [each for each in report.findings if each.rule == "leader-epoch"]
    disagreeing = sum((each.end_position or 0) - (each.position or 0) for each in epochs)
    is_file_wrong = any(each.rule == "leader-epoch-checkpoint" for each in report.findings)
    if not epochs or not (is_file_wrong or disagreeing * 2 > report.bytes_checked):
        return report.findings
    blamed = replace(epochs[0], file=EPOCH_FILE, rule="leader-epoch-checkpoint", kind="checkpoint")
    return [each for each in report.findings if each.rule != "leader-epoch"] + [blamed]


def _with_marker(finding: Finding, report: LogReport) -> Finding:
    """Return a finding; one about lost bytes in which a transaction was aborted by its index is about that."""
    aborted = report.aborted.get(parse_base_offset(finding.file) or 0, ())
    if finding.rule not in _LEFT_OUT or finding.first_offset is None or finding.last_offset is None:
        return finding
    offsets = range(finding.first_offset, finding.last_offset + 1)
    return replace(finding, rule="marker") if any(each.last_offset in offsets for each in aborted) else finding


def _plan_beside(repair: LogRepair, finding: Finding, base: int | None, expected: ExpectedLog | None) -> None:
    """Plan for a finding that is not about the bytes of a segment."""
    rule = finding.rule
    if rule in _INDEX_RULES and finding.kind in ("index", "sparse") and base is not None:
        repair.rebuilds.append(base)
    elif rule == "snapshot" or (rule == "orphan-index" and finding.kind == "index"):
        repair.dropped.append(finding.file)
    elif rule == "gap" and finding.kind == "gap" and finding.due is not None:
        repair.left.append(finding)  # a wrong base offset, or offsets that are missing: there is no evidence
    elif rule == "gap" and finding.kind == "gap":
        repair.lost.append(_lost(finding))
    elif rule == "directory" and expected is not None:
        _plan_directory(repair, finding, expected)
    elif rule == "segment" and base is None and expected is not None:
        repair.lost.append(_lost(finding))
        _plan_start(repair, expected, expected.log_end_offset)
    elif rule == "partition-metadata" and expected is not None:
        repair.written[METADATA_FILE] = render_partition_metadata(expected.topic_id)
    elif rule in ("record-count", "records", "name", "partition-metadata"):
        repair.left.append(finding)


def _plan_directory(repair: LogRepair, finding: Finding, expected: ExpectedLog) -> None:
    """A whole log is gone: its active segment holds the end, by an empty batch."""
    repair.makes_directory = True
    repair.written[METADATA_FILE] = render_partition_metadata(expected.topic_id)
    repair.written[EPOCH_FILE] = _epochs([], expected, expected.log_start_offset)
    if expected.log_start_offset < expected.log_end_offset:
        repair.lost.append(_lost(finding))
        _plan_start(repair, expected, expected.active_base_offset)
    if expected.active_size_bytes:
        fill = (expected.active_base_offset, expected.log_end_offset - 1)
        repair.rewrites.append(SegmentRewrite(base_offset=expected.active_base_offset, used_bytes=0, fill=fill))
        repair.checks_size = True


def _plan_start(repair: LogRepair, expected: ExpectedLog, first_base: int) -> None:
    """Let the log start at the first segment that is there."""
    if expected.log_start_offset < first_base:
        repair.log_start_offset = first_base


def _plan_epochs(
    repair: LogRepair,
    findings: Sequence[Finding],
    report: LogReport,
    expected: ExpectedLog | None,
    sizes: Mapping[str, int],
) -> None:
    """In a store the batches name their epochs, up to that of the ledger; elsewhere a broker makes the file from them.

    The first one starts where the log will: nothing else shows a stream that the records below are gone.
    """
    is_wrong = any(each.rule == "leader-epoch-checkpoint" for each in findings)
    is_due = is_wrong and EPOCH_FILE not in repair.written
    if expected is not None and (is_due or repair.log_start_offset is not None):
        start = expected.log_start_offset if repair.log_start_offset is None else repair.log_start_offset
        repair.written[EPOCH_FILE] = _epochs(report.epochs, expected, start)
    elif is_due and expected is None and EPOCH_FILE in sizes and EPOCH_FILE not in repair.dropped:
        repair.dropped.append(EPOCH_FILE)


def _epochs(entries: Sequence[tuple[int, int]], expected: ExpectedLog, start: int) -> bytes:
    known = [each for each in entries if each[0] <= expected.leader_epoch and each[1] > start]
    before = [epoch for epoch, first in entries if epoch <= expected.leader_epoch and first <= start]
    first = before[-1] if before else known.pop(0)[0] if known else expected.leader_epoch
    return render_leader_epochs([(first, start), *known])


def _plan_segment(
    repair: LogRepair, base: int, findings: Sequence[Finding], expected: ExpectedLog | None, sizes: Mapping[str, int]
) -> None:
    """Plan for what is wrong with one `.log`."""
    size = sizes.get(segment_file_name(base, LOG), 0)
    is_active = expected is not None and base == expected.active_base_offset
    used = min(size, expected.active_size_bytes) if expected is not None and is_active else size
    left_out: list[tuple[int, int]] = []
    patches: list[HeaderPatch] = []
    fill: OffsetRange | None = None
    for finding in findings:
        if finding.rule in _LEFT_OUT and finding.position is not None and finding.end_position is not None:
            left_out.append((finding.position, finding.end_position))
        elif (patch := _patch(finding)) is not None:
            patches.append(patch)
            continue
        elif finding.rule == "ledger-size":
            repair.checks_size = True
            continue
        elif finding.kind != "missing":
            if finding.rule in ("base-offset", "leader-epoch", "marker"):
                repair.left.append(finding)
            continue
        if _has_lost_offsets(finding):
            repair.lost.append(_lost(finding))
        if expected is not None and is_active and finding.last_offset == expected.log_end_offset - 1:
            fill = (finding.first_offset or 0, finding.last_offset)
        elif expected is not None and finding.rule == "segment":
            _plan_start(repair, expected, base)
    if left_out or patches or fill is not None:
        repair.checks_size |= is_active
        repair.rewrites.append(
            SegmentRewrite(
                base_offset=base,
                used_bytes=used,
                left_out=tuple(sorted(left_out)),
                patches=tuple(patches),
                fill=fill,
            )
        )


def _patch(finding: Finding) -> HeaderPatch | None:
    if finding.due is None or finding.position is None:
        return None
    if finding.rule == "base-offset":
        return HeaderPatch("base_offset", finding.position, finding.position + 1, finding.due)
    if finding.rule == "leader-epoch" and 0 <= finding.due <= INT32_MAX:
        end = finding.end_position or finding.position + 1
        return HeaderPatch("leader_epoch", finding.position, end, finding.due)
    return None


def _has_lost_offsets(finding: Finding) -> bool:
    """Whether offsets went with the bytes; zeros at an open end are room for more."""
    return finding.first_offset is not None and (finding.last_offset is not None or finding.rule != "zeros")


def _lost(finding: Finding) -> LostOffsets:
    return LostOffsets(finding.first_offset or 0, finding.last_offset, finding.file, finding.what)
