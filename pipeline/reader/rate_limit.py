"""How far a micro-batch may go: a limit shared among logs in proportion to what each has to offer.

Source: the options maxOffsetsPerTrigger and minOffsetsPerTrigger of Spark's Kafka connector.
"""

import math
from collections.abc import Mapping

from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["count_new_offsets", "limit_offsets"]

_Offsets = Mapping[TopicPartition, int]


def limit_offsets(limit: int, start: _Offsets, latest: _Offsets) -> dict[TopicPartition, int]:
    """Return where each log is to end: together about `limit` offsets behind the start, and each log gets at least one.

    Args:
        limit: above 0.
        start: where each log is read from; logs that it lacks are taken whole.
        latest: where each log ends.
    """
    sizes = {log: max(end - start.get(log, end), 0) for log, end in latest.items()}
    total = sum(sizes.values())
    if total <= limit:
        return dict(latest)
    ends = {}
    for log, end in latest.items():
        share = limit * sizes[log] / total
        taken = math.ceil(share) if share < 1 else math.floor(share)  # a small log is not starved
        ends[log] = min(end, start[log] + taken) if sizes[log] else end
    return ends


def count_new_offsets(start: _Offsets, latest: _Offsets) -> int:
    """Return how many offsets lie between the start and the end of all logs."""
    return sum(max(end - start.get(log, end), 0) for log, end in latest.items())
