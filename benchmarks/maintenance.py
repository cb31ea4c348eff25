"""Maintenance: a plan of ten thousand logs, one log of many keys in little memory, and what a run costs by itself.

Each step has a process of its own; imports are not counted.
"""

import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench
from benchmarks.table import Table, Verdict

__all__ = ["run"]

_TIMEOUT_S = 3600
_MEMORY_MB = 1024
_MAP_SHARE = 0.6
"""Of the memory: the rest is for buffers and the process itself."""


def run(bench: Bench) -> None:
    """Measure the three, one after the other."""
    logs, keys = bench.pick(10_000, 200), bench.pick(20_000_000, 200_000)
    store = bench.fresh("planned")
    _step("write-logs", store, logs)
    plans = [_step("plan", store, 0)["seconds"] for _ in range(bench.pick(5, 1))]
    shutil.rmtree(store)
    store = bench.fresh("keys")
    _step("write-keys", store, keys)
    cleaned = _step("clean", store, int(_MEMORY_MB * _MAP_SHARE))
    shutil.rmtree(store)
    runs = _step("run", bench.fresh("runs"), bench.pick(6, 2))["seconds"]
    warm = statistics.median(runs[1:])
    planned = statistics.median(plans)
    rows = [
        (f"plan of {logs:,} logs", f"{planned:.1f}", ""),
        (f"one log of {keys:,} keys: {cleaned['outcome']}", f"{cleaned['seconds']:.1f}", f"{cleaned['peak_mb']:.0f}"),
        ("first run of a session, control tables made", f"{runs[0]:.1f}", ""),
        ("each later run, one small log cleaned", f"{warm:.1f}", ""),
    ]
    notes = (
        f"one worker of {_MEMORY_MB} MB, {_MAP_SHARE:.0%} of them the map",
        "medians; Spark's start is not counted",
    )
    bench.add(Table("Maintenance", ("what", "s", "peak memory, MB"), rows, notes))
    _judge(bench, f"planning over {logs:,} logs", planned, (20, 5))
    _judge(bench, "a run of maintenance by itself: leases, tables, a task", warm, (15, 6))
    whole = cleaned["outcome"] == "cleaned" and cleaned["peak_mb"] <= _MEMORY_MB
    bench.judge(
        Verdict(
            what=f"{keys:,} different keys in one log, one round",
            wanted=f"{_MEMORY_MB} MB",
            aim=f"{_MEMORY_MB} MB",
            measured=f"{cleaned['peak_mb']:.0f} MB",
            is_met=whole,
            is_aim_met=whole,
        )
    )


def _step(what: str, store: Path, number: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.maintenance_child", what, str(store), str(number)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=_TIMEOUT_S)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _judge(bench: Bench, what: str, seconds: float, limits: tuple[float, float]) -> None:
    wanted, aim = limits
    bench.judge(
        Verdict(
            what=what,
            wanted=f"{wanted} s",
            aim=f"{aim} s",
            measured=f"{seconds:.1f} s",
            is_met=seconds <= wanted,
            is_aim_met=seconds <= aim,
        )
    )
