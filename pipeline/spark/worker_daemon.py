"""PySpark's daemon with the imports of sink and reader already done: the workers it forks share them.

A worker that imports for itself pays more than a second for numba, pyarrow and the kernels, in front of somebody's
first micro-batch. The objects are frozen before the fork: PySpark's worker runs a full collection after each task,
which would touch, and so copy, every page that they lie on.

Spark starts this module by name (`spark.python.daemon.module`), so it must be importable where executors run; on a
cluster that is for the one who ships the package to say. It starts one for each kind of worker; the kind that only
looks for data sources, once per session, needs nothing of ours.

A worker that Spark lets go, at the end or after a minute without a task, finds its socket closed where it looks for the
next task. PySpark's own takes that for an error, tries to tell Spark, and ends with a trace of a broken pipe; here that
is a worker's end like any other.
"""

import gc
import socket
import sys

from pyspark import daemon

_LOOKS_FOR_SOURCES = "pyspark.sql.worker.lookup_data_sources"

if _LOOKS_FOR_SOURCES not in sys.argv:
    import pyspark.worker  # noqa: F401

    import sparklog.pipeline.reader.read_task
    import sparklog.sink.stage.stage_rows
    import sparklog.storage_core.record.reading_kernels  # noqa: F401

_run_task = daemon.worker


def _run_next_task(connection: socket.socket, authenticated: bool) -> int:
    """Run a task, as PySpark's function does whose place this one takes; without one return what ends the worker."""
    try:
        has_task = bool(connection.recv(1, socket.MSG_PEEK))
    except ConnectionError:
        has_task = False
    return _run_task(connection, authenticated) if has_task else 1


if __name__ == "__main__":
    daemon.worker = _run_next_task
    gc.collect()
    gc.freeze()
    daemon.manager()
