"""Selects the offsets of a mirror's next micro-batch."""

from collections.abc import Mapping

from sparklog.pipeline.brokers.source_topics import Offsets

__all__ = ["Ranges", "plan_ranges"]

Ranges = Mapping[tuple[str, int], tuple[int, int]]
"""Start and end offset, by topic and partition."""


def plan_ranges(starts: Offsets, ends: Offsets, most: int) -> dict[tuple[str, int], tuple[int, int]]:
    """Return the offsets to read of each log that has some; of more than `most` each log's share of them.

    Args:
        starts: where each log goes on.
        ends: where it ends at the source.
        most: about so many offsets; each log gets at least one.
    """
    lag = {log: end - starts[log] for log, end in ends.items() if end > starts[log]}
    total = sum(lag.values())
    if total <= most:
        return {log: (starts[log], ends[log]) for log in lag}
    return {log: (starts[log], starts[log] + max(1, each * most // total)) for log, each in lag.items()}
