"""The Spark session of maintenance runs: started when first needed, and again if it is lost.

A process that runs for weeks may lose its JVM. The next run starts a new one. A JVM that the platform started, as
`spark-submit` does, can't be replaced: the platform has to restart the process.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from sparklog.pipeline.spark.jars import obtain_jars
from sparklog.pipeline.spark.session import build_session, end_session, names_jars, submitted_conf
from sparklog.pipeline.spark.submitted import is_submitted
from sparklog.sink.spark.errors import SPARK_ERRORS, explain, silence_spark_loggers
from sparklog.sink.spark.worker_python import is_local
from sparklog.storage_core.errors import InvalidConfigError, LogStorageError, SparkLostError

__all__ = ["lazy_session", "maintenance_conf"]

logger = logging.getLogger(__name__)

_SPECULATION: Final = "spark.speculation"
_LOCAL_CONF: Final = {
    # A run uses Spark for seconds, mostly for JIT compilation: with the first compiler alone it takes half the time.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@contextmanager
def lazy_session(configured: Mapping[str, str]) -> Iterator[Callable[[], SparkSession]]:
    """Yield a function that starts Spark with Delta, or joins the platform's session; stop Spark at the end.

    The function replaces a lost session; if that was the platform's, it raises `SparkLostError`.

    Args:
        configured: the settings file's `spark` section.
    """
    silence_spark_loggers()
    is_ours = SparkContext._active_spark_context is None
    found: list[SparkSession] = []

    def session() -> SparkSession:
        if found and not _is_alive(found[0]):
            _forget(found.pop(), is_ours=is_ours)
        if not found:
            found.append(_start(configured))
        return found[0]

    try:
        yield session
    finally:
        if found and is_ours:
            _stop(found[0])


def maintenance_conf(configured: Mapping[str, str], submitted: Mapping[str, str] | None) -> dict[str, str]:
    """Return the settings of a maintenance run's session. Speculation is off: its second task finds the log locked.

    Raises:
        InvalidConfigError: `spark-submit` was given speculation.
    """
    if (submitted or {}).get(_SPECULATION, "false").lower() == "true":
        raise InvalidConfigError(
            f"speculative tasks would clean a log twice at once: {_SPECULATION}=true; submit with false"
        )
    usual = _LOCAL_CONF if submitted is None and is_local(configured.get("spark.master", "local")) else {}
    return {**usual, **configured, _SPECULATION: "false"}


def _start(configured: Mapping[str, str]) -> SparkSession:
    submitted = submitted_conf()
    wants_jars = submitted is None and not names_jars(configured)
    conf = maintenance_conf(configured, submitted)
    try:
        return build_session(conf, submitted, obtain_jars() if wants_jars else ())
    except SPARK_ERRORS as error:
        raise LogStorageError(f"Spark can't start: {explain(error)}") from error


def _is_alive(spark: SparkSession) -> bool:
    context = spark.sparkContext._jsc  # None once this process has stopped it
    try:
        return context is not None and not context.sc().isStopped()
    except SPARK_ERRORS:
        return False


def _forget(spark: SparkSession, *, is_ours: bool) -> None:
    """Remove a lost session from PySpark, and its JVM if that is lost, too.

    Raises:
        SparkLostError: the platform started it.
    """
    gateway = SparkContext._gateway
    try:
        has_jvm = gateway is not None and bool(gateway.jvm.System.nanoTime())
    except SPARK_ERRORS:
        has_jvm = False
    if not is_ours or (is_submitted() and not has_jvm):
        raise SparkLostError("the Spark session of the platform is lost: start the job again")
    logger.warning("Spark is lost, starting it again: has_jvm=%s", has_jvm)
    _stop(spark)
    if not has_jvm:
        SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None


def _stop(spark: SparkSession) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PySpark's own about a lost JVM
            end_session(spark)
    except SPARK_ERRORS as error:
        logger.debug("Spark was lost before it was stopped: %s", error)
