"""Groups neighbouring segments that a cleaning merges into one, within the limits of a segment.

A group takes the next segment while all of this holds:

| what                                     | at most               |
|------------------------------------------|-----------------------|
| bytes of the `.log` files                | `segment.bytes`       |
| bytes of the offset indexes              | `segment.index.bytes` |
| bytes of the time indexes                | `segment.index.bytes` |
| last offset minus the group's first base | 2147483647            |

The last limit does not apply to an empty segment: otherwise one would stay for every 2^31 offsets. The first segment of
a group may have any size. Each group becomes one segment with the first one's base offset.

Source: Kafka Cleaner.groupSegmentsBySize, lastOffsetForFirstSegment; KAFKA-6568.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparklog.storage_core.cleaner.survey.listed_segments import ListedSegment
from sparklog.storage_core.log_config import INT32_MAX, LogConfig

__all__ = ["group_segments_by_size"]


def group_segments_by_size(
    segments: Sequence[ListedSegment], config: LogConfig, first_uncleanable_offset: int
) -> list[list[ListedSegment]]:
    """Return the segments in groups, each of which is cleaned into one segment.

    Args:
        first_uncleanable_offset: upper bound of the last one's end.
    """
    groups: list[list[ListedSegment]] = []
    sums = (0, 0, 0)
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        last_offset = (first_uncleanable_offset if is_last else segments[number + 1].base_offset) - 1
        sizes = (segment.size_bytes, segment.index_bytes, segment.time_index_bytes)
        together = (sums[0] + sizes[0], sums[1] + sizes[1], sums[2] + sizes[2])
        is_reached = segment.size_bytes == 0 or (groups and last_offset - groups[-1][0].base_offset <= INT32_MAX)
        if groups and is_reached and _fits(together, config):
            groups[-1].append(segment)
            sums = together
        else:
            groups.append([segment])
            sums = sizes
    return groups


def _fits(sums: tuple[int, int, int], config: LogConfig) -> bool:
    log_bytes, index_bytes, time_index_bytes = sums
    return log_bytes <= config.segment_bytes and max(index_bytes, time_index_bytes) <= config.segment_index_bytes
