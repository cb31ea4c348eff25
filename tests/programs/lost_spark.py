"""A process that asks for its session again after the JVM was killed; prints what it saw as JSON.

`python -m tests.programs.lost_spark ours|platform`
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from sparklog.pipeline.maintenance.session import lazy_session
from sparklog.pipeline.spark.jars import obtain_jars
from sparklog.pipeline.spark.session import build_session
from sparklog.sink.spark.errors import SPARK_ERRORS
from sparklog.storage_core.errors import SparkLostError
from tests.programs.maintained_spark import SPARK

_CONF = {**SPARK, "spark.master": "local[1]"}


def kill(spark: SparkSession) -> int:
    """Kill the JVM of a session, and wait until it has gone; return its process id."""
    jvm: Any = spark.sparkContext._jvm
    pid = int(jvm.java.lang.ProcessHandle.current().pid())
    os.kill(pid, signal.SIGKILL)
    while True:
        try:
            jvm.System.nanoTime()
        except SPARK_ERRORS:
            return pid
        time.sleep(0.05)


def ask_twice(start: Callable[[], SparkSession]) -> dict[str, Any]:
    """Count with a session, kill it, and count with the next one."""
    first = start().range(3).count()
    killed = kill(start())
    try:
        second = start().range(4).count()
    except SparkLostError as error:
        return {"first": first, "error": str(error)}
    stopped = start()
    stopped.stop()
    third = start().range(5).count()
    return {"first": first, "second": second, "third": third, "is_new": kill(start()) != killed}


if __name__ == "__main__":
    if sys.argv[1] == "platform":
        build_session(_CONF, None, obtain_jars())
    with lazy_session(_CONF) as session:
        seen = ask_twice(session)
    print(json.dumps(seen))
