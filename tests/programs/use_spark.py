"""Loads the classes that a stream, a shuffle and Python workers need, and waits until its JVM has ended by itself.

`python -m tests.programs.use_spark JVM_OPTIONS`
"""

import sys
import tempfile
from pathlib import Path

from pyspark import SparkContext

from sparklog.pipeline.spark.session import build_session


def main(jvm_options: str) -> None:
    """Run a stream over a few rows, and a query."""
    spark = build_session({"spark.master": "local[2]", "spark.driver.extraJavaOptions": jvm_options})
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows"
        spark.range(100).selectExpr("id", "cast(id as string) as name").write.parquet(str(rows))
        source = spark.readStream.schema("id long, name string").parquet(str(rows))
        passed = source.mapInArrow(lambda batches: batches, "id long, name string")
        write = passed.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
        write.foreachBatch(
            lambda frame, _: frame.groupBy("name").count().orderBy("name").collect()
        ).start().awaitTermination()
    gateway = SparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(300)


if __name__ == "__main__":
    main(sys.argv[1])
