"""A micro-batch into logs, durable and committed, beside the same rows into snappy Parquet, split the same way."""

import statistics
from pathlib import Path

from pyspark.sql import functions as F

from benchmarks.bench import FILES, Bench, noise_note
from benchmarks.rounds import Contender, Result, run_rounds
from benchmarks.rows import ROWS_TEXT
from benchmarks.stores import MicroBatchWriter
from benchmarks.table import Table, Verdict, cpu_ratio_text, ratio_text

__all__ = ["run"]

LOGS = 8
_YARDSTICK = "Spark to Parquet, snappy"
_WAYS: tuple[tuple[str, int, dict[str, object]], ...] = (
    ("none", 16_384, {}),
    ("zstd", 16_384, {"compression.zstd.level": 1}),
    ("zstd", 131_072, {"compression.zstd.level": 1}),
    ("lz4", 16_384, {}),
)


def run(bench: Bench) -> None:
    """Time every codec and batch size against the yardstick."""
    rows = 4 * bench.million
    frame = bench.frame(bench.rows_folder(FILES, rows))
    parquet = _ParquetWriter(bench)
    writers = [_writer(bench, codec, size, more) for codec, size, more in _WAYS]
    contenders = [Contender(name=_YARDSTICK, prepare=parquet.prepare, run=parquet.run, clean=parquet.clean)]
    contenders += [each.contender() for each in writers]
    results = run_rounds(contenders, warmups=bench.pick(2, 1), rounds=bench.pick(5, 2))
    yardstick = results[_YARDSTICK]
    table = [
        (_YARDSTICK, f"{yardstick.median:.2f}", f"{yardstick.cpu_median:.1f}", f"{parquet.megabytes:.0f}", "1", "1", "")
    ]
    for writer in writers:
        result = results[writer.name]
        table.append(
            (
                writer.name,
                f"{result.median:.2f}",
                f"{result.cpu_median:.1f}",
                f"{writer.megabytes():.0f}",
                ratio_text(result, yardstick),
                cpu_ratio_text(result, yardstick),
                _steps(writer, len(result.seconds)),
            )
        )
    bench.add(
        Table(
            f"Micro-batch of {rows:,} records over {LOGS} logs",
            (
                "what",
                "s",
                "CPU s",
                "MB",
                "time against Parquet",
                "CPU against Parquet",
                "of which stage, place, sync, commit (s)",
            ),
            table,
            (
                f"{ROWS_TEXT}; read from {FILES} Parquet files, {frame.rdd.getNumPartitions()} splits",
                f"Parquet: `repartitionById({LOGS}, pmod(hash(key), {LOGS}))`, one file per log, never synced to disk;"
                f" logs: Kafka's murmur2 of the key, synced, committed",
                noise_note(results.values()),
            ),
        )
    )
    _judge(bench, results, yardstick)


def _writer(bench: Bench, codec: str, batch_size: int, more: dict[str, object]) -> MicroBatchWriter:
    frame = bench.frame(bench.rows_folder(FILES, 4 * bench.million))
    level = f" level {more['compression.zstd.level']}" if more else ""
    properties = {
        "partitions": LOGS,
        "compression.type": "uncompressed" if codec == "none" else codec,
        "batch.size": batch_size,
        **more,
    }
    name = f"logs, {codec}{level}, batch.size={batch_size}"
    return MicroBatchWriter(name, frame, bench.folder / "store", properties)


def _steps(writer: MicroBatchWriter, rounds: int) -> str:
    kept = writer.metrics[-rounds:]
    names = ("stage_ms", "place_ms", "sync_ms", "commit_ms")
    medians = [statistics.median(getattr(each, name) for each in kept) / 1000 for name in names]
    return ", ".join(f"{each:.2f}" for each in medians)


def _judge(bench: Bench, results: dict[str, Result], yardstick: Result) -> None:
    for codec, level in (("none", ""), ("zstd", " level 1")):
        ratios = results[f"logs, {codec}{level}, batch.size=16384"].ratios(yardstick)
        ratio = statistics.median(ratios)
        bench.judge(
            Verdict(
                what=f"micro-batch against Parquet, {codec}{level}",
                wanted="0.7 of its time",
                aim="0.5",
                measured=f"{ratio:.2f}",
                is_met=ratio <= 0.7,
                is_aim_met=ratio <= 0.5,
            )
        )


class _ParquetWriter:
    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._frame = bench.frame(bench.rows_folder(FILES, 4 * bench.million))
        self._path = Path()
        self.megabytes = 0.0

    def prepare(self) -> None:
        self._path = self._bench.fresh("parquet")

    def run(self) -> None:
        log = F.pmod(F.hash("key"), F.lit(LOGS)).cast("int")
        self._frame.repartitionById(LOGS, log).write.parquet(str(self._path), compression="snappy")

    def clean(self) -> None:
        self.megabytes = sum(file.stat().st_size for file in self._path.glob("*.parquet")) / 1e6
        self._bench.fresh("parquet")
