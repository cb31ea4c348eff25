"""What a check of logs expects and finds.

Kinds of findings, and what to do about each:

| kind        | meaning                                                                                      |
|-------------|----------------------------------------------------------------------------------------------|
| damage      | bytes of a `.log` are wrong: restore, or repair                                              |
| missing     | committed bytes or files are gone: restore, or repair                                        |
| gap         | offsets are missing in a log that has no other gaps: a lost segment, unless it was compacted |
| known       | offsets that a repair has written down as lost                                               |
| uncommitted | bytes, entries or segments above the end: what a running or killed writer leaves             |
| index       | an index file contradicts its log: rebuild                                                   |
| sparse      | an index that holds less than it may: right, but slow                                        |
| checkpoint  | a small file beside the log, or in its root, is wrong: rebuild                               |
| foreign     | something that may not lie where it lies: a broker refuses to start on it, or ignores it     |
| forgotten   | records of keys that were erased are there: a copy from before was put back                  |
| pending     | records of keys to forget, or old files that may hold some, wait for maintenance             |
| nothing     | there was nothing to check                                                                   |

Each finding also names the rule that was broken, one per check.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from sparklog.storage_core.index.transaction_index import AbortedTransaction

__all__ = ["HARMLESS_KINDS", "ExpectedLog", "Finding", "FindingKind", "LogReport", "OffsetRange", "Rule", "is_within"]

FindingKind = Literal[
    "damage",
    "missing",
    "gap",
    "known",
    "uncommitted",
    "index",
    "sparse",
    "checkpoint",
    "foreign",
    "forgotten",
    "pending",
    "nothing",
]

HARMLESS_KINDS: Final = frozenset({"known", "uncommitted", "sparse", "pending", "nothing"})
"""Kinds that do not make a log unsound."""

Rule = Literal[
    "crc",
    "length",
    "magic",
    "zeros",
    "unreadable",
    "base-offset",
    "surplus",
    "leader-epoch",
    "record-count",
    "records",
    "wrapper",
    "marker",
    "gap",
    "ledger-end",
    "ledger-size",
    "ledger-surplus",
    "control-file",
    "segment",
    "directory",
    "offset-index",
    "time-index",
    "txn-index",
    "orphan-index",
    "cleaned",
    "swap",
    "name",
    "snapshot",
    "partition-metadata",
    "leader-epoch-checkpoint",
    "offset-checkpoint",
    "meta-properties",
    "root-entry",
    "forgotten-keys",
    "newer-release",
    "object",
    "nothing",
]

OffsetRange = tuple[int, int]
"""First and last offset, both included."""

_LEAVE_OUT: Final = (
    "restore from a copy, or repair --execute leaves the bytes out and writes their offsets down as lost"
)
_LOST: Final = "restore from a copy, or repair --execute writes the offsets down as lost"
_REBUILD: Final = "repair --execute rebuilds it"
_REMEDIES: Final[dict[Rule, str]] = {
    "crc": _LEAVE_OUT,
    "length": _LEAVE_OUT,
    "magic": _LEAVE_OUT,
    "zeros": _LEAVE_OUT,
    "wrapper": _LEAVE_OUT,
    "marker": "restore from a copy: without it its transaction has no end",
    "unreadable": "look at the disk, then restore from a copy",
    "base-offset": "repair --execute sets the offset that is due; without proof of it, restore from a copy",
    "surplus": "repair --execute leaves the bytes out: no offset is lost with them",
    "leader-epoch": "repair --execute sets the epoch that is due",
    "record-count": "the batch was written like that: rewrite the log from its source",
    "records": "the batch was written like that: rewrite the log from its source",
    "gap": _LOST,
    "ledger-end": _LOST,
    "ledger-surplus": "restore ledger, logs and control folder of one moment, or repair --execute cuts the bytes off",
    "control-file": "restore it from a copy; until then bytes above a committed end are not noticed",
    "ledger-size": "restore from a copy, or repair --execute records the offsets above the last sound batch as lost",
    "segment": _LOST,
    "directory": _LOST,
    "object": _LOST,
    "offset-index": _REBUILD,
    "time-index": _REBUILD,
    "txn-index": _REBUILD,
    "orphan-index": "restore its .log from a copy, or repair --execute drops it",
    "cleaned": "repair --execute drops it, and so does a broker",
    "swap": "repair --execute finishes the replacement, and so does a broker",
    "name": "move it away",
    "snapshot": "repair --execute drops it, a broker makes another",
    "partition-metadata": "repair --execute writes it from the ledger; in a plain folder restore it from another log",
    "leader-epoch-checkpoint": _REBUILD,
    "offset-checkpoint": "in a store repair --execute writes it anew; otherwise delete it, a broker makes another",
    "meta-properties": "restore it from a copy",
    "root-entry": "move it away: a broker does not start on it",
    "forgotten-keys": "restore the request's file from a copy, or delete it and make it again: sparklog forget",
    "newer-release": "verify with the release that wrote it, and leave it as it is",
    "nothing": "name another folder",
}
_DOUBTFUL: Final = "compare with a copy: the base offset of the log's last batch is wrong, or offsets are missing"
_UNCOMMITTED_REMEDY: Final = "none: a writer is adding it, or the next one cuts it off"
_BOUNDED_REMEDY: Final = "none: a broker takes the log's end instead"
_OTHER_REMEDIES: Final[dict[FindingKind, str]] = {
    "uncommitted": _UNCOMMITTED_REMEDY,
    "known": "none: it is written down",
    "sparse": "none needed: lookups are right; repair --execute rebuilds it",
    "forgotten": "make the request again: sparklog forget",
    "pending": "sparklog maintain --execute does the rest",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedLog:
    """What a ledger holds of one log.

    Attributes:
        active_base_offset: base offset of the active segment.
        active_size_bytes: committed bytes of its `.log`.
        leader_epoch: the newest epoch a batch may have.
        recovery_point: every offset below it is fsynced; None where that is not recorded.
        has_gaps: whether offsets may be missing, because the log is compacted; None = judge by the log.
        preserves_offsets: whether offsets come from elsewhere: a gap is the source's, and no damage of this log.
        first_unstable_offset: first offset of a transaction that stays open for good, -1 none.
    """

    log_start_offset: int
    log_end_offset: int
    active_base_offset: int
    active_size_bytes: int
    topic_id: str
    leader_epoch: int
    recovery_point: int | None = None
    has_gaps: bool | None = None
    preserves_offsets: bool = False
    first_unstable_offset: int = -1

    @property
    def last_stable_offset(self) -> int:
        """Where `read_committed` ends."""
        unstable = self.first_unstable_offset
        return self.log_end_offset if unstable < 0 else max(unstable, self.log_start_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        log: name of the log's directory, or of the root.
        file: name of the file, or of the directory itself.
        position: byte position in the file, or None where it is about the whole file.
        end_position: where the bytes that it is about end, if that is known.
        first_offset, last_offset: the offsets that are affected, as far as they are known.
        due: the number that should stand there, if that is known: a base offset, a leader epoch.
        kind: one of the table above.
        rule: the rule that is broken.
        what: what is wrong, for a person.
    """

    log: str
    file: str
    kind: FindingKind
    rule: Rule
    what: str
    position: int | None = None
    end_position: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    due: int | None = None

    def __str__(self) -> str:
        place = "" if self.position is None else f" position={self.position}"
        last = "?" if self.last_offset is None else self.last_offset
        offsets = "" if self.first_offset is None else f" offsets={self.first_offset}..{last}"
        return f"{self.kind}: {self.log}/{self.file}{place}{offsets} {self.what}"

    @property
    def remedy(self) -> str:
        """What to do about it, in one sentence."""
        if self.kind == "gap" and self.due is not None:
            return _DOUBTFUL
        if self.kind == "uncommitted" and self.rule == "offset-checkpoint":
            return _BOUNDED_REMEDY
        other = _OTHER_REMEDIES.get(self.kind)
        return _REMEDIES[self.rule] if other is None or self.rule == "cleaned" else other

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, for JSON."""
        return {**asdict(self), "remedy": self.remedy}


@dataclass(slots=True)
class LogReport:
    """The result of checking one log.

    Attributes:
        directory: of the log.
        segments: number of segments looked at.
        batches, bytes_checked: whose CRC was computed.
        log_start_offset, log_end_offset: as found.
        findings: everything that is wrong, in the order it was met.
        aborted: by base offset of a segment, what its index of aborted transactions should hold.
        epochs: (epoch, start offset) entries of the leader epochs in the batches.
    """

    directory: Path
    segments: int = 0
    batches: int = 0
    bytes_checked: int = 0
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    findings: list[Finding] = field(default_factory=list)
    aborted: dict[int, list[AbortedTransaction]] = field(default_factory=dict)
    epochs: list[tuple[int, int]] = field(default_factory=list)

    @property
    def log(self) -> str:
        """Name of the log's directory."""
        return self.directory.name

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def add(self, kind: FindingKind, rule: Rule, file: str, what: str, position: int | None = None) -> None:
        """Note a finding that is not about certain offsets."""
        finding = Finding(log=self.log, file=file, kind=kind, rule=rule, what=what, position=position)
        self.findings.append(finding)

    def add_offsets(
        self,
        kind: FindingKind,
        rule: Rule,
        file: str,
        what: str,
        offsets: tuple[int | None, int | None],
        **place: int | None,
    ) -> None:
        """Note a finding about offsets; `place` has `position`, `end_position` and `due`."""
        first, last = offsets
        self.findings.append(
            Finding(
                log=self.log, file=file, kind=kind, rule=rule, what=what, first_offset=first, last_offset=last, **place
            )
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {
            "log": self.log,
            "directory": str(self.directory),
            "segments": self.segments,
            "batches": self.batches,
            "bytes_checked": self.bytes_checked,
            "log_start_offset": self.log_start_offset,
            "log_end_offset": self.log_end_offset,
            "findings": [finding.as_dict() for finding in self.findings],
        }


def is_within(offsets: OffsetRange, known: Sequence[OffsetRange]) -> bool:
    """Whether every offset of a range lies in one of some sorted ranges, which may touch each other."""
    first, last = offsets
    for low, high in sorted(known):
        if low <= first <= high:
            first = high + 1
    return first > last
