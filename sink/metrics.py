"""What one micro-batch did and what it cost."""

from dataclasses import dataclass

__all__ = ["CommitCosts", "MicroBatchMetrics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitCosts:
    """What it took to make a staged micro-batch count.

    Attributes:
        logs: how many logs grew.
        rolls: how many segments were started.
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
        bytes: what the logs grew by.
        logs: how many logs grew.
        rolls: how many segments were started.
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
