"""Truncation of one log, as tests of what follows it need it."""

from pathlib import Path

from sparklog.sink.operations.truncate_logs import truncate_logs
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["truncate_to"]


def truncate_to(root: Path, log: TopicPartition, offset: int, clock: Clock) -> bool:
    """Truncate a log; return whether it ended above the offset."""
    return bool(truncate_logs(root, lambda _: {log: offset}, clock))
