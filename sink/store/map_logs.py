"""Runs a function for each of many logs, on threads if a log takes long.

An answer from the page cache takes a fraction of a millisecond, and threads that share the interpreter for it take
twice as long as one. Waiting for a disk, or computing outside of the interpreter, takes longer; threads do that side by
side.
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
_CHUNK: Final = 16
"""Logs in one go."""

_LONG_S: Final = 0.001
"""For one log, from which on threads pay."""


def map_logs(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """Return the result of `work` for each item, in order.

    Args:
        work: safe on several threads. After an error running calls end, and no others begin.
    """
    began_s = time.perf_counter()
    found = [work(each) for each in items[:_CHUNK]]
    while len(found) < len(items) and time.perf_counter() - began_s <= len(found) * _LONG_S:
        found += [work(each) for each in items[len(found) : len(found) + _CHUNK]]
    if len(found) == len(items):
        return found
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="logs") as pool:
        starts = range(len(found), len(items), _CHUNK)
        chunks = pool.map(lambda start: [work(each) for each in items[start : start + _CHUNK]], starts)
        return found + [each for chunk in chunks for each in chunk]
