"""Recovery of one large segment: ours on one core beside a broker's, of the same bytes, in turns.

The broker's figure is its own: `Completed load of Log(...) in N ms`, after a start without the marker of a clean
shutdown. It may use every core; its recovery of one log is one thread.
"""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.beside_broker import BesideBroker, broker_output, judge_factor, stopped_broker
from benchmarks.kafka_sink import BROKER_SETTINGS
from benchmarks.one_segment import write_segment
from benchmarks.table import Table, Verdict
from sparklog.storage_core.log.files.names import LOG
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from tests.kafka.broker import KafkaBroker, TopicSpec
from tests.kafka.toolbox import KafkaToolError

__all__ = ["run"]

_BATCHES = {"16 KiB": 16_384, "1 KiB": 1024}
_BEGAN = "Recovering unflushed segment 0. 0 recovered for {}-0."
_COMPLETED = re.compile(r"Completed load of Log\(dir=\S*/([a-z0-9]+)-0,.* log-end-offset (\d+) in (\d+)ms")
_CONFIG = {"retention.ms": -1, "message.timestamp.before.max.ms": 2**63 - 1}
_SETTINGS = {**BROKER_SETTINGS, "num.recovery.threads.per.data.dir": 1}


@dataclass(slots=True, kw_only=True)
class _Measured(BesideBroker):
    """One segment.

    Attributes:
        log: of ours; the broker has a copy.
        topic: of the broker's.
    """

    log: Path
    topic: str


def run(bench: Bench) -> None:
    """Recover segments of two sizes of batches, again and again."""
    size = bench.pick(1000, 64) * 1_000_000
    segments = {}
    for name, batch_bytes in _BATCHES.items():
        topic = f"batches{batch_bytes}"
        options = EncodeOptions(batch_size_bytes=batch_bytes, partition_leader_epoch=0)
        log = write_segment(bench.fresh(f"recovered-{topic}"), size, options)
        segments[name] = _Measured(size_bytes=log.stat().st_size, log=log, topic=topic)
    topics = (TopicSpec(name=each.topic, config=_CONFIG) for each in segments.values())
    with stopped_broker(bench, _SETTINGS, *topics) as (broker, reason):
        if broker is not None:
            _copy(list(segments.values()), broker)
        for _ in range(bench.pick(5, 2)):
            for each in segments.values():
                _recover(each)
            if broker is not None:
                _recover_by(broker, bench, list(segments.values()))
    rows = [(name, *_row(each)) for name, each in segments.items()]
    notes = (
        f"{size / 1e6:.0f} MB in the page cache; ours on one core: scan, cut, indexes, snapshot, all of it fsynced",
        reason or "the broker's own figure; optimising compiler, default collector, heap of 1 GiB; it fsyncs less",
    )
    headers = (
        "batches of",
        "MB/s of one core",
        "MB/s by the clock",
        "peak memory, MB",
        "a broker, MB/s",
        "times as fast",
    )
    bench.add(Table("Recovery of one segment", headers, rows, notes))
    _judge(bench, next(iter(segments.values())))
    for each in segments.values():
        shutil.rmtree(each.log.parent)


def _row(each: _Measured) -> tuple[str, ...]:
    speeds = (each.speed_text(each.core), each.speed_text(each.clock))
    return (*speeds, f"{each.peak_mb:.0f}", each.speed_text(each.broker), each.factor_text)


def _recover(each: _Measured) -> None:
    """Recover in a process of its own; all it has is the `.log`."""
    for path in each.log.parent.iterdir():
        if path.suffix != LOG:
            path.unlink()
    os.sync()  # what was left to the kernel to write is not the recovery's bill
    each.measure("benchmarks.recovery_child", each.log.parent)


def _copy(segments: list[_Measured], broker: KafkaBroker) -> None:
    for each in segments:
        for path in each.log.parent.iterdir():
            shutil.copy(path, broker.log_dir / f"{each.topic}-0")


def _recover_by(broker: KafkaBroker, bench: Bench, segments: list[_Measured]) -> None:
    """Start the broker as after a crash, and read how long it took for each log.

    Its indexes stay: where one is missing it recovers the segment twice.
    """
    with broker:
        broker.forget_clean_shutdown()
        os.sync()
        broker.start(_SETTINGS)
    text = broker_output(bench)
    found = {topic: int(ms) / 1000 for topic, end, ms in _COMPLETED.findall(text) if int(end)}
    for each in segments:
        if each.topic not in found or _BEGAN.format(each.topic) not in text:
            raise KafkaToolError(f"the broker did not recover {each.topic}: {text[-1000:]}")
        each.broker.append(found[each.topic])


def _judge(bench: Bench, each: _Measured) -> None:
    speed = each.speed(each.core)
    bench.judge(
        Verdict(
            what="recovery of a segment, one core",
            wanted="500 MB/s",
            aim="1 GB/s",
            measured=f"{speed:.0f} MB/s",
            is_met=speed >= 500,
            is_aim_met=speed >= 1000,
        )
    )
    judge_factor(bench, "recovery of a segment against a broker's", each.factor, 3, 3)
