"""Flush policy: decides which logs a commit syncs, and which stay in the page cache.

A log that is not synced keeps its recovery point: records above it survive the death of the process, but maybe not a
power cut. A log that begins a segment is always synced as a whole: the name of a segment is durable before the ledger
names it, and unsynced bytes lie only in the active segment.

As in Kafka, `flush.messages` counts the offsets above the recovery point, with those of the append, and `flush.ms` the
time since the last sync by a monotonic clock. There is no timer: each commit checks the time for every log of the
store.

Source: Kafka UnifiedLog.append and roll, LogManager.flushDirtyLogs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.log_config import LogConfig

__all__ = ["FLUSH_LIMITS", "LogLimits", "flush_limits", "is_flush_due_by_log"]

FLUSH_LIMITS = np.dtype([("messages", np.int64), ("ms", np.int64)])
"""One row per log: its topic's `flush.messages` and `flush.ms`; 2^63-1 is never."""


@dataclass(frozen=True, slots=True)
class LogLimits:
    """Limits of every log of a store, by ledger row.

    Attributes:
        roll: (n,) `ROLL_LIMITS`.
        flush: (n,) `FLUSH_LIMITS`.
    """

    roll: npt.NDArray[np.void]
    flush: npt.NDArray[np.void]


def flush_limits(configs: Mapping[str, LogConfig], topics: Sequence[str]) -> npt.NDArray[np.void]:
    """Return (n,) `FLUSH_LIMITS` of logs by their topics; without settings they are synced by every commit."""
    default = LogConfig()
    known = {topic: configs.get(topic, default) for topic in set(topics)}
    by_topic = {topic: (config.flush_messages, config.flush_ms) for topic, config in known.items()}
    return np.array([by_topic[topic] for topic in topics], FLUSH_LIMITS)


def is_flush_due_by_log(
    limits: npt.NDArray[np.void],
    log_end_offset: npt.NDArray[np.int64],
    recovery_point: npt.NDArray[np.int64],
    synced_ms: npt.NDArray[np.int64],
    monotonic_ms: int,
) -> npt.NDArray[np.bool_]:
    """Return (n,) which logs a commit has to sync.

    Args:
        limits: (n,) `FLUSH_LIMITS`.
        log_end_offset: (n,) once the commit counts.
        recovery_point: (n,) so far.
        synced_ms: (n,) when each log was synced last, by the monotonic clock.
        monotonic_ms: that clock.
    """
    unflushed = log_end_offset - recovery_point
    is_due: npt.NDArray[np.bool_] = (unflushed > 0) & (
        (unflushed >= limits["messages"]) | (monotonic_ms - synced_ms >= limits["ms"])
    )
    return is_due
