"""The job that reading tests kill: a stream from the store in `<folder>/store` into the Delta table `<folder>/table`.

With `--available-now` it ends where the store ends; without, it goes on until somebody kills it. Small micro-batches
give a kill many places to fall; the run that ends takes large ones, since killed runs leave it most of a store.
"""

import os
import sys
import traceback
from pathlib import Path

from sparklog.pipeline.reader.data_source import register
from sparklog.pipeline.spark.jars import obtain_jars
from sparklog.pipeline.spark.session import build_session


def _stream(folder: Path, *, is_last: bool) -> None:
    spark = build_session(
        {
            "spark.master": "local[2]",
            "spark.driver.memory": "700m",
            "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dderby.system.home={folder}",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "2",
        },
        jars=obtain_jars(),
    )
    register(spark)
    (folder / "ready").touch()
    frame = (
        spark.readStream.format("kafka-log")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 50_000 if is_last else 1500)
        .option("minPartitions", 3)
        .load(str(folder / "store"))
    )
    writer = (
        frame.select("topic", "partition", "offset", "value")
        .writeStream.format("delta")
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    query = (writer.trigger(availableNow=True) if is_last else writer).start(str(folder / "table"))
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    job_folder = Path(sys.argv[1])
    try:
        _stream(job_folder, is_last=sys.argv[2:] == ["--available-now"])
    except BaseException:
        (job_folder / "error.txt").write_text(traceback.format_exc())
        os._exit(3)
    os._exit(0)
