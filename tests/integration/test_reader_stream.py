"""`spark.readStream.format("kafka-log")` on a real local Spark."""

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from sparklog.sink.store_writer import StoreWriter
from tests.build.sink_store import in_process, open_store, rows
from tests.build.written_log import Batch, write_log

pytestmark = pytest.mark.spark

_TOPICS: dict[str, dict[str, object]] = {"t": {"partitions": 2, "segment.bytes": 4000, "batch.size": 300}}


class _Feed:
    """A store and its writer; values are consecutive numbers, timestamps a minute apart every 60 numbers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0
        self._writer: StoreWriter = open_store(path, _TOPICS)
        self._batches = 0

    def write(self, count: int) -> None:
        numbers = range(self.written, self.written + count)
        columns: dict[str, list[Any]] = {
            "topic": ["t"] * count,
            "partition": [number % 2 for number in numbers],
            "timestamp": [1_700_000_000_000 + number * 1000 for number in numbers],
            "value": [str(number) for number in numbers],
        }
        self._writer.append("feed", self._batches, in_process(rows(**columns)))
        self._batches += 1
        self.written += count

    def close(self) -> None:
        self._writer.close()


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[_Feed]:
    """A store with 200 records."""
    with closing(_Feed(tmp_path / "store")) as feed:
        feed.write(200)
        yield feed


class _Sink:
    """Keeps the numbers of each micro-batch."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __call__(self, frame: DataFrame, _batch_id: int) -> None:
        found = frame.selectExpr("cast(cast(value as string) as int) as number").collect()
        self.batches.append(sorted(row.number for row in found))

    @property
    def numbers(self) -> list[int]:
        return [number for batch in self.batches for number in batch]


def _run(spark: SparkSession, path: Path, checkpoint: Path, sink: _Sink, **options: object) -> StreamingQuery:
    """Run a stream over what is available, to its end."""
    options = {"startingOffsets": "earliest", **options}
    frame = spark.readStream.format("kafka-log").options(**options).load(str(path))
    query = (
        frame.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    return query


def test_stream_when_run_again_then_it_goes_on_where_it_was(spark: SparkSession, feed: _Feed, tmp_path: Path) -> None:
    """Each record is in one micro-batch, over several runs, however they are limited."""
    sink = _Sink()
    for extra in (0, 70, 0):
        if extra:
            feed.write(extra)
        _run(spark, feed.path, tmp_path / "checkpoint", sink, maxOffsetsPerTrigger=100)

    assert sorted(sink.numbers) == list(range(270))
    assert [len(batch) for batch in sink.batches] == [100, 100, 70]


def test_stream_when_it_starts_at_the_end_then_it_reads_what_comes_later(
    spark: SparkSession, feed: _Feed, tmp_path: Path
) -> None:
    """The default start of a stream; the start holds for the first run alone."""
    sink = _Sink()
    _run(spark, feed.path, tmp_path / "checkpoint", sink, startingOffsets="latest")
    feed.write(50)
    _run(spark, feed.path, tmp_path / "checkpoint", sink, startingOffsets="latest")

    assert sink.numbers == list(range(200, 250))


def test_stream_when_a_micro_batch_was_not_committed_then_it_is_run_again_as_it_was(
    spark: SparkSession, feed: _Feed, tmp_path: Path
) -> None:
    """A micro-batch that Spark's checkpoint has begun has the same records again, also the very first one."""
    for starting in ("earliest", "latest"):
        checkpoint, first, second = tmp_path / f"checkpoint-{starting}", _Sink(), _Sink()
        written = feed.written
        _run(spark, feed.path, checkpoint, first, startingOffsets=starting)
        for path in (checkpoint / "commits").iterdir():
            path.unlink()
        feed.write(30)
        _run(spark, feed.path, checkpoint, second, startingOffsets=starting)

        assert second.batches[0] == first.batches[0]
        assert second.numbers == list(range(0 if starting == "earliest" else written, written + 30))


def test_stream_when_it_runs_then_progress_tells_offsets_and_the_latest_ones(
    spark: SparkSession, feed: _Feed, tmp_path: Path
) -> None:
    """Offsets are the connector's JSON; the latest less the end is the lag."""
    query = _run(spark, feed.path, tmp_path / "checkpoint", _Sink(), maxOffsetsPerTrigger=50)

    second = query.recentProgress[1]["sources"][0]
    assert json.loads(second["startOffset"]) == {"t": {"0": 25, "1": 25}}
    assert json.loads(second["endOffset"]) == {"t": {"0": 50, "1": 50}}
    assert json.loads(second["latestOffset"]) == {"t": {"0": 100, "1": 100}}
    assert second["numInputRows"] == 50


def test_stream_when_a_writer_is_at_work_then_a_window_query_sees_each_record_once(
    spark: SparkSession, feed: _Feed, tmp_path: Path
) -> None:
    """A query over a store that is being written, as a stream and as frames, counts what was committed."""

    def write_all() -> None:
        for _ in range(40):
            feed.write(37)

    writing = threading.Thread(target=write_all)
    frame = spark.readStream.format("kafka-log").option("startingOffsets", "earliest").load(str(feed.path))
    counts = frame.groupBy(F.window("timestamp", "60 seconds")).agg(F.count("*").alias("n"), F.max("offset"))
    query = (
        counts.writeStream.format("memory")
        .queryName("windows")
        .outputMode("complete")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        writing.start()
        seen = [spark.read.format("kafka-log").load(str(feed.path)).count() for _ in range(3)]
        writing.join()
        query.processAllAvailable()
    finally:
        query.stop()

    assert seen == sorted(seen)
    assert all((count - 200) % 37 == 0 for count in seen), "a frame sees whole micro-batches"
    found = {row.window.start.timestamp(): row.n for row in spark.table("windows").collect()}
    frame = spark.read.format("kafka-log").load(str(feed.path))
    wanted = frame.groupBy(F.window("timestamp", "60 seconds")).count().collect()
    assert found == {row.window.start.timestamp(): row["count"] for row in wanted}
    assert sum(found.values()) == feed.written == 200 + 37 * 40


def test_stream_when_records_were_removed_then_it_fails_with_the_log_and_the_offsets(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Retention that overtakes a stream is an error that names the offsets, or a loss that is accepted."""
    folder, checkpoint = tmp_path / "logs", tmp_path / "checkpoint"
    log = write_log(folder / "t-0", [[Batch([0] * 10)], [Batch([0] * 10)], [Batch([0] * 10)]])
    _run(spark, folder, checkpoint, _Count(), startingOffsets='{"t": {"0": 5}}', maxOffsetsPerTrigger=2)
    _forget(checkpoint / "commits", {"0"})
    _forget(checkpoint / "offsets", {"0", "1"})
    log.batches[0][0].unlink()
    log.batches[1][0].unlink()

    with pytest.raises(StreamingQueryException) as caught:
        _run(spark, folder, checkpoint, _Count())
    assert "records are missing: log=t-0 offset=7 start=20" in str(caught.value)

    rest = _Count()
    _run(spark, folder, checkpoint, rest, failOnDataLoss=False)
    assert rest.offsets == list(range(20, 30))


def _forget(folder: Path, kept: set[str]) -> None:
    """Delete all entries of a checkpoint's folder but some, and their checksums."""
    for path in folder.iterdir():
        if path.name.removeprefix(".").removesuffix(".crc") not in kept:
            path.unlink()


class _Count(_Sink):
    """Keeps offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets: list[int] = []

    def __call__(self, frame: DataFrame, _batch_id: int) -> None:
        self.offsets += sorted(row.offset for row in frame.select("offset").collect())
