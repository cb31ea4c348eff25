"""Ten thousand logs in one micro-batch: time, and memory beside a hundred logs.

Memory needs processes of its own: what one measurement leaves in a heap would be the next one's bill.
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench
from benchmarks.small_frames import RECORDS_PER_LOG
from benchmarks.table import Table, Verdict

__all__ = ["run"]

_TIMEOUT_S = 900


def run(bench: Bench) -> None:
    """Measure few and many logs, with the same number of records and with the same number for each log."""
    many, few = bench.pick(10_000, 1_000), 100
    cases = {
        f"{few:,} logs x {RECORDS_PER_LOG} records": (few, RECORDS_PER_LOG),
        f"{few:,} logs x {many // few * RECORDS_PER_LOG:,} records": (few, many // few * RECORDS_PER_LOG),
        f"{many:,} logs x {RECORDS_PER_LOG} records": (many, RECORDS_PER_LOG),
    }
    turns = bench.pick(2, 1)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in cases}
    for _ in range(turns):
        for name, (logs, records) in cases.items():
            found[name].append(_measure(bench.fresh("store"), logs, records, bench.pick(5, 2)))
    rows = [_row(name, runs) for name, runs in found.items()]
    notes = (
        "each in processes of its own, JVM with 1 GiB of heap; peak of resident memory over all micro-batches, summed"
        " over the Python workers, after the first micro-batch",
        f"medians of {turns} runs",
    )
    headers = ("micro-batch", "s", "opening the store, s", "driver MB", "workers MB", "JVM MB", "all MB")
    bench.add(Table("Many logs in one micro-batch", headers, rows, notes))
    _, same_records, all_logs = found.values()
    _judge(bench, many, _seconds(all_logs), _memory(all_logs) / _memory(same_records))


def _measure(store: Path, logs: int, records: int, rounds: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.many_logs_child", str(store), str(logs), str(records), str(rounds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=_TIMEOUT_S, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _seconds(runs: list[dict[str, Any]]) -> float:
    return float(statistics.median(each for run in runs for each in run["seconds"]))


def _memory(runs: list[dict[str, Any]]) -> float:
    return float(statistics.median(sum(each["peak_mb"].values()) for each in runs))


def _row(name: str, runs: list[dict[str, Any]]) -> tuple[str, ...]:
    parts = [statistics.median(each["peak_mb"][part] for each in runs) for part in ("driver", "workers", "jvm")]
    opening = statistics.median(each["open_seconds"] for each in runs)
    return (name, f"{_seconds(runs):.2f}", f"{opening:.2f}", *(f"{each:.0f}" for each in parts), f"{_memory(runs):.0f}")


def _judge(bench: Bench, logs: int, seconds: float, memory: float) -> None:
    bench.judge(
        Verdict(
            what=f"{logs:,} logs x {RECORDS_PER_LOG} records in one micro-batch",
            wanted="15 s, memory within 1.2 of 100 logs",
            aim="5 s",
            measured=f"{seconds:.1f} s, {memory:.2f}",
            is_met=seconds <= 15 and memory <= 1.2,
            is_aim_met=seconds <= 5 and memory <= 1.2,
        )
    )
