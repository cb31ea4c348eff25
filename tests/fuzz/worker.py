"""The process that runs cases, under a limit on its memory."""

import mmap
import os
import resource
import time
import traceback
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from random import Random

from tests.fuzz.targets import TARGETS

__all__ = ["MEMORY_BUDGET_MB", "run_case", "work"]

MEMORY_BUDGET_MB = 256
"""Address space that all cases together may take beyond what the process has when it starts them."""

_MAX_FAILURES = 20
_WARM_UP_CASES = 300
_FUNCTIONS = [target for target, _ in TARGETS]
_SHARES = list(accumulate(share for _, share in TARGETS))


def run_case(seed: int, case: int) -> str:
    """Run one case and return its target's name; raises what breaks a law."""
    random = Random(seed << 64 | case)
    target = random.choices(_FUNCTIONS, cum_weights=_SHARES)[0]
    target(random)
    return target.__name__


def work(seed: int, cases: Iterable[int], progress_path: Path, seconds: float) -> int:
    """Run cases; print each that breaks a law, and return how many did, 1 at most.

    Args:
        seed: of the run.
        cases: their numbers.
        progress_path: file of 16 bytes that holds the number of the running case, and how many were done.
        seconds: stop after so long.
    """
    failures, done, ends, parent = 0, 0, time.monotonic() + seconds, os.getppid()
    with progress_path.open("r+b") as file, mmap.mmap(file.fileno(), 16) as progress:
        for number in range(_WARM_UP_CASES):  # caches, pools and threads are no case's memory
            run_case(0, number)
        _limit_memory()
        for case in cases:
            progress[:8] = case.to_bytes(8, "little")
            try:
                run_case(seed, case)
            except Exception as error:
                failures += 1
                print(f"LAW BROKEN seed={seed} case={case}: {type(error).__name__}: {error}", flush=True)
                traceback.print_exc()
            done += 1
            progress[8:] = done.to_bytes(8, "little")
            if failures == _MAX_FAILURES or time.monotonic() > ends or os.getppid() != parent:
                break
    return int(failures > 0)


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + (MEMORY_BUDGET_MB << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
