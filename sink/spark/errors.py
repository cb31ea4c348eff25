"""Spark's error texts, shortened to one line for people."""

import logging
import re
import textwrap

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from sparklog.storage_core import errors
from sparklog.storage_core.errors import LogStorageError

__all__ = ["SPARK_ERRORS", "explain", "raised_in_task", "silence_spark_loggers"]

SPARK_ERRORS = (PySparkException, Py4JError, OSError)
"""Errors of calls to Spark; the last two when its JVM has gone."""

_PLACE = re.compile(r"(;?\s*line \d+,? pos \d+|\s*\(line \d+, pos \d+\))[.;]?\s*$")
_STATE = re.compile(r"\s*SQLSTATE: \w+")
_TRACE = "Traceback (most recent call last):"
_CALL = re.compile(r"^An error occurred while calling \S+\.\s*:\s*")
"""Py4j's line before the error of a call."""

_WORKER_SAID = re.compile(r"^Error from python worker:\n(.*?)^PYTHONPATH was:$", re.DOTALL | re.MULTILINE)
"""Output of Python workers that could not start, indented by Spark."""

_RAISED = re.compile(rf"^{re.escape(errors.__name__)}\.(\w+)(?::|$)", re.MULTILINE)
"""The last line of a Python trace, if it names an error of ours."""

_WRAPPINGS = tuple(
    re.compile(pattern)
    for pattern in (
        r"^.*terminated with exception:\s*",
        r"^.*most recent failure: Lost task .*?\):\s*",
        r"^(?:[a-z]\w*\.)+\w*(?:Exception|Error):\s*",
    )
)


def silence_spark_loggers() -> None:
    """Stop PySpark from logging every exception with its traces: Sparklog reports them in one line."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


def raised_in_task(error: BaseException) -> type[LogStorageError] | None:
    """Return the class of Sparklog's error that a Python task raised; Spark passes on only its trace, as text."""
    _, _, raised = str(error).rpartition(_TRACE)
    found = _RAISED.search(raised)
    return getattr(errors, found[1], None) if found else None


def explain(error: BaseException) -> str:
    """Return an error in one line, without stack trace, query plan, or Spark's wrapping."""
    text = _CALL.sub("", str(error))
    said = _WORKER_SAID.search(text)
    if said:
        text = textwrap.dedent(said[1])
    _, trace, raised = text.rpartition(_TRACE)
    candidates = [line for line in raised.splitlines()[1:] if line and not line[0].isspace()] if trace else []
    lines = candidates or [line.strip() for line in text.splitlines() if line.strip()]
    if said and not candidates:
        lines = lines[-1:]  # earlier lines are warnings
    if not lines:
        return type(error).__name__
    line = lines[0]
    for wrapping in _WRAPPINGS:
        line = wrapping.sub("", line)
    line = _PLACE.sub("", _STATE.sub("", line))
    return line.strip().rstrip(";:") or type(error).__name__
