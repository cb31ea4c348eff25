"""`python -m benchmarks.reader_memory_child STORE`: read a store as one task, without Spark; prints JSON.

The peak of resident memory, in MB: before anything was read, and behind it.
"""

import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from sparklog.pipeline.places.store_view import open_logs
from sparklog.pipeline.reader.log_bounds import find_bounds
from sparklog.pipeline.reader.options import parse_options
from sparklog.pipeline.reader.plan import ReadTask, plan_tasks
from sparklog.pipeline.reader.read_task import read_task


def main(store: Path) -> None:
    """Read every split of every log in one process; another one has planned it, as Spark's driver does."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as planner:
        task = planner.submit(plan_one_task, store).result()
    before = _peak_mb()
    rows = sum(batch.num_rows for batch in read_task(task))
    print(json.dumps({"rows": rows, "before_mb": before, "peak_mb": _peak_mb()}))


def plan_one_task(store: Path) -> ReadTask:
    """Return a task that reads all of a store."""
    options = parse_options({"path": str(store)}, "batch")
    bounds = find_bounds(open_logs(store).logs, options)
    tasks = plan_tasks({log: (each.start_offset, each.end_offset) for log, each in bounds.items()}, bounds, options)
    return ReadTask(tuple(split for task in tasks for split in task.splits), False, True)


def _peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main(Path(sys.argv[1]))
