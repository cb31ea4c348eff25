"""The Spark session of maintenance runs: started when the first part of a run asks for it, and again if it has gone.

A process whose runs go on for weeks outlives its JVM now and then. The next run starts another one; where the platform
started the JVM, as `spark-submit` does, it has to start the process again, too.
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
from sparklog.pipeline.spark.session import build_session, end_session, is_submitted, names_jars, submitted_conf
from sparklog.sink.spark.errors import SPARK_ERRORS, explain, silence_spark_loggers
from sparklog.sink.spark.worker_python import is_local
from sparklog.storage_core.errors import InvalidConfigError, LogStorageError, SparkLostError

__all__ = ["lazy_session", "maintenance_conf"]

logger = logging.getLogger(__name__)

_SPECULATION: Final = "spark.speculation"
_LOCAL_CONF: Final = {
    # A run asks Spark for seconds of work, most of them spent on compiling: half as many with the first compiler alone.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@contextmanager
def lazy_session(configured: Mapping[str, str]) -> Iterator[Callable[[], SparkSession]]:
    """Give a function that starts Spark with Delta, or joins the session that the platform started; end it at the end.

    A session that has gone is started anew; the function raises `SparkLostError` where it was the platform's.

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
    """Return the settings of a maintenance run's session: without speculation, whose second task finds the log held.

    Raises:
        InvalidConfigError: `spark-submit` was given speculation.
    """
    if (submitted or {}).get(_SPECULATION, "false").lower() == "true":
        raise InvalidConfigError(
            f"maintenance can't clean a log twice at a time: {_SPECULATION}=true; submit with false"
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
    """Let PySpark forget a session that has gone, and its JVM if that has gone, too.

    Raises:
        SparkLostError: the platform started it.
    """
    gateway = SparkContext._gateway
    try:
        has_jvm = gateway is not None and bool(gateway.jvm.System.nanoTime())
    except SPARK_ERRORS:
        has_jvm = False
    if not is_ours or (is_submitted() and not has_jvm):
        raise SparkLostError("the Spark that this job was started with has gone: start the job again")
    logger.warning("Spark has gone, it is started again: has_jvm=%s", has_jvm)
    _stop(spark)
    if not has_jvm:
        SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None


def _stop(spark: SparkSession) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PySpark's own about a JVM that has gone
            end_session(spark)
    except SPARK_ERRORS as error:
        logger.debug("Spark has gone before it was stopped: %s", error)
