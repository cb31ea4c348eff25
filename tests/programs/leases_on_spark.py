"""Leases beside a Spark that is at work, in a process of its own; prints what it saw as JSON.

`python -m tests.programs.leases_on_spark STORE`
"""

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from sparklog.pipeline.control.leases import acquire_leases, holding_leases
from sparklog.pipeline.control.schemas import LEASES
from sparklog.pipeline.control.tables import ControlTables
from sparklog.pipeline.maintenance.session import lazy_session
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.topic_partition import TopicPartition
from tests.programs.maintained_spark import SPARK

_TERM_MS = 6_000
_TASK_S = 15
_MERGES = 6
_COUNT = "WHEN MATCHED THEN UPDATE SET epoch = t.epoch + 1 WHEN NOT MATCHED THEN INSERT *"
_A, _B = (TopicPartition("t", number) for number in range(2))


def filled_slot(spark: SparkSession, tables: ControlTables) -> dict[str, Any]:
    """Hold leases of some seconds while the only slot has one task for longer than that."""
    clock, fenced = SystemClock(), threading.Event()

    def long_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(_TASK_S)
        yield from batches

    acquire_leases(tables, [_B], "warm", clock)
    leases = acquire_leases(tables, [_A], "r1", clock, term_ms=60_000)
    leases.term_ms = _TERM_MS  # the first statements of a session take seconds
    with holding_leases(tables, leases, fenced.set):
        spark.range(1).mapInArrow(long_task, "id long").collect()
        (row,) = (each for each in tables.rows(LEASES) if each["partition"] == _A.partition)
        left_ms = row["expires_ms"] - clock.now_ms()
        leases.check()
    return {"left_ms": left_ms, "is_fenced": fenced.is_set()}


def beside_merges(tables: ControlTables) -> dict[str, Any]:
    """Change a row while every other MERGE of Spark's changes another one of the same file; both count."""
    rows = [
        {"topic": "u", "partition": number, "owner": f"o{number}", "machine": "m", "epoch": 0, "acquired_ms": 0}
        for number in range(2)
    ]
    while not tables.try_merge(LEASES, [{**row, "expires_ms": 0} for row in rows], _COUNT):
        pass
    updated: list[bool] = []
    merged = []

    def update() -> None:
        updated.append(tables.try_update(LEASES, {"expires_ms": updated.count(True) + 1}, "o0"))

    for attempt in range(_MERGES):
        beside = [threading.Timer(0.3, update)] if attempt % 2 else []
        for each in beside:
            each.start()
        merged.append(tables.try_merge(LEASES, [{**rows[1], "expires_ms": 0}], _COUNT))
        for each in beside:
            each.join()
    found = {row["owner"]: row for row in tables.rows(LEASES)}
    return {
        "updated": updated.count(True),
        "updates_found": found["o0"]["expires_ms"],
        "merged": merged.count(True),
        "merges_found": found["o1"]["epoch"],
        "races_lost": merged.count(False) + updated.count(False),
    }


def main(store: Path) -> None:
    """Do both in one session."""
    with lazy_session({**SPARK, "spark.master": "local[1]"}) as start:
        tables = ControlTables(start(), store)
        seen = filled_slot(start(), tables) | beside_merges(tables)
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
