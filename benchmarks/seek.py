"""How long it takes to find one record, by its offset or by a time, in a log of very many segments."""

import random
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.stores import TOPIC
from benchmarks.table import Table, Verdict
from sparklog.sink.log_sink import LogSink
from sparklog.storage_core.log.read.log_reader import LogReader

__all__ = ["run"]

_SEGMENTS = 1_000
_SEGMENT_BYTES = 64 << 10
_RECORD_BYTES = 132
_AT_LEAST_MS, _AIM_MS = 2.0, 0.5

_Seek = Callable[[int], object]


def run(bench: Bench) -> None:
    """Look for random offsets and times, one after the other, on a reader that stays open."""
    store = _write(bench)
    directory = store / "logs" / f"{TOPIC}-0"
    segments = len(list(directory.glob("*.log")))
    end = LogReader(directory).log_end_offset
    first_ms, last_ms = _times(LogReader(directory))
    looks = bench.pick(2_000, 200)
    reader = LogReader(directory)
    kinds: list[tuple[str, _Seek, range]] = [
        ("offset, one record read", lambda offset: next(reader.read(offset, 1)), range(end)),
        ("time", reader.offset_for_time, range(first_ms, last_ms + 1)),
        ("max-timestamp", lambda _: reader.offset_of_max_timestamp(), range(1)),
    ]
    rows, worst = [], 0.0
    for name, seek, places in kinds:
        opening_ms = _timed(seek, places[len(places) // 2])
        taken = _measure(seek, places, looks)
        slow = statistics.quantiles(taken, n=100)[98]
        worst = max(worst, statistics.median(taken))
        rows.append((name, f"{statistics.median(taken):.3f}", f"{slow:.3f}", f"{opening_ms:.1f}"))
    notes = (
        f"{segments:,} segments of {_SEGMENT_BYTES >> 10} KiB, {end:,} records, zstd, page cache warm; {looks:,} random"
        " look-ups each, one after the other, on one open reader",
        "the first look-up by time reads the end of every time index, and the first of all lists the directory",
    )
    headers = ("look-up by", "median ms", "99 % below, ms", "first one, ms")
    bench.add(Table(f"Finding a record in a log of {segments:,} segments", headers, rows, notes))
    bench.judge(
        Verdict(
            what=f"seek by offset or time in a log of {segments:,} segments, page cache warm",
            wanted=f"{_AT_LEAST_MS:g} ms",
            aim=f"{_AIM_MS:g} ms",
            measured=f"{worst:.3f} ms",
            is_met=worst <= _AT_LEAST_MS,
            is_aim_met=worst <= _AIM_MS,
        )
    )
    shutil.rmtree(store)


def _write(bench: Bench) -> Path:
    """Write enough rows for the segments: zstd makes about half of the random ones."""
    store = bench.fresh("seek-store")
    count = bench.pick(_SEGMENTS, _SEGMENTS // 10) * 2 * _SEGMENT_BYTES // _RECORD_BYTES
    properties = {"segment.bytes": _SEGMENT_BYTES, "compression.type": "zstd"}
    frame = bench.frame(bench.rows_folder(1, count))
    with LogSink(store, topics={TOPIC: properties}, topic=TOPIC) as sink:
        sink.write(frame, query_id="bench")
    return store


def _times(reader: LogReader) -> tuple[int, int]:
    first, last = reader.offset_for_time(0), reader.offset_of_max_timestamp()
    if first is None or last is None:
        raise RuntimeError("what was just written has no timestamps")
    return first[1], last[1]


def _measure(seek: _Seek, places: range, count: int) -> list[float]:
    chosen = random.Random(7).choices(places, k=count)
    for place in chosen[:50]:
        seek(place)
    return [_timed(seek, place) for place in chosen]


def _timed(seek: _Seek, place: int) -> float:
    started = time.perf_counter()
    seek(place)
    return (time.perf_counter() - started) * 1000
