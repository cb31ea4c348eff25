"""`python -m benchmarks.reader_child STORE CORES RUNS`: read a store into nothing, bound to so many cores.

Prints the seconds of each run as JSON.
"""

import json
import os
import sys
import time

from sparklog.pipeline.reader.data_source import register
from sparklog.pipeline.spark.session import build_session


def main() -> None:
    """Read, after a run or two that warm everything up."""
    store, cores, runs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    spark = build_session({"spark.master": f"local[{cores}]", "spark.driver.memory": "2g", "spark.log.level": "ERROR"})
    register(spark)
    frame = spark.read.format("kafka-log").load(store)
    times = []
    for _ in range(runs + 1):
        started = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        times.append(time.perf_counter() - started)
    spark.stop()
    print(json.dumps(times[1:]))


if __name__ == "__main__":
    main()
