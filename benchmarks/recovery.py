"""Recovery of one large segment: ours on one core beside a broker's, of the same bytes, in turns.

The broker's figure is its own: `Completed load of Log(...) in N ms`, after a start without the marker of a clean
shutdown. It may use every core; its recovery of one log is one thread.
"""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.kafka_sink import BROKER_SETTINGS, ServerToolbox
from benchmarks.one_segment import write_segment
from benchmarks.table import Table, Verdict
from storage_core.log.log_files import LOG
from storage_core.record.batch_encode import EncodeOptions
from tests.kafka.broker import KafkaBroker, TopicSpec
from tests.kafka.toolbox import KafkaToolbox, KafkaToolError, KafkaUnavailableError

__all__ = ["run"]

_BATCHES = {"16 KiB": 16_384, "1 KiB": 1024}
_TIMEOUT_S = 600
_BEGAN = "Recovering unflushed segment 0. 0 recovered for {}-0."
_COMPLETED = re.compile(r"Completed load of Log\(dir=\S*/([a-z0-9]+)-0,.* log-end-offset (\d+) in (\d+)ms")
_SETTINGS = {**BROKER_SETTINGS, "num.recovery.threads.per.data.dir": 1}


@dataclass(slots=True)
class _Measured:
    """One segment.

    Attributes:
        log: of ours; the broker has a copy.
        topic: of the broker's.
        core, clock, broker: seconds, round by round.
        peak_mb: memory that ours took at most.
    """

    log: Path
    topic: str
    core: list[float] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)
    broker: list[float] = field(default_factory=list)
    peak_mb: float = 0.0

    @property
    def size(self) -> int:
        return self.log.stat().st_size


def run(bench: Bench) -> None:
    """Recover segments of two sizes of batches, again and again."""
    size = bench.pick(1000, 64) * 1_000_000
    segments = {}
    for name, batch_bytes in _BATCHES.items():
        topic = f"batches{batch_bytes}"
        options = EncodeOptions(batch_size_bytes=batch_bytes, partition_leader_epoch=0)
        segments[name] = _Measured(write_segment(bench.fresh(f"recovered-{topic}"), size, options), topic)
    broker, reason = _broker(bench, list(segments.values()))
    for _ in range(bench.pick(5, 2)):
        for each in segments.values():
            _recover(each)
        if broker is not None:
            _recover_by(broker, bench.folder / "broker", list(segments.values()))
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
    bench.fresh("broker")


def _row(each: _Measured) -> tuple[str, ...]:
    speeds = [f"{each.size / 1e6 / statistics.median(seconds):.0f}" for seconds in (each.core, each.clock)]
    if not each.broker:
        return (*speeds, f"{each.peak_mb:.0f}", "did not run", "")
    ratios = [theirs / ours for theirs, ours in zip(each.broker, each.clock, strict=True)]
    return (
        *speeds,
        f"{each.peak_mb:.0f}",
        f"{each.size / 1e6 / statistics.median(each.broker):.0f}",
        f"{statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})",
    )


def _recover(each: _Measured) -> None:
    """Recover in a process of its own; all it has is the `.log`."""
    for path in each.log.parent.iterdir():
        if path.suffix != LOG:
            path.unlink()
    os.sync()  # what was left to the kernel to write is not the recovery's bill
    command = [sys.executable, "-m", "benchmarks.recovery_child", str(each.log.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S)
    found = json.loads(done.stdout)
    each.core.append(found["core_seconds"])
    each.clock.append(found["seconds"])
    each.peak_mb = max(each.peak_mb, found["peak_mb"])


def _broker(bench: Bench, segments: list[_Measured]) -> tuple[KafkaBroker | None, str]:
    """Give a broker that is down and has a copy of each segment, or the reason why there is none."""
    folder = bench.fresh("broker")
    folder.mkdir()
    try:
        toolbox = ServerToolbox(KafkaToolbox.obtain().jars)
        with KafkaBroker(toolbox, folder) as broker:
            broker.format()
            broker.start(_SETTINGS)
            config = {"retention.ms": -1, "message.timestamp.before.max.ms": 2**63 - 1}
            broker.create_topics(*(TopicSpec(name=each.topic, config=config) for each in segments))
            broker.stop()
            for each in segments:
                for path in each.log.parent.iterdir():
                    shutil.copy(path, broker.log_dir / f"{each.topic}-0")
            return broker, ""
    except (KafkaUnavailableError, KafkaToolError) as error:
        text = f"THE COMPARISON WITH A BROKER DID NOT RUN: {error}"
        print(f"\n{'!' * 20} {text} {'!' * 20}", file=sys.stderr, flush=True)
        return None, f"**{text}**"


def _recover_by(broker: KafkaBroker, folder: Path, segments: list[_Measured]) -> None:
    """Start the broker as after a crash, and read how long it took for each log.

    Its indexes stay: where one is missing it recovers the segment twice.
    """
    with broker:
        broker.forget_clean_shutdown()
        os.sync()
        broker.start(_SETTINGS)
    newest = max(folder.glob("broker-*.log"), key=lambda path: path.stat().st_mtime_ns)
    text = newest.read_text(errors="replace")
    found = {topic: int(ms) / 1000 for topic, end, ms in _COMPLETED.findall(text) if int(end)}
    for each in segments:
        if each.topic not in found or _BEGAN.format(each.topic) not in text:
            raise KafkaToolError(f"the broker did not recover {each.topic}: see {newest}")
        each.broker.append(found[each.topic])


def _judge(bench: Bench, each: _Measured) -> None:
    speed = each.size / 1e6 / statistics.median(each.core)
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
    factor = (
        statistics.median(theirs / ours for theirs, ours in zip(each.broker, each.clock, strict=True))
        if (each.broker)
        else None
    )
    bench.judge(
        Verdict(
            what="recovery of a segment against a broker's",
            wanted="3 x its speed",
            aim="the same",
            measured="did not run" if factor is None else f"{factor:.1f} x",
            is_met=None if factor is None else factor >= 3,
            is_aim_met=None if factor is None else factor >= 3,
        )
    )
