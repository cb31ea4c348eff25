"""Spark over stores of objects: frames in, `kafka-log` out, and the command beside them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparklog.sink.log_sink import LogSink
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.storage_core.objects.open_storage import StoragePlace
from tests.build.text_stream import write_text_stream
from tests.sparklog_command import Sparklog

pytestmark = pytest.mark.spark

_TOPICS = {"numbers": {"partitions": 3, "compression.type": "zstd"}}
_ROWS = 3000
_ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 240


def _write(spark: SparkSession, place: StoragePlace, batches: int = 3) -> None:
    with LogSink(str(place.address), topics=_TOPICS, topic="numbers", storage=place.options) as sink:
        for batch in range(batches):
            first = batch * _ROWS
            ids = spark.range(first, first + _ROWS, numPartitions=2)
            rows = ids.select(
                F.col("id").cast("string").alias("key"),
                F.col("id").cast("string").alias("value"),
                F.timestamp_millis(1_700_000_000_000 + F.col("id")).alias("timestamp"),
            )
            sink.write(rows, query_id="query", batch_id=batch)


def _read(spark: SparkSession, place: StoragePlace, **options: object) -> DataFrame:
    given = {f"storage.{name}": value for name, value in place.options.items()}
    return spark.read.format("kafka-log").options(**given, **options).load(str(place.address))


def _numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row[0]) for row in frame.select(F.col("value").cast("string")).collect())


def test_frame_when_written_to_a_storage_then_read_back_whole_from_a_time_and_as_of_a_version(
    spark: SparkSession, place: StoragePlace
) -> None:
    _write(spark, place, batches=2)
    version = ObjectLedger.open(place).version
    with LogSink(str(place.address), topics=_TOPICS, topic="numbers", storage=place.options) as sink:
        more = spark.range(2 * _ROWS, 3 * _ROWS).selectExpr(
            "string(id) value", "timestamp_millis(1700000000000 + id) timestamp"
        )
        sink.write(more, query_id="query", batch_id=2)

    everything = _read(spark, place)
    assert _numbers(everything) == list(range(3 * _ROWS))
    ends = everything.groupBy("partition").agg(F.count("*"), F.max("offset") + 1, F.countDistinct("offset")).collect()
    assert all(count == end == distinct for _, count, end, distinct in ends)
    since = _read(spark, place, startingTimestamp=1_700_000_000_000 + 4000)
    assert _numbers(since.where(F.unix_millis("timestamp") >= 1_700_000_004_000)) == list(range(4000, 3 * _ROWS))
    assert since.count() < 3 * _ROWS
    assert _numbers(_read(spark, place, asOfVersion=version)) == list(range(2 * _ROWS))
    part = _read(
        spark,
        place,
        assign='{"numbers": [1]}',
        startingOffsets='{"numbers": {"1": 5}}',
        endingOffsets='{"numbers": {"1": 8}}',
    )
    assert [row.offset for row in part.orderBy("offset").collect()] == [5, 6, 7]


def test_stream_when_it_follows_a_store_of_objects_then_has_each_record_once(
    spark: SparkSession, place: StoragePlace, tmp_path: Path
) -> None:
    """Also those that are written between its runs."""
    seen: list[int] = []

    def keep(frame: DataFrame, _batch_id: int) -> None:
        seen.extend(_numbers(frame))

    given = {f"storage.{name}": value for name, value in place.options.items()}
    for batches in (1, 3):
        _write(spark, place, batches)
        frame = (
            spark.readStream.format("kafka-log").options(**given, startingOffsets="earliest").load(str(place.address))
        )
        writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
        assert sorted(seen) == list(range(batches * _ROWS))


@pytest.fixture
def streamed(tmp_path: Path) -> Path:
    """A folder with a store of objects that `sparklog stream` has written, in two runs."""
    (tmp_path / "data").mkdir()
    for number, name in enumerate(("a", "b")):
        (tmp_path / "data" / name).write_text("".join(f"{name}{line}\n" for line in range(3)))
        os.utime(tmp_path / "data" / name, (1_000 + number, 1_000 + number))
    source = {"format": "text", "path": "data", "options": {"maxFilesPerTrigger": 1}}
    jvm = {"spark.master": "local[2]", "spark.driver.memory": "1g"}
    config = write_text_stream(tmp_path, jvm, source=source, store=f"file://{tmp_path}/objects/store")
    for lines in (3, 4):
        (tmp_path / "data" / f"c{lines}").write_text("".join(f"c{lines}-{line}\n" for line in range(lines)))
        done = subprocess.run(
            [sys.executable, "-m", "sparklog", "stream", "--config", str(config), "--available-now"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    return tmp_path


def test_verbs_when_the_store_is_an_address_then_read_it(streamed: Path, sparklog: Sparklog) -> None:
    store = f"file://{streamed}/objects/store"
    names = ["a0", "a1", "a2", "b0", "b1", "b2", *(f"c3-{n}" for n in range(3)), *(f"c4-{n}" for n in range(4))]

    read = sparklog("read", store, "t")

    assert sorted(line.split("\t")[3] for line in read.out.splitlines()) == names
    assert sparklog("offsets", store, "t").out == f"t:0:{len(names)}\n"
    assert sparklog("offsets", store, "t", "--time", "earliest").out == "t:0:0\n"
    verified = sparklog("verify", store, "--deep", "--json")
    assert (verified.code, verified.objects[-1]["logs"]) == (0, 1)
    described = json.loads(sparklog("describe", store, "--json").out)
    assert [each["log_end_offset"] for each in described["logs"]] == [len(names)]
    for wrong in (f"file://{streamed}/objects/none", "ftp://host/x"):
        missing = sparklog("read", wrong, "t")
        assert missing.code in (1, 2)
        assert "Traceback" not in missing.err


def test_verify_when_an_object_is_gone_then_names_it(streamed: Path, sparklog: Sparklog) -> None:
    [gone, *_] = sorted((streamed / "objects" / "store" / "data").rglob("*.batches"))
    gone.unlink()

    found = sparklog("verify", f"file://{streamed}/objects/store")

    assert found.code == 1
    assert gone.name in found.out
