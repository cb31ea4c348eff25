"""What Spark says when something fails, cut down to one line for a person."""

import logging
import re

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

__all__ = ["SPARK_ERRORS", "explain", "silence_spark_loggers"]

SPARK_ERRORS = (PySparkException, Py4JError, OSError)
"""What a call to Spark may raise; the last two when its JVM has gone."""

_PLACE = re.compile(r"(;?\s*line \d+,? pos \d+|\s*\(line \d+, pos \d+\))[.;]?\s*$")
_STATE = re.compile(r"\s*SQLSTATE: \w+")
_WRAPPED = re.compile(r"terminated with exception:\s*(.+)")
_JAVA_CLASS = re.compile(r"^(?:[a-z]\w*\.)+\w*(?:Exception|Error):\s*")


def silence_spark_loggers() -> None:
    """Keep PySpark from logging every exception with its traces: Sparklog tells them in one line."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


def explain(error: BaseException) -> str:
    """Return the first line of what went wrong, without a stack trace, a query plan, or Spark's own wrapping."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    line = lines[0]
    if wrapped := _WRAPPED.search(line):
        line = wrapped[1]
    line = _PLACE.sub("", _STATE.sub("", _JAVA_CLASS.sub("", line)))
    return line.strip().rstrip(";:") or type(error).__name__
