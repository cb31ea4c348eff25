"""Cleaning of a compacted log: ours on one core beside a broker's cleaner, over the same segments, in turns.

The broker's figures are its own: `400.0 MB of log processed in 4.6 seconds`, and the counts before and after, which
have to be ours too. It gets the segments twice in a run, as two topics: the first one is cleaned by a JVM that has just
started, the second one by a warm one.
"""

import os
import re
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.bench import Bench
from benchmarks.beside_broker import TIMEOUT_S, BesideBroker, broker_output, judge_factor, stopped_broker
from benchmarks.kafka_sink import BROKER_SETTINGS
from benchmarks.table import Table, Verdict
from sparklog.storage_core.index.index_builder import IndexBuilder
from sparklog.storage_core.log.files.names import INDEX, LOG, TIMEINDEX, segment_file_name
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions, RecordColumns, encode_batches
from tests.kafka.broker import KafkaBroker, TopicSpec
from tests.kafka.toolbox import KafkaToolError

__all__ = ["run"]

_TOPICS = ("cold", "warm")
_SEGMENTS = 4
_VALUE_BYTES = 100
_BATCH_BYTES = 65_536
_START_MS = 1_700_000_000_000
_MAP_MB = 128
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


@dataclass(slots=True, kw_only=True)
class _Measured(BesideBroker):
    """One log; the broker's seconds are those of a warm one.

    Attributes:
        map_core: our seconds for the map alone; `cold` the broker's for its first log.
    """

    directory: Path
    end_offset: int
    keys: int
    map_core: list[float] = field(default_factory=list)
    cold: list[float] = field(default_factory=list)
    records: int = 0


def run(bench: Bench) -> None:
    """Clean again and again; then, once, as many keys as a map of 1 GB has to hold."""
    log = _write(bench.fresh("cleaned"), bench.pick(875_000, 60_000), bench.pick(200_000, 20_000))
    topics = (TopicSpec(name=topic, config=_CONFIG) for topic in _TOPICS)
    with stopped_broker(bench, {**_SETTINGS, "log.cleaner.enable": "false"}, *topics) as (broker, reason):
        for _ in range(bench.pick(5, 1)):
            _clean(log, _MAP_MB)
            if broker is not None:
                _clean_by(broker, bench, log)
    headers = ("who", "MB/s by the clock", "MB/s of one core", "times a broker, warm", "peak memory, MB")
    notes = (
        f"{log.size_bytes / 1e6:.0f} MB in the page cache, {_SEGMENTS} segments, values of {_VALUE_BYTES} B,"
        f" {log.keys:,} keys in {log.end_offset:,} records, batches of 64 KiB, no codec, all dirty; a map of"
        f" {_MAP_MB} MiB at most",
        reason or "a broker's own figure: one cleaner thread, optimising compiler, default collector, heap of 1 GiB",
        "both write and fsync the new segment and its indexes; ours checks the CRC of every batch it reads",
    )
    bench.add(Table("Cleaning of a compacted log", headers, _rows(log), notes))
    judge_factor(bench, "cleaning, one core, against a broker's cleaner", log.factor, 2, 4)
    shutil.rmtree(log.directory)
    _many_keys(bench)


def _many_keys(bench: Bench) -> None:
    """Map and clean a log in which every record has a key of its own."""
    count = bench.pick(20_000_000, 200_000)
    log = _write(bench.fresh("many-keys"), count // _SEGMENTS, count, value_bytes=20)
    _clean(log, 1000 - 250)
    row = (f"{log.keys:,}", f"{log.speed(log.core):.0f}", f"{log.peak_mb:.0f}", f"{log.size_bytes / 1e6:.0f}")
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
    return _Measured(size_bytes=size, directory=directory, end_offset=_SEGMENTS * per_segment, keys=keys)


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
    found = log.measure("benchmarks.cleaner_child", log.directory, log.end_offset, map_mb)
    log.map_core.append(found["map_core_seconds"])
    log.records = found["records"]


def _clean_by(broker: KafkaBroker, bench: Bench, log: _Measured) -> None:
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
    deadline = time.monotonic() + TIMEOUT_S
    while set(found) != set(_TOPICS):
        if time.monotonic() > deadline:
            raise KafkaToolError("the broker did not clean both logs in time")
        time.sleep(0.5)
        for topic, seconds, count in _SUMMARY.findall(broker_output(bench)):
            if topic in _TOPICS:
                found.setdefault(topic, (float(seconds.replace(",", "")), int(count.replace(",", ""))))
    broker.stop()
    for (topic, (seconds, count)), known in zip(found.items(), (log.cold, log.broker), strict=True):
        if count != log.records:
            raise KafkaToolError(f"the broker kept {count} records, we {log.records}: topic={topic}")
        known.append(seconds)


def _rows(log: _Measured) -> list[tuple[str, ...]]:
    speeds = (log.speed_text(log.clock), log.speed_text(log.core))
    return [
        ("ours", *speeds, log.factor_text, f"{log.peak_mb:.0f}"),
        ("of that the map", "", log.speed_text(log.map_core), "", ""),
        ("a broker, cold", log.speed_text(log.cold), "", "", ""),
        ("a broker, warm", log.speed_text(log.broker), "", "", ""),
    ]
