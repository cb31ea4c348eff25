"""The Spark session of a maintenance run, started when the first part of a run asks for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from pipeline.jars import obtain_jars
from pipeline.session import build_session, names_jars, submitted_conf
from pipeline.spark_errors import SPARK_ERRORS, explain, silence_spark_loggers
from storage_core.errors import InvalidConfigError, LogStorageError

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

    Args:
        configured: the settings file's `spark` section.
    """
    silence_spark_loggers()
    is_ours = SparkContext._active_spark_context is None
    found: list[SparkSession] = []

    def session() -> SparkSession:
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
    usual = _LOCAL_CONF if submitted is None and configured.get("spark.master", "local").startswith("local") else {}
    return {**usual, **configured, _SPECULATION: "false"}


def _start(configured: Mapping[str, str]) -> SparkSession:
    submitted = submitted_conf()
    wants_jars = submitted is None and not names_jars(configured)
    conf = maintenance_conf(configured, submitted)
    try:
        return build_session(conf, submitted, obtain_jars() if wants_jars else ())
    except SPARK_ERRORS as error:
        raise LogStorageError(f"Spark can't start: {explain(error)}") from error


def _stop(spark: SparkSession) -> None:
    try:
        spark.stop()
    except SPARK_ERRORS as error:
        logger.debug("Spark has gone before it was stopped: %s", error)
