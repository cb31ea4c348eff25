"""A look at each of many logs, on threads where disks make it wait.

A listing that the page cache answers takes microseconds: threads that hand the interpreter to each other for it take
twice as long as one alone. A disk behind a network takes milliseconds, which threads wait for side by side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

__all__ = ["map_logs"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_THREADS: Final = 8
_CHUNK: Final = 64
"""Logs that are looked at in one go."""

_MUCH_WAITING: Final = 3.0
"""Waiting, as a multiple of computing, from which threads pay: below it, they lose more than they gain."""


def map_logs(look: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """Return what a look at each item finds, in their order; threads take over once looks wait for the most part.

    Args:
        look: at one log, safe to be called side by side; what it raises ends the whole.
        items: to look at.
    """
    found: list[_Result] = []
    waits = False
    while len(found) < len(items) and not waits:
        began_s, computed_s = time.perf_counter(), time.thread_time()
        found += [look(each) for each in items[len(found) : len(found) + _CHUNK]]
        computed_s = time.thread_time() - computed_s
        waits = time.perf_counter() - began_s > (1 + _MUCH_WAITING) * computed_s
    rest = range(len(found), len(items), _CHUNK)
    if rest:
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="logs") as pool:
            chunks = pool.map(lambda start: [look(each) for each in items[start : start + _CHUNK]], rest)
            found += [each for chunk in chunks for each in chunk]
    return found
