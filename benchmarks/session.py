"""The Spark session of the benchmarks: that of `sparklog stream`, with two slots."""

import functools
import logging
from collections.abc import Sequence

from pyspark.sql import SparkSession

from sparklog.pipeline.reader.data_source import register
from sparklog.pipeline.spark.jars import obtain_jars
from sparklog.pipeline.spark.session import build_session
from sparklog.storage_core.errors import LogStorageError

__all__ = ["SESSION_SETTINGS", "kafka_jars", "start_session"]

SESSION_SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "4g",
    "spark.sql.files.minPartitionNum": "8",
    "spark.sql.shuffle.partitions": "8",
}
"""What is set on top of the settings of `sparklog stream`."""

_NOT_KAFKA = "delta"


def start_session(memory: str | None = None, jars: Sequence[str] = ()) -> SparkSession:
    """Return a session; it can write to Kafka where the jars for that can be had.

    Args:
        memory: Spark's driver memory, if it is to be another.
        jars: paths of more jars.
    """
    logging.getLogger("py4j").setLevel(logging.ERROR)
    settings = {**SESSION_SETTINGS, "spark.log.level": "ERROR"}
    if memory:
        settings["spark.driver.memory"] = memory
    if every := (*kafka_jars()[0], *jars):
        settings["spark.jars"] = ",".join(every)
    session = build_session(settings)
    register(session)
    return session


@functools.cache
def kafka_jars() -> tuple[tuple[str, ...], str]:
    """Return the jars of Spark's Kafka sink, or none and the reason."""
    try:
        return tuple(str(jar) for jar in obtain_jars() if _NOT_KAFKA not in jar.name), ""
    except LogStorageError as error:
        return (), str(error)
