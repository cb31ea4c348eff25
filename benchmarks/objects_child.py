"""The measurements of `objects` in a JVM that has S3's jars: `python -m benchmarks.objects_child FOLDER ROWS LOGS`.

Prints JSON: seconds of each contender by group, and other figures.
"""

import json
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.micro_batch import LOGS
from benchmarks.rounds import Contender, run_rounds
from benchmarks.rows import write_rows
from benchmarks.session import start_session
from benchmarks.small_frames import small_frame
from benchmarks.stores import TOPIC
from sparklog.sink.config import SinkConfig
from sparklog.sink.ledger.rows import LedgerRows
from sparklog.sink.log_sink import LogSink
from sparklog.sink.objects.extents import Extent, table_of
from sparklog.sink.objects.maintaining.maintain_objects import MaintainedObjects, maintain_objects
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.sink.objects.object_writer import ObjectWriter
from sparklog.sink.opening.access import maintaining
from sparklog.sink.operations.clean_logs import CleanerBudget, clean_logs, plan_cleanings
from sparklog.sink.operations.roll_active import roll_without_sink
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.objects.address import parse_address
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.topic_partition import TopicPartition
from tests.maven_jars import obtain_jars
from tests.objects.gateway import Gateway, running_gateway

__all__ = ["PARQUET", "main"]

PARQUET = "Spark to Parquet on S3, snappy"
_FILES = 8
_Int64s: TypeAlias = npt.NDArray[np.int64]
_MERGE_EVERY = 100
_CLEANED_BATCHES = 10
_MAP_BYTES = 128 << 20


