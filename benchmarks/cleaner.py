"""Cleaning of a compacted log: ours on one core beside a broker's cleaner, over the same segments, in turns.

The broker's figures are its own: `400.0 MB of log processed in 4.6 seconds`, and the counts before and after, which
have to be ours too. It gets the segments twice in a run, as two topics: the first one is cleaned by a JVM that has just
started, the second one by a warm one.
"""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.bench import Bench
from benchmarks.kafka_sink import BROKER_SETTINGS, ServerToolbox
from benchmarks.table import Table, Verdict
from storage_core.index.index_builder import IndexBuilder
from storage_core.log.log_files import INDEX, LOG, TIMEINDEX, segment_file_name
from storage_core.record.batch_encode import EncodeOptions, RecordColumns, encode_batches
from tests.kafka.broker import KafkaBroker, TopicSpec
from tests.kafka.toolbox import KafkaToolbox, KafkaToolError, KafkaUnavailableError

__all__ = ["run"]

_TOPICS = ("cold", "warm")
_SEGMENTS = 4
_VALUE_BYTES = 100
_BATCH_BYTES = 65_536
_START_MS = 1_700_000_000_000
_MAP_MB = 128
_TIMEOUT_S = 300
_SETTINGS = {
    **BROKER_SETTINGS,
    "log.cleaner.enable": "true",
    "log.cleaner.dedupe.buffer.size": _MAP_MB << 20,
    "log.cleaner.backoff.ms": 500,
}
_CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": 0.01,
    "segment.bytes": 1 << 30,
    "segment.ms": 2**62,
    "message.timestamp.before.max.ms": 2**63 - 1,
}
_SUMMARY = re.compile(
    r"cleaned log (\w+)-0 .*?processed in ([\d.,]+) seconds.*?End size: [\d.,]+ MB \(([\d,]+) messages\)", re.DOTALL
)


@dataclass(slots=True)
class _Measured:
    """One log.

    Attributes:
        core, clock: our seconds, round by round; `map_core` for the map alone.
        broker: a broker's seconds by topic.
    """

    directory: Path
    size: int
    end_offset: int
    keys: int
    core: list[float] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)
    map_core: list[float] = field(default_factory=list)
    peak_mb: float = 0.0
    records: int = 0
    broker: dict[str, list[float]] = field(default_factory=lambda: {topic: [] for topic in _TOPICS})

    def speed(self, seconds: list[float]) -> float:
        """Return MB/s, the median of the rounds."""
        return self.size / 1e6 / statistics.median(seconds)


def run(bench: Bench) -> None:
    """Clean again and again; then, once, as many keys as a map of 1 GB has to hold."""
    log = _write(bench.fresh("cleaned"), bench.pick(875_000, 60_000), bench.pick(200_000, 20_000))
    with _broker(bench) as (broker, reason):
        for _ in range(bench.pick(5, 1)):
            _clean(log, _MAP_MB)
            if broker is not None:
                _clean_by(broker, bench.folder / "broker", log)
    headers = ("who", "MB/s by the clock", "MB/s of one core", "times a broker, warm", "peak memory, MB")
    notes = (
        f"{log.size / 1e6:.0f} MB in the page cache, {_SEGMENTS} segments, values of {_VALUE_BYTES} B, {log.keys:,}"
        f" keys in {log.end_offset:,} records, batches of 64 KiB, no codec, all dirty; a map of {_MAP_MB} MiB at most",
        reason or "a broker's own figure: one cleaner thread, optimising compiler, default collector, heap of 1 GiB",
        "both write and fsync the new segment and its indexes; ours checks the CRC of every batch it reads",
    )
    bench.add(Table("Cleaning of a compacted log", headers, _rows(log), notes))
    _judge(bench, log)
    shutil.rmtree(log.directory)
    bench.fresh("broker")
    _many_keys(bench)


def _many_keys(bench: Bench) -> None:
    """Map and clean a log in which every record has a key of its own."""
    count = bench.pick(20_000_000, 200_000)
    log = _write(bench.fresh("many-keys"), count // _SEGMENTS, count, value_bytes=20)
    _clean(log, 1000 - 250)
    row = (f"{log.keys:,}", f"{log.speed(log.core):.0f}", f"{log.peak_mb:.0f}", f"{log.size / 1e6:.0f}")
    notes = (
        "every key once, in one round; values of 20 B; a map of 750 MiB at most; memory above that of the idle process",
    )
    bench.add(Table("Many keys in one log", ("keys", "MB/s of one core", "peak memory, MB", "log, MB"), [row], notes))
    bench.judge(
        Verdict(
            what="keys cleaned in one round with 1 GB",
            wanted="20 M",
            aim="50 M",
            measured=f"{log.records / 1e6:.1f} M, {log.peak_mb:.0f} MB",
            is_met=None if bench.quick else log.records == count and log.peak_mb <= 1000,
            is_aim_met=False,
        )
    )
    shutil.rmtree(log.directory)


def _write(directory: Path, per_segment: int, keys: int, value_bytes: int = _VALUE_BYTES) -> _Measured:
    """Write closed segments of random keys, and an active one of one record."""
    directory.mkdir(parents=True)
    generator, every = np.random.default_rng(7), np.arange(per_segment)
    size = 0
    for number in range(_SEGMENTS):
        first = number * per_segment
        ids = first + every if keys > per_segment * (_SEGMENTS - 1) else generator.integers(0, keys, per_segment)
        size += _write_segment(directory, first, ids, generator.bytes(value_bytes * per_segment), value_bytes)
    _write_segment(directory, _SEGMENTS * per_segment, np.array([0]), b"v", 1)
    return _Measured(directory, size, _SEGMENTS * per_segment, keys)


def _write_segment(directory: Path, base: int, ids: npt.NDArray[np.int64], values: bytes, width: int) -> int:
    count = len(ids)
    text = np.char.zfill(ids.astype("S8"), 8).tobytes()
    key, value = (
        pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), count, [None, pa.py_buffer(data)]).cast(pa.binary())
        for size, data in ((8, text), (width, values))
    )
    offsets = base + np.arange(count)
    columns = RecordColumns(key=key, value=value, timestamp=_START_MS + offsets, offset=offsets)
    options = EncodeOptions(batch_size_bytes=_BATCH_BYTES, partition_leader_epoch=0)
    encoded = encode_batches(columns, np.arange(count), np.array([0, count]), options)
    indexes = IndexBuilder(base)
    indexes.add(encoded.position, encoded.base_offset + encoded.last_offset_delta, encoded.max_timestamp)
    built = indexes.finish()
    for suffix, content in ((LOG, encoded.data.data), (INDEX, built.offset_index), (TIMEINDEX, built.time_index)):
        (directory / segment_file_name(base, suffix)).write_bytes(content)
    return int(encoded.data.size)


