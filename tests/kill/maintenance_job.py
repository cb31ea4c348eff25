"""The maintenance job as kill tests run it: `execute_maintenance` again and again, with one Spark, everything due.

`python -m tests.kill.maintenance_job FOLDER` does what `FOLDER/order.json` says, and nothing without it, until it is
killed. Each run that ends, well or not, is a line of `FOLDER/runs.txt`.

| key        | is                                                              |
|------------|-----------------------------------------------------------------|
| `store`    | the store to maintain                                           |
| `ahead_ms` | how far the job's clock is ahead of the machine's               |
| `once`     | whether the order is done, and removed, by a run that ends well |
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from sparklog.pipeline.maintenance.loop import run_every
from sparklog.pipeline.maintenance.run import Callbacks, MaintainedPlace, MaintenanceRun, execute_maintenance
from sparklog.pipeline.maintenance.session import lazy_session
from sparklog.pipeline.settings.maintenance_settings import MaintenanceSettings
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import LogStorageError
from tests.kill.armed_clock import ArmedClock
from tests.kill.lively_store import MAP_BYTES

_SPARK = {
    "spark.master": "local[2]",
    "spark.driver.memory": "700m",
    "spark.sql.shuffle.partitions": "2",
}
_REST_MS = 50


def _main(folder: Path) -> None:
    spark = {
        **_SPARK,
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dderby.system.home={folder}",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    with lazy_session(spark) as session:
        run_every(lambda: _run(folder, session), _REST_MS, lambda: False, SystemClock(), time.sleep)


def _run(folder: Path, session: Callable[[], SparkSession]) -> int:
    """Carry out one run, and tell of it."""
    path = folder / "order.json"
    if not path.exists():
        return 0
    order = json.loads(path.read_text())
    clock = ArmedClock(folder=str(folder), driver=os.getpid(), ahead_ms=order["ahead_ms"])
    place = MaintainedPlace(
        root=Path(order["store"]), settings=MaintenanceSettings(memory_bytes=MAP_BYTES), spark=_SPARK
    )
    callbacks = Callbacks(plan=lambda _plan: None, waits=lambda _files, _until_ms: None, sleep=time.sleep)
    told = {**order, "run_id": None, "failures": []}
    try:
        run = execute_maintenance(place, session, clock, callbacks)
        told |= {"run_id": run.run_id, "failures": _failures(run)}
    except LogStorageError as error:
        told["failures"] = [f"{type(error).__name__}: {error}"]
        raise
    finally:
        with (folder / "runs.txt").open("a") as file:
            file.write(f"{json.dumps(told)}\n")
    if order["once"]:
        path.unlink()
    return 0


def _failures(run: MaintenanceRun) -> list[str]:
    found = [f"{each.log} {each.action} {each.outcome}: {each.reason}" for each in run.results if each.is_failure]
    leased = (each for each in run.plan.tasks if each.decision == "wait" and "another run has its lease" in each.reason)
    found += [f"{each.log} {each.action} {each.decision}: {each.reason}" for each in leased]
    found += [f"{each.log} fail: {each.reason}" for each in run.plan.tasks if each.decision == "fail"]
    return found + [f"{log} unremoved: {reason}" for log, reason in run.unremoved.items()]


if __name__ == "__main__":
    job_folder = Path(sys.argv[1])
    try:
        _main(job_folder)
    except BaseException:
        (job_folder / "error.txt").write_text(traceback.format_exc())
        os._exit(3)
