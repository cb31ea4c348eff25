"""The Spark session of a job.

Without `spark-submit` a job gets a local Spark. Settings of `spark-submit` take precedence, then those of the settings
file, then the defaults here.
"""

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

import sparklog
from sparklog.pipeline.spark.jars import obtain_jars
from sparklog.pipeline.spark.submitted import is_submitted
from sparklog.sink.spark.errors import SPARK_ERRORS, explain
from sparklog.sink.spark.worker_python import is_local, prepare_workers
from sparklog.storage_core.errors import InvalidConfigError, LogStorageError

__all__ = [
    "LOG_CONFIG",
    "build_session",
    "end_session",
    "names_jars",
    "running_session",
    "session_conf",
    "submitted_conf",
]

logger = logging.getLogger(__name__)

_CONF = {
    "spark.app.name": "sparklog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.streaming.metricsEnabled": "true",
    # A stream killed during Spark's first write to a checkpoint leaves a partial file, for which Spark would refuse the
    # checkpoint for ever. `checkpoint_check` refuses a checkpoint of another store instead.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    "spark.speculation": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL_CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Workers import our modules from the same folder as the driver.
    "spark.executorEnv.PYTHONPATH": str(Path(sparklog.__file__).resolve().parents[1]),
    "spark.python.daemon.module": "sparklog.pipeline.spark.worker_daemon",
}
_DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_LONGEST_SOCKET_FOLDER = 61
"""Spark refuses a longer path: a socket's name takes 43 more, and the kernel 107 bytes in all."""

LOG_CONFIG = Path(__file__).with_name("log4j2.xml")
_JVM_OPTIONS = "spark.driver.extraJavaOptions"


def submitted_conf() -> dict[str, str] | None:
    """Return the settings of `spark-submit`, its defaults file included; None without `spark-submit`."""
    if not is_submitted():
        return None
    SparkContext._ensure_initialized()  # connects to spark-submit's JVM, whose properties are the settings
    return dict(SparkConf().getAll())


def session_conf(
    configured: Mapping[str, str], submitted: Mapping[str, str] | None = None, jars: Sequence[Path] = ()
) -> dict[str, str]:
    """Return the settings of a session.

    Args:
        configured: the settings file's `spark` section.
        submitted: settings of `spark-submit`; None without it.
        jars: to load at the JVM's start, so not under `spark-submit`; they enable Delta's extension.
    """
    given = {**configured, **(submitted or {})}
    master = given.get("spark.master", "local[*]")
    conf = {**_CONF, "spark.master": master}
    if is_local(master):
        conf |= _LOCAL_CONF | _socket_conf()
    if jars:
        conf["spark.jars"] = ",".join(map(str, jars))
    if jars or names_jars(given, "delta"):
        conf |= _DELTA_CONF
    conf |= given
    if submitted is None:
        quiet = f"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()}"
        conf[_JVM_OPTIONS] = f"{quiet} {conf[_JVM_OPTIONS]}" if _JVM_OPTIONS in conf else quiet
    return conf


def _socket_conf() -> dict[str, str]:
    """Return the settings of Unix sockets, in the first folder with a short enough path; none without such a folder.

    Over loopback TCP each Python task waits some 30 ms. On a cluster a container's path may be too long for a socket.
    """
    for folder in (tempfile.gettempdir(), "/tmp"):
        if len(os.fsencode(folder)) <= _LONGEST_SOCKET_FOLDER and os.access(folder, os.W_OK | os.X_OK):
            return {
                "spark.python.unix.domain.socket.enabled": "true",
                "spark.python.unix.domain.socket.dir": folder,
            }
    return {}


def names_jars(conf: Mapping[str, str], word: str = "") -> bool:
    """Whether the settings name jars or packages, or some whose names contain this word."""
    values = [conf.get(name, "") for name in ("spark.jars", "spark.jars.packages")]
    return any(value and word in value for value in values)


def build_session(
    configured: Mapping[str, str], submitted: Mapping[str, str] | None = None, jars: Sequence[Path] = ()
) -> SparkSession:
    """Start Spark, or join the session that the platform has started.

    Arguments as of `session_conf`.

    Raises:
        InvalidConfigError: there is no Java, or the Python of Spark's workers has no Sparklog.
    """
    conf = session_conf(configured, submitted, jars)
    if SparkContext._gateway is None and not _has_java():
        raise InvalidConfigError("Java 17 is needed for Spark: install a JRE, or set JAVA_HOME and PATH")
    if is_local(conf["spark.master"]):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder
    for name in conf.keys() - (submitted or {}).keys():
        builder = builder.config(name, conf[name])
    spark = builder.getOrCreate()
    prepare_workers(spark.sparkContext)
    return spark


@contextmanager
def running_session(configured: Mapping[str, str], *, with_jars: bool) -> Iterator[SparkSession]:
    """Start Spark and stop it at the end, or join the session that the platform has started.

    Args:
        configured: as of `session_conf`.
        with_jars: whether to load the jars of the delta and kafka sources, unless the settings name jars.
    """
    submitted = submitted_conf()
    wants_jars = with_jars and submitted is None and not names_jars(configured)
    is_ours = SparkContext._active_spark_context is None
    try:
        spark = build_session(configured, submitted, obtain_jars() if wants_jars else ())
    except SPARK_ERRORS as error:
        raise LogStorageError(f"Spark can't start: {explain(error)}") from error
    try:
        yield spark
    finally:
        if is_ours:
            try:
                end_session(spark)
            except SPARK_ERRORS as error:
                logger.debug("Spark was lost before it was stopped: %s", error)


def end_session(spark: SparkSession) -> None:
    """Stop Spark; first end the Python processes of a local Spark.

    Spark closes their sockets before it ends them, and workers of PySpark's own daemon, which data sources use, then
    print a stack trace. SIGTERM to the daemon ends its workers silently.
    """
    jvm = spark.sparkContext._jvm
    try:
        if jvm is not None and is_local(spark.sparkContext.master):  # on a cluster, children may be executors
            for process in jvm.java.lang.ProcessHandle.current().children().toList():
                if process.pid() != os.getpid():  # under `spark-submit` this process is a child
                    process.destroy()
    except SPARK_ERRORS as error:
        logger.debug("Spark was lost before its workers: %s", error)
    spark.stop()


def _has_java() -> bool:
    """Whether Spark's scripts will probably find a Java."""
    if os.environ.keys() & {"SPARK_HOME", "SPARK_CONF_DIR"}:
        return True  # a spark-env.sh there may name one
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home) / "bin" / "java") if home else "java") is not None
