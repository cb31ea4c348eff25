"""`kafka-log` into nothing: beside Parquet of the same rows, beside Spark's Kafka source, with one core and two."""

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from benchmarks.bench import FILES, Bench, noise_note
from benchmarks.kafka_sink import BROKER_SETTINGS, ServerToolbox
from benchmarks.rounds import Contender, Result, run_rounds
from benchmarks.rows import ROWS_TEXT
from benchmarks.session import kafka_jars
from benchmarks.table import Table, Verdict, cpu_ratio_text, ratio_text
from sparklog.sink.log_sink import LogSink
from tests.kafka.broker import KafkaBroker, TopicSpec
from tests.kafka.toolbox import KafkaToolbox, KafkaToolError, KafkaUnavailableError

__all__ = ["run"]

_LOGS = 8
_TOPIC = "bench"
_LARGE_LOG_BYTES = 2 << 30
_ROW_BYTES = 120
_PARQUET = "Parquet, snappy"
_LOG = "kafka-log"
_KAFKA = "Spark's Kafka source"
_DISTINCT = 8
_TASK_MB = 256
_TIMEOUT_S = 900


def run(bench: Bench) -> None:
    """Time all of it; say loudly where there is no broker to compare with."""
    rows = 4 * bench.million
    store = _write_store(bench, "zstd-store", rows, "zstd", _LOGS)
    contenders = [_noop(_LOG, _read(bench, store)), _noop(_PARQUET, _parquet(bench, store))]
    jars, reason = kafka_jars()
    if not jars:
        _compare(bench, contenders, rows, reason)
    else:
        _with_broker(bench, store, contenders, rows)
    large = _write_store(
        bench, "large-store", _LARGE_LOG_BYTES // _ROW_BYTES // (1 if not bench.quick else 64), "none", 1
    )
    _compare_cores(bench, large)
    _measure_memory(bench, [store, large])


