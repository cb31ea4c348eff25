"""PySpark's worker daemon, with the imports of sink and reader done before it forks workers.

Otherwise each worker imports numba, pyarrow and the kernels, more than a second before its first micro-batch. Objects
are frozen before the fork: PySpark's worker runs a full garbage collection after each task, which would touch, and so
copy, all their pages.

Spark starts this module by name (`spark.python.daemon.module`), so executors must be able to import it; on a cluster
set it only if the package is installed there. Spark starts a daemon for each kind of worker; the kind that only looks
up data sources, once per session, needs no imports of ours.

Spark closes the socket of a worker at the end, or after a minute without a task. PySpark's own worker treats that as an
error and prints a stack trace of a broken pipe; here it is a normal end.
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
    """Run a task with PySpark's own function; without a task return the code that ends the worker."""
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
