"""A program that builds its own Spark session, writes with `LogSink` and reads with `format("kafka-log")`.

`python -m tests.programs.own_session MASTER STORE [SETTING=VALUE]...` prints how many records it read.
"""

import sys

from pyspark.sql import SparkSession

import sparklog


def main(master: str, store: str, *settings: str) -> None:
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    for setting in settings:
        builder = builder.config(*setting.split("=", 1))
    spark = builder.getOrCreate()
    with sparklog.LogSink(store, topic="t", topics={"t": {"partitions": 2}}) as sink:
        sink.write(spark.range(10).selectExpr("cast(id AS string) AS value"), query_id="rows")
    sparklog.register(spark)
    print(spark.read.format("kafka-log").option("subscribe", "t").load(store).count())
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
