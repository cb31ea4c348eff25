"""Where a log ends by its ledger: bytes past that end are partial writes."""

from dataclasses import dataclass

__all__ = ["CommittedEnd"]


@dataclass(frozen=True, slots=True)
class CommittedEnd:
    """Where a log ends by its ledger.

    Attributes:
        segment_base: base offset of the active segment.
        size_bytes: committed bytes of its `.log`.
        log_end_offset: next offset to write.
    """

    segment_base: int
    size_bytes: int
    log_end_offset: int
