"""Distributes the logs of a run over Spark tasks, so that all end at about the same time."""

import heapq
from collections.abc import Sequence

__all__ = ["slots_of"]


def slots_of(sizes: Sequence[int], count: int) -> list[int]:
    """Return a slot for each log: each goes to the slot with the smallest sum so far; slot 0 gets the first.

    Args:
        sizes: of the logs, falling; an empty log counts a little, too.
    """
    heap = [(0, slot) for slot in range(count)]
    found = []
    for size in sizes:
        load, slot = heapq.heappop(heap)
        found.append(slot)
        heapq.heappush(heap, (load + size + 1, slot))
    return found