def _clean(log: _Measured, map_mb: int) -> None:
    command = [sys.executable, "-m", "benchmarks.cleaner_child", str(log.directory), str(log.end_offset), str(map_mb)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S)
    found = json.loads(done.stdout)
    log.core.append(found["core_seconds"])
    log.clock.append(found["seconds"])
    log.map_core.append(found["map_core_seconds"])
    log.peak_mb, log.records = max(log.peak_mb, found["peak_mb"]), found["records"]


@contextmanager
def _broker(bench: Bench) -> Iterator[tuple[KafkaBroker | None, str]]:
    """Give a broker that is down and has both topics, or the reason why there is none."""
    folder = bench.fresh("broker")
    folder.mkdir()
    try:
        toolbox = ServerToolbox(KafkaToolbox.obtain().jars)
        with KafkaBroker(toolbox, folder) as broker:
            broker.format()
            broker.start({**_SETTINGS, "log.cleaner.enable": "false"})
            broker.create_topics(*(TopicSpec(name=topic, config=_CONFIG) for topic in _TOPICS))
            broker.stop()
            yield broker, ""
    except (KafkaUnavailableError, KafkaToolError) as error:
        text = f"THE COMPARISON WITH A BROKER DID NOT RUN: {error}"
        print(f"\n{'!' * 20} {text} {'!' * 20}", file=sys.stderr, flush=True)
        yield None, f"**{text}**"


def _clean_by(broker: KafkaBroker, folder: Path, log: _Measured) -> None:
    """Start the broker over fresh copies, and wait until it has cleaned both."""
    for topic in _TOPICS:
        directory = broker.log_dir / f"{topic}-0"
        for path in directory.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        for path in log.directory.iterdir():
            if path.suffix == LOG and int(path.stem) < log.end_offset:
                os.link(path, directory / path.name)  # a broker only ever reads and renames it
            else:
                shutil.copy(path, directory)
    (broker.log_dir / "cleaner-offset-checkpoint").unlink(missing_ok=True)
    broker.start(_SETTINGS)
    found: dict[str, tuple[float, int]] = {}
    deadline = time.monotonic() + _TIMEOUT_S
    while set(found) != set(_TOPICS):
        if time.monotonic() > deadline:
            raise KafkaToolError("the broker did not clean both logs in time")
        time.sleep(0.5)
        newest = max(folder.glob("broker-*.log"), key=lambda path: path.stat().st_mtime_ns)
        for topic, seconds, count in _SUMMARY.findall(newest.read_text(errors="replace")):
            if topic in _TOPICS:
                found.setdefault(topic, (float(seconds.replace(",", "")), int(count.replace(",", ""))))
    broker.stop()
    for number, (topic, (seconds, count)) in enumerate(found.items()):
        if count != log.records:
            raise KafkaToolError(f"the broker kept {count} records, we {log.records}: topic={topic}")
        log.broker[_TOPICS[number]].append(seconds)


def _rows(log: _Measured) -> list[tuple[str, ...]]:
    warm = log.broker["warm"]
    ratio = ""
    if warm:
        ratios = [theirs / ours for theirs, ours in zip(warm, log.clock, strict=True)]
        ratio = f"{statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
    rows = [("ours", f"{log.speed(log.clock):.0f}", f"{log.speed(log.core):.0f}", ratio, f"{log.peak_mb:.0f}")]
    rows += [("of that the map", "", f"{log.speed(log.map_core):.0f}", "", "")]
    for topic, seconds in log.broker.items():
        rows.append((f"a broker, {topic}", f"{log.speed(seconds):.0f}" if seconds else "did not run", "", "", ""))
    return rows


def _judge(bench: Bench, log: _Measured) -> None:
    warm, factor = log.broker["warm"], None
    if warm:
        factor = statistics.median(theirs / ours for theirs, ours in zip(warm, log.clock, strict=True))
    bench.judge(
        Verdict(
            what="cleaning, one core, against a broker's cleaner",
            wanted="2 x its speed",
            aim="4 x",
            measured="did not run" if factor is None else f"{factor:.1f} x",
            is_met=None if factor is None else factor >= 2,
            is_aim_met=None if factor is None else factor >= 4,
        )
    )
