"""What a check of logs expects and finds.

Kinds of findings, and what to do about each:

| kind        | meaning                                                                                      |
|-------------|----------------------------------------------------------------------------------------------|
| damage      | bytes of a `.log` are wrong: restore, or repair                                              |
| missing     | committed bytes or files are gone: restore                                                   |
| gap         | offsets are missing in a log that has no other gaps: a lost segment, unless it was compacted |
| uncommitted | bytes, entries or segments behind the committed end: what a running or killed writer leaves  |
| index       | an index file contradicts its log: rebuild                                                   |
| checkpoint  | a small file beside the log is wrong: rebuild                                                |
| nothing     | there was nothing to check                                                                   |
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

__all__ = ["ExpectedLog", "Finding", "FindingKind", "LogReport"]

FindingKind = Literal["damage", "missing", "gap", "uncommitted", "index", "checkpoint", "nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedLog:
    """What a ledger says of one log.

    Attributes:
        active_base_offset: base offset of the active segment.
        active_size_bytes: committed bytes of its `.log`.
        leader_epoch: the newest epoch a batch may have.
        has_gaps: whether offsets may be missing (compacted, or preserved from a log with gaps); None = judge by the
            log.
    """

    log_start_offset: int
    log_end_offset: int
    active_base_offset: int
    active_size_bytes: int
    topic_id: str
    leader_epoch: int
    has_gaps: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        log: name of the log's directory.
        file: name of the file, or of the directory itself.
        position: byte position in the file, or None where it is about the whole file.
        first_offset, last_offset: the offsets that are affected, as far as they are known.
        kind: one of the table above.
        what: what is wrong, for a person.
    """

    log: str
    file: str
    kind: FindingKind
    what: str
    position: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None

    def __str__(self) -> str:
        place = "" if self.position is None else f" position={self.position}"
        last = "?" if self.last_offset is None else self.last_offset
        offsets = "" if self.first_offset is None else f" offsets={self.first_offset}..{last}"
        return f"{self.kind}: {self.log}/{self.file}{place}{offsets} {self.what}"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, for JSON."""
        return asdict(self)


@dataclass(slots=True)
class LogReport:
    """The result of checking one log.

    Attributes:
        directory: of the log.
        segments: number of segments looked at.
        batches, bytes_checked: whose CRC was computed.
        log_start_offset, log_end_offset: as found.
        findings: everything that is wrong, in the order it was met.
    """

    directory: Path
    segments: int = 0
    batches: int = 0
    bytes_checked: int = 0
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def log(self) -> str:
        """Name of the log's directory."""
        return self.directory.name

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def add(self, kind: FindingKind, file: str, what: str, position: int | None = None) -> None:
        """Note a finding that is not about certain offsets."""
        self.findings.append(Finding(log=self.log, file=file, kind=kind, what=what, position=position))

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
