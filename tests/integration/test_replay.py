"""What a crash makes of Spark's checkpoint: a micro-batch that runs again changes nothing, and no stream is stuck."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sparklog
from tests.build.sink_store import contents
from tests.kill.records import SPARK_SCHEMA, TOPICS, problems_of, read_input, reverse_rows, write_input

pytestmark = pytest.mark.spark


def _stream(spark: SparkSession, folder: Path) -> list[sparklog.MicroBatchMetrics]:
    """Run the stream until its input is used up, in a sink of its own; return what the sink did."""
    done: list[sparklog.MicroBatchMetrics] = []
    with sparklog.LogSink(folder / "store", topics=TOPICS, on_invalid="quarantine", on_commit=done.append) as sink:
        frame = (
            spark.readStream.format("parquet")
            .schema(SPARK_SCHEMA)
            .option("maxFilesPerTrigger", 2)
            .load(str(folder / "input"))
        )
        query = (
            frame.writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    return done


def test_replay_when_rows_come_in_another_order_then_no_byte_changes(spark: SparkSession, memory_path: Path) -> None:
    """The ledger knows what was committed, whatever Spark remembers and in whatever order the rows come again."""
    write_input(memory_path / "input", rows=80)
    expected = read_input(memory_path / "input")
    assert [each.replayed for each in _stream(spark, memory_path)] == [False] * 3
    before = {name: contents(memory_path / "store" / name) for name in ("logs", "quarantine", "ledger")}

    for name in ("2", ".2.crc"):
        (memory_path / "checkpoint" / "commits" / name).unlink()
    reverse_rows(memory_path / "input")
    replayed = _stream(spark, memory_path)

    assert [(each.batch_id, each.replayed) for each in replayed] == [(2, True)]
    assert {name: contents(memory_path / "store" / name) for name in before} == before
    assert problems_of(memory_path / "store", expected) == []


def test_stream_when_killed_while_spark_wrote_its_first_offsets_then_starts_again(
    spark: SparkSession, memory_path: Path
) -> None:
    """Spark leaves a half-written file then, and would take its folder for somebody else's checkpoint."""
    write_input(memory_path / "input", rows=20)
    offsets = memory_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    for name in (".0.5e1f4bbc-9d3f-4d3c-8f43-0d5ed1a4b0a1.tmp", "..0.5e1f4bbc-9d3f-4d3c-8f43-0d5ed1a4b0a1.tmp.crc"):
        (offsets / name).write_text("v1")

    _stream(spark, memory_path)

    assert problems_of(memory_path / "store", read_input(memory_path / "input")) == []
