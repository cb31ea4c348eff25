"""Runs in a process of its own, for Delta's jars have to be there when a JVM starts; prints what it saw as JSON.

`python -m tests.programs.maintained_spark STORE`
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from sparklog.pipeline.control.leases import LEASE_MS, acquire_leases, holding_leases
from sparklog.pipeline.control.schemas import CLEANER_CHECKPOINTS, LEASES, RUNS
from sparklog.pipeline.control.tables import ControlTables, TableBounds
from sparklog.pipeline.maintenance.session import lazy_session
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.maintained_logs import NOW_MS, checkpoint
from tests.build.manual_clock import ManualClock

SPARK = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
_ROUNDS = 4
_A, _B, _C = (TopicPartition("t", number) for number in range(3))


def leases(tables: ControlTables) -> dict[str, Any]:
    """Lease as the unit tests do, through Spark's MERGE."""
    clock = ManualClock(NOW_MS)
    first = acquire_leases(tables, [_A, _B], "r1", clock, "here")
    second = acquire_leases(tables, [_B, _C], "r2", clock, "there")
    again = acquire_leases(tables, [_A], "r3", clock, "here")
    clock.advance(LEASE_MS)
    late = acquire_leases(tables, [_C], "r4", clock, "here")
    with holding_leases(tables, late, lambda: None):
        pass
    rows = {row["partition"]: row["expires_ms"] for row in tables.rows(LEASES)}
    found = {"first": first, "second": second, "again": again, "late": late}
    epochs = {name: {str(log): epoch for log, epoch in each.epochs.items()} for name, each in found.items()}
    return {"epochs": epochs, "refused": sorted(map(str, second.refused)), "given_back": rows[2]}


def checkpoints(tables: ControlTables) -> dict[str, Any]:
    """Put rows twice, let one go, and a null in a key."""
    rows = [checkpoint("t", number, first_dirty_offset=number).as_dict() for number in range(3)]
    tables.put(CLEANER_CHECKPOINTS, rows)
    tables.put(CLEANER_CHECKPOINTS, [*rows[:2], {**rows[2], "first_dirty_offset": 99}])
    run: dict[str, Any] = dict.fromkeys(RUNS.schema.names)
    run |= {"run_id": "r", "plan": "{}", "decision": "do", "reason": "x", "outcome": "done"}
    run |= {"started_ms": 1, "duration_ms": 2}
    for outcome in ("failed", "done"):
        tables.put(RUNS, [{**run, "outcome": outcome}])
    found = sorted((row["partition"], row["first_dirty_offset"]) for row in tables.rows(CLEANER_CHECKPOINTS))
    return {"checkpoints": found, "runs": [(row["topic"], row["outcome"]) for row in tables.rows(RUNS)]}


def race(spark: SparkSession, store: Path) -> dict[str, Any]:
    """Let two runs race for one lease, each with tables of its own, and give it back."""
    owned: list[tuple[int, str]] = []
    merges: list[bool] = []

    class Watched(ControlTables):
        """Tables that remember which merges lost a race."""

        def try_merge(self, *arguments: Any) -> bool:
            merges.append(super().try_merge(*arguments))
            return merges[-1]

    def run(name: str) -> None:
        tables, clock = Watched(spark, store), ManualClock(NOW_MS + 10 * LEASE_MS)
        for turn in range(_ROUNDS):
            found = acquire_leases(tables, [_A], f"{name}{turn}", clock, name)
            owned.extend((epoch, found.owner) for epoch in found.epochs.values())
            while found.epochs and not tables.try_update(LEASES, {"expires_ms": 0}, found.owner):
                pass

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, ("here", "there")))
    epochs = [epoch for epoch, _ in owned]
    return {"owned": len(epochs), "owned_epochs": len(set(epochs)), "lost": merges.count(False)}


def main(store: Path) -> None:
    """Do it all in one session."""
    with lazy_session(SPARK) as spark:
        tables = ControlTables(spark(), store)
        seen = leases(tables) | checkpoints(tables) | race(spark(), store)
        (run,) = tables.rows(RUNS)
        tables.put(RUNS, [{**run, "run_id": "later", "started_ms": 2}])
        tables.tidy(TableBounds(run_rows=1, files=1, live_files=0))
        ControlTables(spark(), store)
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
