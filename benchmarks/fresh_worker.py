"""What the first micro-batch of a new Python worker costs on top of the second."""

import itertools
import statistics
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from benchmarks.bench import Bench
from benchmarks.processes import kill_python_workers
from benchmarks.small_frames import small_frame
from benchmarks.stores import TOPIC
from benchmarks.table import Table, Verdict
from sparklog.sink.log_sink import LogSink

__all__ = ["run"]

_LOGS = 8
_SETTLE_S = 0.5


def run(bench: Bench) -> None:
    """Time pairs of micro-batches, the first of each in workers that did not exist before."""
    frame = small_frame(bench.spark, _LOGS)
    with LogSink(bench.fresh("store"), topics={TOPIC: {"partitions": _LOGS}}, topic=TOPIC) as sink:
        numbers = itertools.count()
        bodies: dict[str, Callable[[], object]] = {
            "a function that does nothing": lambda: _nothing(frame).collect(),
            "the sink": lambda: sink.write(frame, query_id="bench", batch_id=next(numbers)),
        }
        pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in bodies}
        for number in range(bench.pick(9, 4)):
            for name, body in bodies.items():
                killed = kill_python_workers()
                if number and not killed:
                    raise RuntimeError("no idle Python worker was found: its micro-batch would not be the first")
                time.sleep(_SETTLE_S)  # Spark has to see that they are gone
                pair = _time(body), _time(body)
                if number:
                    pairs[name].append(pair)
    rows = [(name, *(f"{each:.2f}" for each in _medians(times))) for name, times in pairs.items()]
    notes = ("two tasks in two workers that were just forked; PySpark's daemon has the sink imported; the JVM is warm",)
    headers = ("what runs in the worker", "first, s", "second, s", "difference, s")
    bench.add(Table("First micro-batch in a new Python worker", headers, rows, notes))
    _judge(bench, _medians(pairs["the sink"])[2])
    bench.fresh("store")


def _nothing(frame: DataFrame) -> DataFrame:
    def drain(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"rows": [rows]})

    return frame.mapInArrow(drain, "rows bigint")


def _time(body: Callable[[], object]) -> float:
    started = time.perf_counter()
    body()
    return time.perf_counter() - started


def _medians(pairs: list[tuple[float, float]]) -> tuple[float, float, float]:
    firsts, seconds = zip(*pairs, strict=True)
    differences = [first - second for first, second in pairs]
    return statistics.median(firsts), statistics.median(seconds), statistics.median(differences)


def _judge(bench: Bench, difference: float) -> None:
    bench.judge(
        Verdict(
            what="first micro-batch in a new Python worker",
            wanted="1 s more than the second",
            aim="0.3 s",
            measured=f"{difference:.2f} s",
            is_met=difference <= 1,
            is_aim_met=difference <= 0.3,
        )
    )