def _write_store(bench: Bench, name: str, rows: int, codec: str, logs: int) -> Path:
    path = bench.fresh(name)
    properties = {
        "partitions": logs,
        "compression.type": "uncompressed" if codec == "none" else codec,
        "compression.zstd.level": 1,
        "batch.size": 16_384,
    }
    share = bench.frame(bench.rows_folder(FILES, rows // _DISTINCT))
    with LogSink(path, topics={_TOPIC: properties}, topic=_TOPIC) as sink:
        for number in range(_DISTINCT):
            sink.write(share, query_id="bench", batch_id=number)
    return path


def _read(bench: Bench, store: Path) -> DataFrame:
    return bench.spark.read.format("kafka-log").load(str(store))


def _parquet(bench: Bench, store: Path) -> DataFrame:
    """Return the same rows, all columns of them, from Parquet files that Spark wrote."""
    path = bench.fresh("reader-parquet")
    _read(bench, store).repartition(FILES).write.option("compression", "snappy").parquet(str(path))
    return bench.spark.read.parquet(str(path))


def _noop(name: str, frame: DataFrame) -> Contender:
    return Contender(name=name, run=lambda: frame.write.format("noop").mode("overwrite").save())


def _with_broker(bench: Bench, store: Path, contenders: list[Contender], rows: int) -> None:
    folder = bench.fresh("broker")
    folder.mkdir()
    try:
        with KafkaBroker(ServerToolbox(KafkaToolbox.obtain().jars), folder) as broker:
            broker.format()
            broker.start(BROKER_SETTINGS)
            broker.create_topics(TopicSpec(name=_TOPIC, partitions=_LOGS))
            columns = _read(bench, store).select("key", "value", "topic", "partition", "timestamp")
            options = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.compression.type": "zstd"}
            columns.write.format("kafka").options(**options, **{"kafka.compression.zstd.level": "1"}).save()
            source = bench.spark.read.format("kafka").options(**options, subscribe=_TOPIC).load()
            _compare(bench, [*contenders, _noop(_KAFKA, source)], rows, None)
    except (KafkaUnavailableError, KafkaToolError) as error:
        _compare(bench, contenders, rows, str(error))
    bench.fresh("broker")


def _compare(bench: Bench, contenders: Sequence[Contender], rows: int, no_broker: str | None) -> None:
    results = run_rounds(contenders, warmups=bench.pick(2, 1), rounds=bench.pick(7, 2))
    ours = results[_LOG]
    table = [
        (name, f"{each.median:.2f}", f"{each.cpu_median:.1f}", ratio_text(ours, each), cpu_ratio_text(ours, each))
        for name, each in results.items()
    ]
    notes = [
        f"{ROWS_TEXT}; {_LOGS} logs of zstd level 1, all columns of the connector; read into Spark's noop sink",
        noise_note(results.values()),
    ]
    if no_broker is not None:
        notes.append(f"**THE COMPARISON WITH SPARK'S KAFKA SOURCE DID NOT RUN: {no_broker}**")
        print(f"\n{'!' * 20} {notes[-1]} {'!' * 20}", file=sys.stderr, flush=True)
    headers = ("what", "s", "CPU s", "kafka-log's time over it", "kafka-log's CPU over it")
    bench.add(Table(f"{rows:,} records into nothing", headers, table, notes))
    _judge_time(bench, statistics.median(ours.ratios(results[_PARQUET])))
    _judge_source(bench, results.get(_KAFKA), ours)


def _judge_time(bench: Bench, ratio: float) -> None:
    bench.judge(
        Verdict(
            what="kafka-log, zstd, against Spark reading the same rows from snappy Parquet",
            wanted="3 x its time",
            aim="2 x",
            measured=f"{ratio:.2f} x",
            is_met=ratio <= 3,
            is_aim_met=ratio <= 2,
        )
    )


def _judge_source(bench: Bench, kafka: Result | None, ours: Result) -> None:
    factor = None if kafka is None else statistics.median(kafka.ratios(ours))
    bench.judge(
        Verdict(
            what="kafka-log against Spark's Kafka source and a broker on the same machine",
            wanted="1.3 x its speed",
            aim="2 x",
            measured="did not run" if factor is None else f"{factor:.2f} x",
            is_met=None if factor is None else factor >= 1.3,
            is_aim_met=None if factor is None else factor >= 2,
        )
    )


def _compare_cores(bench: Bench, store: Path) -> None:
    """Read one large log in processes that may use one core, and two, in turns."""
    times: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(bench.pick(3, 1)):
        for cores, found in times.items():
            found.extend(_run_child("benchmarks.reader_child", str(store), str(cores), str(bench.pick(3, 1))))
    one, two = (statistics.median(times[cores]) for cores in (1, 2))
    factor = one / two
    megabytes = sum(path.stat().st_size for path in store.rglob("*.log")) / 1e6
    rows = [
        (f"{cores}", f"{statistics.median(found):.2f}", f"{megabytes / statistics.median(found):,.0f}")
        for cores, found in times.items()
    ]
    notes = (
        "one log; a process for each figure, bound to its cores with Spark, its JVM and its workers",
        f"all times: {json.dumps({cores: [round(each, 2) for each in found] for cores, found in times.items()})}",
    )
    bench.add(Table(f"One log of {megabytes:,.0f} MB, by cores", ("cores", "s", "MB/s"), rows, notes))
    bench.judge(
        Verdict(
            what="one large log, one core against two",
            wanted="1.7 x",
            aim="1.9 x",
            measured=f"{factor:.2f} x",
            is_met=factor >= 1.7,
            is_aim_met=factor >= 1.9,
        )
    )


def _measure_memory(bench: Bench, stores: Sequence[Path]) -> None:
    """Read each store as one task, in a process of its own."""
    rows, peaks = [], []
    for store in stores:
        found = _run_child("benchmarks.reader_memory_child", str(store))
        peaks.append(found["peak_mb"])
        largest = max(path.stat().st_size for path in store.rglob("*.log")) / 1e6
        added = found["peak_mb"] - found["before_mb"]
        rows.append((f"{found['rows']:,}", f"{largest:,.0f}", f"{found['peak_mb']:,.0f}", f"{added:,.0f}"))
    notes = ("a process that does what a task does, without Spark; 4 MiB of the log at a time",)
    headers = ("records", "largest segment, MB", "peak of resident memory, MB", "of it while reading")
    bench.add(Table("Memory of a task that reads a whole store", headers, rows, notes))
    bench.judge(
        Verdict(
            what="memory of a reading task",
            wanted="flat in segment size",
            aim=f"{_TASK_MB} MB",
            measured=f"{max(peaks):,.0f} MB, {peaks[-1] / peaks[0]:.2f} x from small to large segments",
            is_met=peaks[-1] / peaks[0] <= 1.25,
            is_aim_met=max(peaks) <= _TASK_MB,
        )
    )


def _run_child(module: str, *arguments: str) -> Any:
    """Run a module in a process of its own and return the JSON of its last line."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=_TIMEOUT_S,
    )
    return json.loads(done.stdout.splitlines()[-1])
