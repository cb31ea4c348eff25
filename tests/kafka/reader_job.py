"""Runs one query over a live topic through Spark's Kafka connector and over its files through `kafka-log`.

Run as a script, for the connector's jars have to be there when Spark starts. What it is told comes as JSON in the first
argument; what it found goes into the file that this names.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparklog import LogSink
from sparklog.pipeline.reader.data_source import register
from sparklog.pipeline.spark.jars import obtain_jars
from sparklog.pipeline.spark.session import build_session

_ROWS = ("key", "value", "topic", "partition", "offset", "timestampType", "headers")
_LEVELS = ("read_uncommitted", "read_committed")


def _main(told: Mapping[str, Any]) -> None:
    jars = [jar for jar in obtain_jars() if "delta" not in jar.name]
    folder = Path(told["folder"])
    spark = build_session(
        {
            "spark.master": "local[2]",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dderby.system.home={folder}",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.jars": ",".join(map(str, jars)),
        }
    )
    register(spark)
    topics = {"subscribe": ",".join(told["topics"]), "includeHeaders": "true"}
    kafka = {**topics, "kafka.bootstrap.servers": told["bootstrap"]}
    found: dict[str, Any] = {}
    for level in _LEVELS:
        isolation = {"kafka.isolation.level": level}
        found[f"{level} connector"] = _both(spark.read.format("kafka").options(**kafka, **isolation).load())
        for name in ("live", "copied"):
            files = spark.read.format("kafka-log").options(**topics, **isolation).load(told[name])
            found[f"{level} {name}"] = _both(files)
    found["store"] = _mirrored(spark, kafka, told["topics"], folder)
    Path(told["result"]).write_text(json.dumps(found))
    spark.stop()


def _both(frame: DataFrame) -> dict[str, list[Any]]:
    return {"rows": _rows(frame), "windows": _windows(frame)}


def _rows(frame: DataFrame) -> list[str]:
    """Return rows as JSON, in order."""
    columns = [*_ROWS, F.unix_micros("timestamp").alias("us")]
    ordered = frame.select(*columns).orderBy("topic", "partition", "offset")
    return [str(row) for row in ordered.toJSON().collect()]


def _windows(frame: DataFrame) -> list[Any]:
    """Return a query over windows of time: counts, keys, bytes and offsets of each topic."""
    counted = (
        frame.groupBy("topic", F.window("timestamp", "30 seconds", "10 seconds"))
        .agg(
            F.count("*").alias("n"),
            F.countDistinct("key").alias("keys"),
            F.sum(F.length("value")).alias("bytes"),
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
        )
        .selectExpr("topic", "unix_millis(window.start) as start", "n", "keys", "bytes", "first", "last")
        .orderBy("topic", "start")
    )
    return [list(row) for row in counted.collect()]


def _mirrored(spark: SparkSession, kafka: Mapping[str, str], topics: Mapping[str, int], folder: Path) -> dict[str, Any]:
    """Mirror the topics into a store by a stream, and follow the store by another one meanwhile."""
    settings = {name: {"partitions": count, "segment.bytes": 4000} for name, count in topics.items()}
    store = folder / "store"
    committed = {**kafka, "kafka.isolation.level": "read_committed", "startingOffsets": "earliest"}
    with LogSink(store, topics=settings, offsets="preserved") as sink:
        source = spark.readStream.format("kafka").options(**committed).option("maxOffsetsPerTrigger", 60).load()
        columns = source.select("topic", "partition", "offset", "timestamp", "key", "value", "headers")
        follow = spark.readStream.format("kafka-log").option("startingOffsets", "earliest").load(str(store))
        counts = follow.groupBy("topic").agg(F.count("*").alias("n"), F.max("offset").alias("last"))
        reading = (
            counts.writeStream.format("memory")
            .queryName("follow")
            .outputMode("complete")
            .option("checkpointLocation", str(folder / "follow"))
            .start()
        )
        writing = (
            columns.writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(folder / "mirror"))
            .trigger(availableNow=True)
            .start()
        )
        writing.awaitTermination()
        reading.processAllAvailable()
        reading.stop()
    files = spark.read.format("kafka-log").option("includeHeaders", "true").load(str(store))
    followed = [list(row) for row in spark.table("follow").orderBy("topic").collect()]
    return {**_both(files), "followed": followed}


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
