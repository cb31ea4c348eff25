"""PySpark's daemon with the imports of sink and reader already done: the workers it forks share them.

A worker that imports for itself pays more than a second for numba, pyarrow and the kernels, in front of somebody's
first micro-batch. The objects are frozen before the fork: PySpark's worker runs a full collection after each task,
which would touch, and so copy, every page that they lie on.

Spark starts this module by name (`spark.python.daemon.module`), so it must be importable where executors run; on a
cluster that is for the one who ships the package to say. It starts one for each kind of worker; the kind that only
looks for data sources, once per session, needs nothing of ours.
"""

import gc
import sys

from pyspark.daemon import manager

_LOOKS_FOR_SOURCES = "pyspark.sql.worker.lookup_data_sources"

if _LOOKS_FOR_SOURCES not in sys.argv:
    import pyspark.worker  # noqa: F401

    import pipeline.reader.read_task  # noqa: F401
    import sink.stage  # noqa: F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()
