"""Frames of a few records for each of many logs."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

__all__ = ["RECORDS_PER_LOG", "address_rows", "small_frame"]

RECORDS_PER_LOG = 10
_SPLITS = 2


def address_rows(numbers: DataFrame, number: str, logs: int) -> DataFrame:
    """Return a record for each number: an explicit partition, a short key, a value of 100 bytes.

    Args:
        numbers: any frame.
        number: its column of integers from 0 without gaps.
        logs: records go to partitions 0 to this, in turns.
    """
    text = F.col(number).cast("string")
    return numbers.select(
        (F.col(number) % logs).cast("int").alias("partition"),
        text.alias("key"),
        F.rpad(F.sha2(text, 256), 100, "-").alias("value"),
    )


def small_frame(spark: SparkSession, logs: int, records_per_log: int = RECORDS_PER_LOG) -> DataFrame:
    """Return a frame with the same number of records for each of the logs, in two splits."""
    numbers = spark.range(0, logs * records_per_log, numPartitions=_SPLITS)
    return address_rows(numbers, "id", logs)
