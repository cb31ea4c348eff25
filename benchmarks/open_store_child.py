"""One step of `open_store`: `python -m benchmarks.open_store_child write|open STORE LOGS MICRO_BATCH` prints JSON.

`write` opens the store, appends a micro-batch of a record for each log, and closes it; with a fault point in the
environment it dies on the way. `open` opens and closes it.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.stores import TOPIC
from sparklog.sink.config import SinkConfig
from sparklog.sink.stage.report import StageReport
from sparklog.sink.stage.stage_rows import StagePlan, stage
from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.clock import SystemClock

__all__ = ["main"]

_ROWS_PER_ARROW_BATCH = 10_000


def main(what: str, store: Path, logs: int, number: int) -> None:
    """Carry out one step; print the seconds of the opening and of the rest."""
    config = SinkConfig.from_options(store, {TOPIC: {"partitions": logs}}, topic=TOPIC)
    started = time.perf_counter()
    writer = StoreWriter(config, SystemClock())
    opened = time.perf_counter()
    if what == "write":
        writer.append("bench", number, lambda plan: _stage(plan, logs))
    writer.close()
    print(json.dumps({"open_s": opened - started, "rest_s": time.perf_counter() - opened}))


def _stage(plan: StagePlan, logs: int) -> list[StageReport]:
    rows = pa.table(
        {
            "partition": pa.array(np.arange(logs, dtype=np.int32)),
            "value": pa.array([b"v" * 100] * logs, pa.binary()),
        }
    )
    outputs = stage(plan, 0, rows.to_batches(max_chunksize=_ROWS_PER_ARROW_BATCH))
    return [StageReport.from_row(row) for output in outputs for row in output.to_pylist()]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
