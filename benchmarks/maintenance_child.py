"""One step of `maintenance`: `python -m benchmarks.maintenance_child STEP STORE NUMBER` prints JSON.

`write-logs` makes a store of so many compacted logs of one record each, `plan` plans it, `write-keys` makes one log of
so many records with different keys, `clean` cleans it with a map of so many MiB, `run` carries out so many runs of
maintenance with Spark and the control tables, each behind a micro-batch that makes a log dirty.
"""

import json
import resource
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.stores import TOPIC
from sparklog.sink.config import SinkConfig
from sparklog.sink.opening.access import maintaining
from sparklog.sink.operations.clean_logs import CleanerBudget, clean_logs, plan_cleanings
from sparklog.sink.stage.report import StageReport
from sparklog.sink.stage.stage_rows import StagePlan, stage
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.clock import SystemClock

__all__ = ["main"]

_ROWS_PER_BATCH = 1_000_000
_ROWS_PER_ARROW_BATCH = 10_000
_SETTINGS: dict[str, object] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": 0.01,
    "file.delete.delay.ms": 0,
    "segment.bytes": 16 << 20,
}


def main(step: str, store: Path, number: int) -> None:
    """Carry out one step; print its figures."""
    print(json.dumps(_STEPS[step](store, number)))


def _write_logs(store: Path, logs: int) -> dict[str, object]:
    with closing(_writer(store, logs)) as writer:
        writer.append("bench", 0, lambda plan: _stage(plan, np.arange(logs, dtype=np.int32), 0))
    return {}


def _plan(store: Path, _number: int) -> dict[str, object]:
    from sparklog.pipeline.maintenance.plan import Bounds
    from sparklog.pipeline.maintenance.survey import survey_store

    import_module("sparklog.storage_core.record.reading_kernels")  # a process loads them once, for 2 s
    started = time.perf_counter()
    plan = survey_store(Store.find(store), Bounds(), SystemClock()).plan
    return {"seconds": time.perf_counter() - started, "logs": plan.logs_checked}


def _write_keys(store: Path, count: int) -> dict[str, object]:
    with closing(_writer(store, 1)) as writer:
        for batch, first in enumerate(range(0, count, _ROWS_PER_BATCH)):
            rows = np.zeros(min(_ROWS_PER_BATCH, count - first), np.int32)
            writer.append("bench", batch, lambda plan, rows=rows, first=first: _stage(plan, rows, first))  # type: ignore[misc]
    return {}


def _clean(store: Path, megabytes: int) -> dict[str, object]:
    clock = SystemClock()
    with maintaining(store) as maintained:
        plans = plan_cleanings(maintained.store, {}, clock)
        started = time.perf_counter()
        budget = CleanerBudget(map_bytes=megabytes << 20, hash_key=secrets.token_bytes(16))
        (row,) = clean_logs(maintained, plans, budget, clock)
        seconds = time.perf_counter() - started
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    records = row.cleaned.records_before if row.cleaned else 0
    return {"seconds": seconds, "peak_mb": peak_mb, "outcome": row.outcome, "records": records}


def _run(store: Path, runs: int) -> dict[str, object]:
    from sparklog.pipeline.maintenance.run import Callbacks, MaintainedPlace, execute_maintenance
    from sparklog.pipeline.maintenance.session import lazy_session
    from sparklog.pipeline.settings.maintenance_settings import MaintenanceSettings

    place = MaintainedPlace(root=store, settings=MaintenanceSettings(), spark={"spark.master": "local[2]"})
    callbacks, clock = Callbacks(plan=lambda _: None, waits=lambda _, __: None, sleep=time.sleep), SystemClock()
    seconds = []
    with lazy_session(place.spark) as spark:
        spark()
        for number in range(runs):
            with closing(_writer(store, 1)) as writer:
                writer.append("bench", number, lambda plan: _stage(plan, np.zeros(1000, np.int32), 0))
            started = time.perf_counter()
            execute_maintenance(place, spark, clock, callbacks)
            seconds.append(time.perf_counter() - started)
    return {"seconds": seconds}


def _writer(store: Path, logs: int) -> StoreWriter:
    config = SinkConfig.from_options(store, {TOPIC: {"partitions": logs, **_SETTINGS}}, topic=TOPIC)
    return StoreWriter(config, SystemClock())


def _stage(plan: StagePlan, partitions: np.ndarray, first: int) -> list[StageReport]:
    numbers = np.arange(first, first + len(partitions))
    keys = pa.array(numbers).cast(pa.string()).cast(pa.binary())
    rows = pa.table({"partition": pa.array(partitions), "key": keys, "value": keys})
    outputs = stage(plan, 0, rows.to_batches(max_chunksize=_ROWS_PER_ARROW_BATCH))
    return [StageReport.from_row(row) for output in outputs for row in output.to_pylist()]


_STEPS: dict[str, Callable[[Path, int], dict[str, object]]] = {
    "write-logs": _write_logs,
    "plan": _plan,
    "write-keys": _write_keys,
    "clean": _clean,
    "run": _run,
}

if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
