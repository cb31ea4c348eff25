"""Limits the offsets of a micro-batch: each log gets a share in proportion to its unread offsets.

Source: the options maxOffsetsPerTrigger and minOffsetsPerTrigger of Spark's Kafka connector.
"""

import math
from collections.abc import Mapping

from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["count_new_offsets", "limit_offsets"]

_Offsets = Mapping[TopicPartition, int]


def limit_offsets(limit: int, start: _Offsets, latest: _Offsets) -> dict[TopicPartition, int]:
    """Return the end offset of each log: together about `limit` offsets, at least one of each log with unread offsets.

    Args:
        limit: above 0.
        start: start offset of each log; logs without one are read to their end.
        latest: end offset of each log.
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
    """Return the number of offsets between start and end of all logs."""
    return sum(max(end - start.get(log, end), 0) for log, end in latest.items())
