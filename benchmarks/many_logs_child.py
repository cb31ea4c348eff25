"""One measurement of `many_logs`: `python -m benchmarks.many_logs_child STORE LOGS RECORDS ROUNDS` prints JSON."""

import json
import sys
import time
from pathlib import Path

from benchmarks.processes import peak_memory_mb, reset_peak_memory
from benchmarks.session import start_session
from benchmarks.small_frames import small_frame
from benchmarks.stores import TOPIC
from sparklog.sink.log_sink import LogSink

__all__ = ["main"]


def main(store: Path, logs: int, records: int, rounds: int) -> None:
    """Write micro-batches into a new store; print times and peaks."""
    spark = start_session("1g")
    frame = small_frame(spark, logs, records)
    started = time.perf_counter()
    sink = LogSink(store, topics={TOPIC: {"partitions": logs}}, topic=TOPIC)
    open_seconds = time.perf_counter() - started
    sink.write(frame, query_id="bench", batch_id=0)
    reset_peak_memory()
    seconds = []
    for number in range(1, rounds + 1):
        started = time.perf_counter()
        sink.write(frame, query_id="bench", batch_id=number)
        seconds.append(time.perf_counter() - started)
    peak = peak_memory_mb()
    sink.close()
    spark.stop()
    print(json.dumps({"open_seconds": open_seconds, "seconds": seconds, "peak_mb": peak}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
