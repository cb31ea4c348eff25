"""Stores on S3: beside Spark's own Parquet on the same server, and beside a store on disk."""

import json
import statistics
import subprocess
import sys
from typing import Any

from benchmarks.bench import Bench
from benchmarks.objects_child import PARQUET
from benchmarks.rows import ROWS_TEXT
from benchmarks.table import Table, Verdict

__all__ = ["run"]

_TIMEOUT_S = 3600


def run(bench: Bench) -> None:
    """Measure in a process of its own: its JVM has Hadoop's S3 client."""
    folder = bench.fresh("objects")
    (folder / "gateway").mkdir(parents=True)
    rows, logs, commits = 4 * bench.million, bench.pick(10_000, 500), bench.pick(1_000, 200)
    sizes = (rows, logs, bench.pick(5, 2), commits)
    command = [sys.executable, "-m", "benchmarks.objects_child", str(folder), *map(str, sizes)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=_TIMEOUT_S, check=True)
    found: dict[str, dict[str, list[float]]] = json.loads(done.stdout.splitlines()[-1])
    micro, many, read, cleaning, ledger = (
        found[name] for name in ("micro-batch", "many-logs", "reader", "cleaning", "ledger")
    )
    notes = (f"{ROWS_TEXT}; the server is VersityGW on the same machine, and takes a share of its two cores",)
    _add(bench, f"Micro-batch of {rows:,} records over 8 logs, on S3", micro, PARQUET, notes)
    _add(bench, f"{logs:,} logs x 10 records, on S3", many, "on disk", ("two tasks, so two objects",))
    _add(bench, f"kafka-log over {rows:,} records of zstd, on S3", read, "on disk", ())
    note = f"{rows // 4:,} records of a million keys, in ten micro-batches; read, cleaned and written; s of one core"
    _add(bench, "Compaction of one log, on S3", cleaning, "on disk", (note, "without the server's CPU"))
    note = f"{logs:,} extents in each commit, all of a log merged after 100 commits"
    _add(bench, f"Ledger commit with {logs:,} logs, on S3", ledger, "first", (note, f"{commits:,} commits"), "ms", 1000)
    _judge(
        bench, "4 M rows to S3 against Spark's Parquet there, zstd", _ratio(micro, "logs on S3, zstd", PARQUET), 1, 0.6
    )
    _judge(bench, f"{logs:,} logs x 10 records on S3 against disk", _ratio(many, "on S3", "on disk"), 2, 1.2)
    _judge(bench, "kafka-log on S3 against disk", _ratio(read, "on S3", "on disk"), 2, 1.3)
    _judge(bench, "compaction on S3 against disk, one core", _ratio(cleaning, "at an address", "on disk"), 2, 1.25)
    last_ms = statistics.median(ledger["last"]) * 1000
    bench.judge(
        Verdict(
            what=f"ledger commit on S3, {logs:,} logs and extents, after {commits:,} commits",
            wanted="300 ms",
            aim="100 ms",
            measured=f"{last_ms:.0f} ms",
            is_met=last_ms <= 300,
            is_aim_met=last_ms <= 100,
        )
    )


def _ratio(found: dict[str, list[float]], ours: str, baseline: str) -> float:
    """Return the median over rounds of our time over the baseline's."""
    return statistics.median(mine / other for mine, other in zip(found[ours], found[baseline], strict=True))


def _add(
    bench: Bench,
    title: str,
    found: dict[str, list[float]],
    baseline: str,
    notes: tuple[str, ...],
    unit: str = "s",
    scale: int = 1,
) -> None:
    rows: list[Any] = [
        (name, f"{statistics.median(times) * scale:.2f}", f"{_ratio(found, name, baseline):.2f}")
        for name, times in found.items()
    ]
    bench.add(Table(title, ("what", unit, f"time against {baseline}"), rows, notes))


def _judge(bench: Bench, what: str, ratio: float, wanted: float, aim: float) -> None:
    bench.judge(
        Verdict(
            what=what,
            wanted=f"{wanted} x its time",
            aim=f"{aim} x",
            measured=f"{ratio:.2f} x",
            is_met=ratio <= wanted,
            is_aim_met=ratio <= aim,
        )
    )
