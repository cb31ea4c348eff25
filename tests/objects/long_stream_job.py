"""A Spark stream of numbers into a store of objects, and a `kafka-log` stream that follows it, until a file says stop.

`<folder>/long.json` has the address, the storage of each, and the rows a second. Each micro-batch is a line of
`<folder>/batches.jsonl`. What the reader has seen is in `<folder>/seen.json` at the end.
"""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparklog import LogSink
from sparklog.pipeline.reader.data_source import register
from sparklog.pipeline.spark.session import build_session
from sparklog.sink.metrics import MicroBatchMetrics
from tests.kill.job import run_and_exit

__all__ = ["TOPIC"]

TOPIC = "numbers"
_TOPICS: dict[str, dict[str, object]] = {TOPIC: {"partitions": 4, "compression.type": "zstd", "retention.ms": -1}}
_EVERY = "5 seconds"


class _Seen:
    """What a reader was given: each partition's end, and count and sum of its numbers."""

    def __init__(self) -> None:
        self.logs: dict[int, dict[str, int]] = {}
        self.problems: list[str] = []

    def take(self, frame: DataFrame, batch_id: int) -> None:
        number = F.col("value").cast("string").cast("long")
        found = frame.groupBy("partition").agg(F.count("*"), F.min("offset"), F.max("offset"), F.sum(number)).collect()
        for partition, count, first, last, total in found:
            log = self.logs.setdefault(partition, {"end": 0, "sum": 0})
            if (first, last + 1 - first) != (log["end"], count):
                self.problems.append(f"{batch_id=} {partition=} {first=} {last=} {count=} end={log['end']}")
            log["end"], log["sum"] = last + 1, log["sum"] + total


def _stream(folder: Path) -> None:
    given: dict[str, Any] = json.loads((folder / "long.json").read_text())
    spark = build_session(
        {
            "spark.master": "local[2]",
            "spark.driver.memory": "800m",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -Dderby.system.home={folder}",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        }
    )
    register(spark)
    with (folder / "batches.jsonl").open("a", buffering=1) as lines:

        def committed(metrics: MicroBatchMetrics) -> None:
            lines.write(json.dumps({"at": time.monotonic(), **asdict(metrics)}) + "\n")

        sink = LogSink(given["address"], topics=_TOPICS, topic=TOPIC, storage=given["storage"], on_commit=committed)
        numbers = spark.readStream.format("rate").option("rowsPerSecond", given["rate"]).load()
        rows = numbers.selectExpr("timestamp", "string(value % 1000) key", "string(value) value")
        written = (
            rows.writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(folder / "written"))
            .trigger(processingTime=_EVERY)
            .start()
        )
        seen, options = _Seen(), {f"storage.{name}": value for name, value in given["reader_storage"].items()}
        followed = (
            spark.readStream.format("kafka-log")
            .options(**options, startingOffsets="earliest")
            .load(given["address"])
            .writeStream.foreachBatch(seen.take)
            .option("checkpointLocation", str(folder / "followed"))
            .trigger(processingTime=_EVERY)
            .start()
        )
        while not (folder / "stop").exists():
            for query in (written, followed):
                if (error := query.exception()) is not None:
                    raise error
            time.sleep(0.5)
        written.stop()
        sink.close()
        followed.processAllAvailable()
        followed.stop()
    (folder / "seen.json").write_text(json.dumps({"logs": seen.logs, "problems": seen.problems}))
    spark.stop()


if __name__ == "__main__":
    run_and_exit(Path(sys.argv[1]), lambda: _stream(Path(sys.argv[1])))
