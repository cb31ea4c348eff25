"""What a micro-batch costs that carries next to nothing, by number of logs."""

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from benchmarks.bench import Bench, noise_note
from benchmarks.rounds import Contender, Result, run_rounds
from benchmarks.small_frames import RECORDS_PER_LOG, address_rows, small_frame
from benchmarks.stores import TOPIC
from benchmarks.table import Table, Verdict
from sparklog.sink.log_sink import LogSink

__all__ = ["run"]

_WANTED_S = {8: (0.4, 0.25), 100: (0.6, 0.3), 1000: (1.5, 0.6)}
_TURNS = 2
_WARM_TRIGGERS = 4
_TIMEOUT_S = 600.0


@dataclass(slots=True)
class _Streamed:
    """Durations of the triggers of one streaming query, in ms."""

    trigger: list[float] = field(default_factory=list)
    body: list[float] = field(default_factory=list)


def run(bench: Bench) -> None:
    """Time plain frames and triggers of streaming queries."""
    sinks = {logs: _open_sink(bench, logs) for logs in _WANTED_S}
    plain = _write_plain_frames(bench, sinks)
    streamed: dict[int, _Streamed] = {logs: _Streamed() for logs in (0, *_WANTED_S)}
    for turn, (logs, kept) in itertools.product(range(_TURNS), streamed.items()):
        body = sinks[logs] if logs else _discard
        _stream(bench, f"{logs}-{turn}", logs or 8, body, kept)
    for logs, sink in sinks.items():
        sink.close()
        bench.fresh(f"store-{logs}")
    bench.add(_table(plain, streamed))
    for logs, (most, aim) in _WANTED_S.items():
        _judge(bench, logs, statistics.median(streamed[logs].trigger) / 1000, most, aim)


def _open_sink(bench: Bench, logs: int) -> LogSink:
    return LogSink(bench.fresh(f"store-{logs}"), topics={TOPIC: {"partitions": logs}}, topic=TOPIC)


def _write_plain_frames(bench: Bench, sinks: dict[int, LogSink]) -> dict[int, Result]:
    numbers = itertools.count()

    def writer(logs: int) -> Callable[[], object]:
        frame = small_frame(bench.spark, logs)
        return lambda: sinks[logs].write(frame, query_id="plain", batch_id=next(numbers))

    contenders = [Contender(name=str(logs), run=writer(logs)) for logs in sinks]
    results = run_rounds(contenders, warmups=4, rounds=bench.pick(11, 3))
    return {logs: results[str(logs)] for logs in sinks}


def _discard(_frame: DataFrame, _batch_id: int) -> None:
    """Do nothing with a micro-batch."""


def _stream(bench: Bench, name: str, logs: int, body: Callable[[DataFrame, int], None], kept: _Streamed) -> None:
    """Run a query until enough triggers were seen; keep those behind the warm ones."""
    source = bench.spark.readStream.format("rate-micro-batch")
    source = source.option("rowsPerBatch", logs * RECORDS_PER_LOG).option("numPartitions", 2)
    wanted = _WARM_TRIGGERS + bench.pick(12, 3)

    def limited(frame: DataFrame, batch_id: int) -> None:
        if batch_id < wanted:  # later ones are idle, so that the query is stopped between two micro-batches
            body(frame, batch_id)

    stream = address_rows(source.load(), "value", logs).writeStream.foreachBatch(limited)
    query = stream.option("checkpointLocation", str(bench.folder / "checkpoints" / name)).start()
    deadline = time.monotonic() + _TIMEOUT_S
    try:
        while len(query.recentProgress) < wanted:
            if time.monotonic() > deadline or not query.isActive:
                raise RuntimeError(f"the query stopped, or was too slow: {query.exception()}")
            time.sleep(0.2)
        progress = query.recentProgress[_WARM_TRIGGERS:wanted]
    finally:
        query.stop()
    kept.trigger += [each.durationMs["triggerExecution"] for each in progress]
    kept.body += [each.durationMs["addBatch"] for each in progress]


def _table(plain: dict[int, Result], streamed: dict[int, _Streamed]) -> Table:
    rows = []
    for logs, durations in streamed.items():
        trigger, body = (statistics.median(each) / 1000 for each in (durations.trigger, durations.body))
        name = f"{logs:,} logs" if logs else "a function that does nothing"
        alone = f"{plain[logs].median:.2f}" if logs else ""
        cpu = f"{plain[logs].cpu_median:.2f}" if logs else ""
        rows.append((name, f"{trigger:.2f}", f"{body:.2f}", alone, cpu))
    notes = (
        f"{RECORDS_PER_LOG} records of 100 B for each log; two tasks; streaming from Spark's `rate-micro-batch` source,"
        f" one trigger right after the other, {_TURNS} queries each, in turns",
        noise_note(plain.values()),
    )
    headers = ("foreachBatch into", "trigger, s", "of it the batch, s", "write() of a plain frame, s", "CPU s")
    return Table("Fixed cost of a micro-batch", headers, rows, notes)


def _judge(bench: Bench, logs: int, trigger: float, most: float, aim: float) -> None:
    bench.judge(
        Verdict(
            what=f"fixed cost of a micro-batch, {logs:,} logs x {RECORDS_PER_LOG} records",
            wanted=f"{most} s",
            aim=f"{aim} s",
            measured=f"{trigger:.2f} s",
            is_met=trigger <= most,
            is_aim_met=trigger <= aim,
        )
    )
