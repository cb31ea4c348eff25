"""The Python of Spark's workers: this process's for a local master, elsewhere one that has Sparklog.

A worker that can't import Sparklog ends the first micro-batch with a trace of sixty lines. So one task for each Spark
context checks this first, and reports the Python, the host and the missing part in one line.
"""

import importlib.metadata
import os
import re
import sys
from collections.abc import Callable, Iterable

from pyspark import SparkContext

from sparklog.sink.spark.errors import SPARK_ERRORS, explain
from sparklog.storage_core.errors import InvalidConfigError

__all__ = ["is_local", "prepare_workers"]

_LOCAL = re.compile(r"local(\[.*\])?")
_REMEDY = "set PYSPARK_PYTHON or spark.pyspark.python to one that has it (docs/clusters.md)"

_looked: set[str] = set()
"""Applications whose workers have Sparklog."""


def is_local(master: str) -> bool:
    """Whether workers are children of this machine's JVM; those of `local-cluster` belong to a cluster."""
    return _LOCAL.fullmatch(master) is not None


def prepare_workers(context: SparkContext) -> None:
    """Make workers of a local master run this Python unless the settings choose one; check that other workers can run.

    PySpark reads `PYSPARK_PYTHON`, else `python3`, when the context starts; functions take it from the context.

    Raises:
        InvalidConfigError: the workers' Python has no Sparklog, or another version, or can't be started.
    """
    if is_local(context.master):
        if "PYSPARK_PYTHON" not in os.environ and context.getConf().get("spark.pyspark.python") is None:
            context.pythonExec = sys.executable
        if context.pythonExec == sys.executable:
            return
    application = str(context.applicationId)
    if application not in _looked:
        _look_at_worker(context)
        _looked.add(application)


def _look_at_worker(context: SparkContext) -> None:
    try:
        (found,) = context.parallelize(range(1), 1).mapPartitions(_task(_own_version())).collect()
    except SPARK_ERRORS as error:
        raise InvalidConfigError(
            f"Spark's workers can't run Sparklog: {explain(error)}; python={context.pythonExec}; {_REMEDY}"
        ) from error
    if found is not None:
        raise InvalidConfigError(f"Spark's workers can't run Sparklog: {found}; {_REMEDY}")


def _own_version() -> str | None:
    """Return the installed version; None for a folder on the path."""
    try:
        return importlib.metadata.version("sparklog")
    except importlib.metadata.PackageNotFoundError:
        return None


def _task(expected: str | None) -> Callable[[Iterable[int]], list[str | None]]:
    """Return a function that Spark pickles by its code, not by its name: the worker may lack Sparklog."""

    def look(_rows: Iterable[int]) -> list[str | None]:
        import importlib
        import platform
        import sys

        where = f"python={sys.executable} version={platform.python_version()} host={platform.node()}"
        try:
            importlib.import_module("sparklog.sink.stage.stage_rows")
            found = importlib.import_module("importlib.metadata").version("sparklog") if expected else None
        except Exception as error:  # noqa: BLE001 - any error of an import is the answer
            return [f"{type(error).__name__}: {error}; {where}"]
        return [f"Sparklog {found}, here {expected}; {where}" if found != expected else None]

    return look
