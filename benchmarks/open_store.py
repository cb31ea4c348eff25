"""Opening a store of ten thousand logs: after a clean close, and after SIGKILL with a micro-batch in flight.

Each opening has a process of its own, as a user's would; imports are not counted.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.table import Table, Verdict

__all__ = ["run"]

_TIMEOUT_S = 900
_CUT_AT = "place.synced"
"""Every byte of the micro-batch is on the disk then, and none of it is committed: most is to be undone."""


def run(bench: Bench) -> None:
    """Measure few and many logs, clean and after a kill, in turns."""
    many, few = bench.pick(10_000, 500), bench.pick(100, 50)
    seconds: dict[tuple[str, int], list[float]] = {}
    stores = {logs: bench.fresh(f"open-{logs}") for logs in (few, many)}
    for logs, store in stores.items():
        _step("write", store, logs, 0)
    for _ in range(bench.pick(5, 1)):
        for logs, store in stores.items():
            seconds.setdefault(("clean close", logs), []).append(_open(store, logs))
            _crash(store, logs)
            seconds.setdefault(("SIGKILL", logs), []).append(_open(store, logs))
    medians = {case: statistics.median(found) for case, found in seconds.items()}
    rows = [
        (f"{logs:,} logs after {end}", f"{median:.2f}", f"{min(seconds[end, logs]):.2f}..{max(seconds[end, logs]):.2f}")
        for (end, logs), median in medians.items()
    ]
    notes = (
        f"the process is killed at `{_CUT_AT}`: a record for each log lies behind its committed end, durable",
        "medians; imports and Spark are not part of it",
    )
    bench.add(Table("Opening a store", ("what", "s", "from..to"), rows, notes))
    _judge(bench, f"opening a cleanly closed store of {many:,} logs", medians["clean close", many], 10, 2)
    _judge(bench, f"opening {many:,} logs after SIGKILL, one micro-batch in flight", medians["SIGKILL", many], 12, 3)


def _open(store: Path, logs: int) -> float:
    return float(json.loads(_step("open", store, logs, 0))["open_s"])


def _crash(store: Path, logs: int) -> None:
    done = _run("write", store, logs, 1, SPARKLOG_FAULT_POINT=_CUT_AT)
    if done.returncode != -signal.SIGKILL:
        raise RuntimeError(f"the process did not die at {_CUT_AT}: exit code {done.returncode}")


def _step(what: str, store: Path, logs: int, number: int) -> str:
    done = _run(what, store, logs, number)
    done.check_returncode()
    return done.stdout.splitlines()[-1]


def _run(what: str, store: Path, logs: int, number: int, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.open_store_child", what, str(store), str(logs), str(number)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
        env={**os.environ, **environment},
    )


def _judge(bench: Bench, what: str, seconds: float, wanted: float, aim: float) -> None:
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