def main(folder: Path, rows: int, logs: int, rounds: int, commits: int) -> None:
    """Measure, and print."""
    with running_gateway(folder / "gateway") as gateway:
        jars = sorted(obtain_jars(Path(__file__).with_name("s3a.xml"), "s3a").glob("*.jar"))
        spark = start_session(jars=[str(jar) for jar in jars])
        _configure_s3a(spark, gateway)
        frame = spark.read.parquet(str(write_rows(folder / "rows", _FILES, rows // _FILES)))
        found = {
            "micro-batch": _measure_micro_batch(spark, gateway, folder, frame, rounds),
            "many-logs": _measure_many_logs(spark, gateway, folder, logs, rounds),
            "reader": _measure_reader(spark, gateway, folder, frame, rounds),
            "cleaning": _measure_cleaning(gateway, folder, frame.limit(rows // 4), rounds),
        }
        spark.stop()
        found["ledger"] = _measure_ledger(gateway, logs, commits)
    print(json.dumps(found))


def _configure_s3a(spark: SparkSession, gateway: Gateway) -> None:
    settings: Any = spark.sparkContext._jsc.hadoopConfiguration()
    options = gateway.options
    settings.set("fs.s3a.endpoint", options["aws_endpoint_url"])
    settings.set("fs.s3a.path.style.access", "true")
    settings.set("fs.s3a.access.key", options["aws_access_key_id"])
    settings.set("fs.s3a.secret.key", options["aws_secret_access_key"])
    settings.set("fs.s3a.endpoint.region", options.get("aws_region", "us-east-1"))


def _address(gateway: Gateway) -> str:
    return f"{gateway.address}/{uuid.uuid4().hex}"


def _properties(codec: str, logs: int) -> dict[str, object]:
    level = {"compression.zstd.level": 1} if codec == "zstd" else {}
    return {"partitions": logs, "compression.type": codec, "batch.size": 16_384, **level}


class _Writer:
    """Writes a frame as one micro-batch into a new store, on S3 or on disk."""

    def __init__(self, open_sink: Callable[[], LogSink], frame: DataFrame) -> None:
        self._open = open_sink
        self._frame = frame
        self._sink: LogSink

    def prepare(self) -> None:
        self._sink = self._open()

    def run(self) -> None:
        self._sink.write(self._frame, query_id="bench")

    def clean(self) -> None:
        self._sink.close()


def _contender(name: str, gateway: Gateway | None, folder: Path, frame: DataFrame, codec: str, logs: int) -> Contender:
    """Return a contender; on disk if there is no gateway."""
    topics = {TOPIC: _properties(codec, logs)}

    def open_sink() -> LogSink:
        if gateway is None:
            return LogSink(folder / uuid.uuid4().hex, topics=topics, topic=TOPIC)
        return LogSink(_address(gateway), topics=topics, topic=TOPIC, storage=gateway.options)

    writer = _Writer(open_sink, frame)
    return Contender(name=name, prepare=writer.prepare, run=writer.run, clean=writer.clean)


def _seconds(contenders: list[Contender], rounds: int) -> dict[str, list[float]]:
    results = run_rounds(contenders, warmups=1, rounds=rounds)
    return {name: result.seconds for name, result in results.items()}


def _measure_micro_batch(
    _spark: SparkSession, gateway: Gateway, folder: Path, frame: DataFrame, rounds: int
) -> dict[str, list[float]]:
    log = F.pmod(F.hash("key"), F.lit(LOGS)).cast("int")

    def write_parquet() -> None:
        path = _address(gateway).replace("s3://", "s3a://")
        frame.repartitionById(LOGS, log).write.parquet(path, compression="snappy")

    contenders = [
        Contender(name=PARQUET, run=write_parquet),
        *(
            _contender(f"logs on S3, {codec}", gateway, folder, frame, codec, LOGS)
            for codec in ("uncompressed", "zstd")
        ),
        _contender("logs on disk, zstd", None, folder, frame, "zstd", LOGS),
    ]
    return _seconds(contenders, rounds)


def _measure_many_logs(
    spark: SparkSession, gateway: Gateway, folder: Path, logs: int, rounds: int
) -> dict[str, list[float]]:
    frame = small_frame(spark, logs)
    contenders = [
        _contender("on S3", gateway, folder, frame, "uncompressed", logs),
        _contender("on disk", None, folder, frame, "uncompressed", logs),
    ]
    return _seconds(contenders, rounds)


def _measure_reader(
    spark: SparkSession, gateway: Gateway, folder: Path, frame: DataFrame, rounds: int
) -> dict[str, list[float]]:
    """Half of the records are merged, the others lie as tasks wrote them."""
    places: dict[str, tuple[str, Mapping[str, str]]] = {
        "on S3": (_address(gateway), gateway.options),
        "on disk": (str(folder / "read"), {}),
    }
    contenders = []
    for name, (place, storage) in places.items():
        with LogSink(place, topics={TOPIC: _properties("zstd", LOGS)}, topic=TOPIC, storage=storage or None) as sink:
            sink.write(frame, query_id="bench", batch_id=0)
        given = {f"storage.{key}": value for key, value in storage.items()}
        stored = spark.read.format("kafka-log").options(**given).load(place)
        contenders.append(Contender(name=name, run=partial(_read, stored)))
    return _seconds(contenders, rounds)


def _read(stored: DataFrame) -> None:
    stored.write.format("noop").mode("overwrite").save()


class _Cleaning:
    """Compacts a log of ten micro-batches, in a store of its own each time; on disk if there is no gateway."""

    def __init__(self, gateway: Gateway | None, folder: Path, frame: DataFrame) -> None:
        self._gateway, self._folder, self._frame = gateway, folder, frame
        self._place: StoragePlace | Path = folder

    def prepare(self) -> None:
        topics = {TOPIC: {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01, "batch.size": 16_384}}
        storage = self._gateway.options if self._gateway is not None else {}
        place = str(self._folder / uuid.uuid4().hex) if self._gateway is None else _address(self._gateway)
        with LogSink(place, topics=topics, topic=TOPIC, storage=storage or None) as sink:
            for batch in range(_CLEANED_BATCHES):
                part = self._frame.where(F.pmod(F.xxhash64("value"), F.lit(_CLEANED_BATCHES)) == batch)
                sink.write(part, query_id="bench", batch_id=batch)
        self._place = Path(place) if self._gateway is None else StoragePlace(parse_address(place), storage)

    def run(self) -> None:
        clock = SystemClock()
        if isinstance(self._place, StoragePlace):
            done = [each.kind for each in maintain_objects(MaintainedObjects(self._place, clock, _MAP_BYTES))]
            assert done[0] == "clean", done
            return
        budget = CleanerBudget(map_bytes=_MAP_BYTES, hash_key=bytes(16))
        with maintaining(self._place) as maintained:
            plans = plan_cleanings(maintained.store, {}, clock, may_roll=True)
            roll_without_sink(maintained, [each.log for each in plans], clock)
            plans = plan_cleanings(maintained.store, {}, clock)
            assert [each.outcome for each in clean_logs(maintained, plans, budget, clock)] == ["cleaned"]


def _measure_cleaning(gateway: Gateway, folder: Path, frame: DataFrame, rounds: int) -> dict[str, list[float]]:
    """Return seconds of one core: what the server takes is not counted."""
    contenders = []
    for name, server in {"at an address": gateway, "on disk": None}.items():
        cleaning = _Cleaning(server, folder, frame)
        contenders.append(Contender(name=name, prepare=cleaning.prepare, run=cleaning.run))
    results = run_rounds(contenders, warmups=1, rounds=rounds)
    return {name: result.core_seconds for name, result in results.items()}


def _measure_ledger(gateway: Gateway, logs: int, commits: int) -> dict[str, list[float]]:
    """Commits that add an extent to every log; after a hundred of them all extents of a log become one."""
    config = SinkConfig.from_options(_address(gateway), {TOPIC: {"partitions": logs}}, storage=gateway.options)
    assert config.objects is not None
    ObjectWriter(config, config.objects, SystemClock()).close()
    ledger = ObjectLedger.open(config.objects)
    ledger.begin_writing()
    ledger.place.open().create("data/bench", b"x")
    rows, seconds = np.arange(logs), list[float]()
    for number in range(1, commits + 1):
        values = {name: np.full(logs, number, np.int64) for name in ("log_end_offset", "recovery_point")}
        added = _extents(logs, number)
        started = time.perf_counter()
        ledger.change(partial(_raise, rows, values), added, ("bench", number))
        seconds.append(time.perf_counter() - started)
        if number % _MERGE_EVERY == 0:
            ledger.rewrite(_merge_all, 0)
    return {"first": seconds[10:110], "last": seconds[-100:]}


def _extents(logs: int, number: int) -> pa.Table:
    extent = Extent(
        base_offset=number - 1,
        end_offset=number,
        object="data/bench",
        position=0,
        size_bytes=1,
        max_timestamp_ms=0,
        records=1,
        leader_epoch=0,
        has_own_offsets=False,
    )
    return table_of({TopicPartition(TOPIC, log): [extent] for log in range(logs)})


def _raise(numbers: _Int64s, values: Mapping[str, _Int64s], held: LedgerRows) -> LedgerRows:
    return held.with_values(numbers, values)


def _merge_all(rows: LedgerRows, extents: dict[TopicPartition, list[Extent]]) -> LedgerRows:
    for held in extents.values():
        held[:] = [replace(held[0], end_offset=held[-1].end_offset)]
    return rows


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
