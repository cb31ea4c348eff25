"""The Python of Spark's workers: for a local master the one of this process, elsewhere one that has Sparklog.

A worker that can't import Sparklog ends the first micro-batch with a trace of sixty lines. So a task looks first, once
per Spark context, and what it finds is one line that says which Python on which host lacks what.
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
"""Applications whose workers were found to be right."""


def is_local(master: str) -> bool:
    """Whether workers are children of this machine's own JVM; those of `local-cluster` are a cluster's."""
    return _LOCAL.fullmatch(master) is not None


def prepare_workers(context: SparkContext) -> None:
    """Let the workers of a local master run this Python unless another one was chosen; look whether others can work.

    PySpark takes `PYSPARK_PYTHON`, or whatever `python3` is, when the context starts; functions take it from there.

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
    """Return the version that is installed; None for a folder on the path."""
    try:
        return importlib.metadata.version("sparklog")
    except importlib.metadata.PackageNotFoundError:
        return None


def _task(expected: str | None) -> Callable[[Iterable[int]], list[str | None]]:
    """Return a function that crosses to a worker by its code, not by its name: the worker may know no name of ours."""

    def look(_rows: Iterable[int]) -> list[str | None]:
        import importlib
        import platform
        import sys

        where = f"python={sys.executable} version={platform.python_version()} host={platform.node()}"
        try:
            importlib.import_module("sparklog.sink.stage.stage_rows")
            found = importlib.import_module("importlib.metadata").version("sparklog") if expected else None
        except Exception as error:  # noqa: BLE001 - whatever an import raises is the answer
            return [f"{type(error).__name__}: {error}; {where}"]
        return [f"Sparklog {found}, here {expected}; {where}" if found != expected else None]

    return look
