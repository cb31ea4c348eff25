"""Whether the number of segment files follows from bytes, not from micro-batches."""

import math
import statistics

from benchmarks.bench import Bench
from benchmarks.small_frames import RECORDS_PER_LOG, small_frame
from benchmarks.stores import TOPIC
from benchmarks.table import Table, Verdict
from sparklog.sink.log_sink import LogSink
from sparklog.sink.metrics import MicroBatchMetrics

__all__ = ["run"]

_LOGS = 8
_SEGMENT_BYTES = 256 << 10


def run(bench: Bench) -> None:
    """Write many small micro-batches into one store; count what lies there."""
    batches = bench.pick(1_000, 60)
    store = bench.fresh("store")
    frame = small_frame(bench.spark, _LOGS)
    properties = {"partitions": _LOGS, "segment.bytes": _SEGMENT_BYTES}
    written: list[MicroBatchMetrics] = []
    with LogSink(store, topics={TOPIC: properties}, topic=TOPIC, on_commit=written.append) as sink:
        for number in range(batches):
            sink.write(frame, query_id="bench", batch_id=number)
    sizes = [[file.stat().st_size for file in log.glob("*.log")] for log in (store / "logs").glob(f"{TOPIC}-*")]
    found, least = sum(map(len, sizes)), sum(math.ceil(sum(each) / _SEGMENT_BYTES) for each in sizes)
    fifth = batches // 5
    first, last = (statistics.median(each.total_ms for each in part) for part in (written[:fifth], written[-fifth:]))
    row = (f"{batches:,}", f"{sum(map(sum, sizes)) / 1e6:.1f}", f"{least}", f"{found}", f"{first:.0f}", f"{last:.0f}")
    headers = ("micro-batches", "MB of logs", "segments, from their bytes", "segments found", "ms, first fifth", "last")
    notes = (
        f"{_LOGS} logs, {RECORDS_PER_LOG} records each in a micro-batch, `segment.bytes={_SEGMENT_BYTES}`;"
        f" a file per log and micro-batch would be {batches * _LOGS:,}",
    )
    bench.add(Table("Segment files after many micro-batches", headers, [row], notes))
    is_met = found <= least + _LOGS  # a segment may end a batch before it is full
    bench.judge(
        Verdict(
            what=f"number of segment files after {batches:,} micro-batches",
            wanted="set by segment.bytes",
            aim="the same",
            measured=f"{found} for {_LOGS} logs",
            is_met=is_met,
            is_aim_met=is_met,
        )
    )
    bench.fresh("store")
