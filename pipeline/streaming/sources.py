"""Opens the source of a job as a streaming frame."""

import logging

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sparklog.pipeline.reader.data_source import KafkaLogSource, register
from sparklog.pipeline.settings.stream_settings import SourceSettings
from sparklog.pipeline.spark.jars import list_of_jars
from sparklog.sink.spark.errors import explain
from sparklog.storage_core.errors import InvalidConfigError

__all__ = ["needs_jars", "open_source"]

logger = logging.getLogger(__name__)

_INFERRED_FORMATS = ("csv", "json", "parquet")
_JAR_FORMATS = ("delta", "kafka")
_KAFKA_OPTIONS = {"startingOffsets": "earliest", "includeHeaders": "true"}
_KAFKA_START_OPTIONS = ("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp")


def needs_jars(source: SourceSettings) -> bool:
    """Whether the source's format is not part of Spark itself."""
    return source.format in _JAR_FORMATS


def open_source(spark: SparkSession, source: SourceSettings) -> DataFrame:
    """Return the source's rows as a streaming frame.

    The schema of a csv, json or parquet source is inferred from its files if it is not set, with a warning. A Kafka
    source starts at the earliest offsets and has headers, unless its options differ.

    Raises:
        InvalidConfigError: Spark refuses the source; the message names `source` and the reason.
    """
    if source.format == KafkaLogSource.name():
        register(spark)  # only if needed: Spark then starts a Python that searches for data sources
    reader = spark.readStream.format(source.format).options(**_options(source))
    try:
        if source.format in _INFERRED_FORMATS:
            reader = reader.schema(source.schema or _infer_schema(spark, source))
        return reader.load(source.path) if source.path else reader.load()
    except PySparkException as error:
        raise InvalidConfigError(f"source: {explain(error)}{_advice(source)}") from error


def _advice(source: SourceSettings) -> str:
    if not needs_jars(source):
        return ""
    return f" (under spark-submit give its jars by --jars; {list_of_jars()} lists them)"


def _options(source: SourceSettings) -> dict[str, str]:
    options = dict(source.options)
    given = {name.lower() for name in options}
    if source.format == "kafka":
        defaults = dict(_KAFKA_OPTIONS)
        if given & set(_KAFKA_START_OPTIONS):
            del defaults["startingOffsets"]
        options |= {name: value for name, value in defaults.items() if name.lower() not in given}
    return options


def _infer_schema(spark: SparkSession, source: SourceSettings) -> str:
    options = {"inferSchema": "true", **source.options}
    schema: str = spark.read.format(source.format).options(**options).load(source.path).schema.toDDL()
    logger.warning("source.schema is not set, inferred from the present files: %s", schema)
    return schema
