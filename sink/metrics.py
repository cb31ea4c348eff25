"""Counts and times of one micro-batch."""

from dataclasses import dataclass

__all__ = ["CommitCosts", "MicroBatchMetrics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitCosts:
    """Counts and times of the commit of a staged micro-batch.

    Attributes:
        logs: number of logs that grew.
        rolls: number of segments that were started.
    """

    logs: int
    rolls: int
    place_ms: int
    sync_ms: int
    commit_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchMetrics:
    """Counts and times of one micro-batch.

    Attributes:
        replayed: it was committed before; nothing was done.
        bytes: growth of the logs.
        logs: number of logs that grew.
        rolls: number of segments that were started.
        quarantined: rows diverted.
    """

    query_id: str
    batch_id: int
    replayed: bool = False
    records: int = 0
    bytes: int = 0
    logs: int = 0
    rolls: int = 0
    quarantined: int = 0
    stage_ms: int = 0
    place_ms: int = 0
    sync_ms: int = 0
    commit_ms: int = 0
    total_ms: int = 0
