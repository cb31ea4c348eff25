"""A job that tests kill: the files of `<folder>/input`, two per micro-batch, into the logs of `<folder>/store`.

Run as a script it is a Spark stream; `run_direct` stages in its own process by the code that executors run, which needs
no Spark and starts in no time. Both can be started again after any crash. A refusal goes to `<folder>/error.txt`.
"""

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

import sparklog.sink.place.placer
from sparklog.sink.config import SinkConfig
from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import LogStorageError
from tests.build.sink_store import in_process
from tests.kill.records import FILES_PER_MICRO_BATCH, SPARK_SCHEMA, TOPICS

if TYPE_CHECKING:
    from sparklog import LogSink

__all__ = ["run_and_exit", "run_direct", "stream_input"]

_ROWS_PER_ARROW_BATCH = 60


def run_direct(folder: Path, environment: dict[str, str], take_lock_by_force: bool) -> None:
    """Run the job in this process, a fresh one."""
    os.environ.update(environment)
    os.environ["SPARKLOG_FAULT_PID"] = str(os.getpid())
    if environment.get("SPARKLOG_FAULT_SIGNAL") == "STOP":
        sparklog.sink.place.placer._THREADS = (
            1  # another one could be stopped within a rename, where force waits for it
        )
    run_and_exit(folder, lambda: _direct(folder, take_lock_by_force))


def _direct(folder: Path, take_lock_by_force: bool) -> None:
    config = SinkConfig.from_options(folder / "store", TOPICS, on_invalid="quarantine")
    writer = StoreWriter(config, SystemClock(), take_lock_by_force=take_lock_by_force)
    files = sorted((folder / "input").glob("*.parquet"))
    for number, first in enumerate(range(0, len(files), FILES_PER_MICRO_BATCH)):
        splits = [
            pq.read_table(path).to_batches(max_chunksize=_ROWS_PER_ARROW_BATCH)
            for path in files[first : first + FILES_PER_MICRO_BATCH]
        ]
        writer.append("job", number, in_process(*splits))
    writer.close()


def _spark(folder: Path, take_lock_by_force: bool) -> None:
    def open_sink() -> "LogSink":
        from sparklog import LogSink

        return LogSink(folder / "store", topics=TOPICS, on_invalid="quarantine", take_lock_by_force=take_lock_by_force)

    stream_input(folder, open_sink)


def stream_input(
    folder: Path, open_sink: "Callable[[], LogSink]", where: str = "true", master: str = "local[2]"
) -> None:
    """Stream the job's files into a sink, to their end.

    Args:
        open_sink: called once Spark is up.
        where: which rows.
    """
    from sparklog.pipeline.spark.session import build_session

    spark = build_session(
        {
            "spark.master": master,
            "spark.driver.memory": "600m",
            "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dderby.system.home={folder}",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        }
    )
    (folder / "ready").touch()
    sink = open_sink()
    frame = (
        spark.readStream.format("parquet")
        .schema(SPARK_SCHEMA)
        .option("maxFilesPerTrigger", FILES_PER_MICRO_BATCH)
        .load(str(folder / "input"))
        .where(where)
    )
    query = (
        frame.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except Exception:
        if sink.last_error is not None:
            raise sink.last_error from None
        raise
    finally:
        sink.close()
    spark.stop()


def run_and_exit(folder: Path, run: Callable[[], None]) -> None:
    """Run a job in this process, and end that: 0 done, 1 refused, 3 failed."""
    error = folder / "error.txt"
    error.unlink(missing_ok=True)
    try:
        run()
    except LogStorageError as refusal:
        error.write_text(f"{type(refusal).__name__}: {refusal}")
        os._exit(1)
    except BaseException:
        error.write_text(traceback.format_exc())
        os._exit(3)
    os._exit(0)


if __name__ == "__main__":
    os.environ["SPARKLOG_FAULT_PID"] = str(os.getpid())
    run_and_exit(Path(sys.argv[1]), lambda: _spark(Path(sys.argv[1]), sys.argv[2:] == ["--force"]))
