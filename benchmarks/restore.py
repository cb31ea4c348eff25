"""A cluster is gone: until its first record is consumed again, from a mounted store or produced anew.

Both begin with a broker that is down, and a warm page cache: ours has the store, the other one an empty topic and
Kafka's own tool that makes its records from nothing. A mount places the files, and checks every batch of them.
"""

import shutil
import statistics
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import confluent_kafka

from benchmarks.bench import FILES, Bench, noise_note
from benchmarks.beside_broker import TIMEOUT_S
from benchmarks.kafka_sink import ServerToolbox
from benchmarks.rounds import Contender, run_rounds
from benchmarks.rows import KEY_BYTES, ROWS_TEXT, VALUE_BYTES
from benchmarks.stores import TOPIC
from benchmarks.table import Table, Verdict
from sparklog.sink.log_sink import LogSink
from tests.kafka.broker import KafkaBroker, TopicSpec, free_ports
from tests.kafka.toolbox import KafkaToolbox, KafkaToolError, KafkaUnavailableError

__all__ = ["run"]

_LOGS = 4
_LINKED = 1000
_SEGMENT_BYTES = 64 << 20
_BATCH_BYTES = 16_384
_SMALL_SEGMENT_BYTES = 16_384
_PER_SEGMENT = 128


def run(bench: Bench) -> None:
    """Time mounts of many segments; then both ways to a first record, in turns."""
    _link(bench)
    records = 8 * bench.million
    store = bench.fresh("restored")
    size = _write(bench, store, records, _SEGMENT_BYTES, _BATCH_BYTES)
    try:
        toolbox = ServerToolbox(KafkaToolbox.obtain().jars)
    except KafkaUnavailableError as error:
        _did_not_run(bench, str(error))
        return
    mount, produce = _Mount(bench, store, toolbox), _Produce(bench, records, toolbox)
    results = run_rounds([mount.contender(), produce.contender()], warmups=1, rounds=bench.pick(5, 1))
    ours, theirs = (results[each.name] for each in (mount, produce))
    factors = theirs.ratios(ours)
    rows = [
        (each.name, f"{results[each.name].median:.1f}", f"{each.started_text}", f"{results[each.name].cpu_median:.1f}")
        for each in (mount, produce)
    ]
    notes = (
        f"{records:,} records, {size / 1e6:.0f} MB over {_LOGS} logs, no codec; store: {ROWS_TEXT}; the producer's:"
        f" random bytes, {KEY_BYTES + VALUE_BYTES} B each, `acks=all`",
        "a broker with a heap of 1 GiB, as a server is run; its start is in both figures",
        noise_note(results.values()),
    )
    headers = ("what", "s", "of that the broker's start", "CPU s")
    bench.add(Table("From a lost cluster to the first record", headers, rows, notes))
    _judge(bench, f"{statistics.median(factors):.1f} x", statistics.median(factors))
    shutil.rmtree(store)


class _Mount:
    """Makes a cluster of the store, and starts it."""

    name = "sparklog mount, then a broker"

    def __init__(self, bench: Bench, store: Path, toolbox: KafkaToolbox) -> None:
        self._store, self._out = store, bench.folder / "mounted"
        self._broker = KafkaBroker(toolbox, bench.folder / "broker")
        self._starts: list[float] = []

    @property
    def started_text(self) -> str:
        """Seconds that the broker's start took."""
        return f"{statistics.median(self._starts):.1f}"

    def contender(self) -> Contender:
        return Contender(name=self.name, prepare=self._prepare, run=self._run, clean=self._clean)

    def _prepare(self) -> None:
        shutil.rmtree(self._out, ignore_errors=True)

    def _run(self) -> None:
        (port,) = free_ports(1)
        _mount(self._store, self._out, port)
        began = time.monotonic()
        self._broker.serve(self._out / "server.properties", f"127.0.0.1:{port}")
        self._starts.append(time.monotonic() - began)
        _consume_first(self._broker.bootstrap)

    def _clean(self) -> None:
        self._broker.stop()


class _Produce:
    """Starts a broker with an empty topic, and lets Kafka's tool fill it."""

    name = "Kafka's producer into an equal broker"

    def __init__(self, bench: Bench, records: int, toolbox: KafkaToolbox) -> None:
        self._bench, self._records, self._toolbox = bench, records, toolbox
        self._broker: KafkaBroker
        self._starts: list[float] = []

    @property
    def started_text(self) -> str:
        """Seconds that the broker's start took."""
        return f"{statistics.median(self._starts):.1f}"

    def contender(self) -> Contender:
        return Contender(name=self.name, prepare=self._prepare, run=self._run, clean=self._clean)

    def _prepare(self) -> None:
        folder = self._bench.fresh("produced")
        folder.mkdir()
        self._broker = KafkaBroker(self._toolbox, folder)
        self._broker.format()
        self._broker.start()
        self._broker.create_topics(TopicSpec(name=TOPIC, partitions=_LOGS, config={"retention.ms": -1}))
        self._broker.stop()

    def _run(self) -> None:
        began = time.monotonic()
        self._broker.start()
        self._starts.append(time.monotonic() - began)
        size = str(KEY_BYTES + VALUE_BYTES)
        properties = (f"bootstrap.servers={self._broker.bootstrap}", "acks=all", f"batch.size={_BATCH_BYTES}")
        arguments = ("--topic", TOPIC, "--num-records", str(self._records), "--record-size", size)
        self._toolbox.run(
            "org.apache.kafka.tools.ProducerPerformance",
            *arguments,
            "--throughput",
            "-1",
            "--producer-props",
            *properties,
        )
        _consume_first(self._broker.bootstrap)

    def _clean(self) -> None:
        self._broker.stop()


def _link(bench: Bench) -> None:
    """Mount a store of many small segments."""
    store, clusters = bench.fresh("linked"), bench.fresh("linked-clusters")
    clusters.mkdir()
    _write(bench, store, _LINKED * _PER_SEGMENT, _SMALL_SEGMENT_BYTES, 1024)
    count = len([*store.rglob("*.log")])
    seconds = []
    for number in range(bench.pick(5, 1)):  # each stays: ext4 searches long for inodes right after it has freed some
        began = time.monotonic()
        _mount(store, clusters / str(number), 9092)
        seconds.append(time.monotonic() - began)
    median = statistics.median(seconds)
    notes = ("one filesystem; the whole command: its start, links, indexes, and the check of every batch",)
    bench.add(Table("Mount of many segments", ("segments", "s"), [(f"{count:,}", f"{median:.2f}")], notes))
    bench.judge(
        Verdict(
            what=f"mount of {count:,} segments on one filesystem",
            wanted="2 s",
            aim="0.5 s",
            measured=f"{median:.2f} s",
            is_met=median <= 2,
            is_aim_met=median <= 0.5,
        )
    )
    shutil.rmtree(store)
    shutil.rmtree(clusters)


def _write(bench: Bench, store: Path, records: int, segment_bytes: int, batch_bytes: int) -> int:
    """Write a new store of one topic; return its size in bytes."""
    topic = {"partitions": _LOGS, "segment.bytes": segment_bytes, "batch.size": batch_bytes, "retention.ms": -1}
    with closing(LogSink(store, topics={TOPIC: topic}, topic=TOPIC)) as sink:
        return sink.write(bench.frame(bench.rows_folder(FILES, records)), query_id="bench").bytes


def _mount(store: Path, out: Path, port: int) -> None:
    command = [str(Path(sys.executable).with_name("sparklog")), "mount", str(store), "--new-cluster", "--out", str(out)]
    subprocess.run(
        [*command, "--broker", f"1@127.0.0.1:{port}", "--execute"], capture_output=True, check=True, timeout=TIMEOUT_S
    )


def _consume_first(bootstrap: str) -> None:
    no_group = {"group.id": "none", "enable.auto.commit": False}  # else its end waits seconds for a coordinator
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap} | no_group)
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    message = consumer.poll(60)
    if message is None or message.error() is not None or message.offset() != 0:
        raise KafkaToolError(f"the first record can't be consumed: {message and message.error()}")
    consumer.close()


def _judge(bench: Bench, measured: str, factor: float | None) -> None:
    bench.judge(
        Verdict(
            what="from a lost cluster to the first record, against Kafka's producer",
            wanted="5 x its speed",
            aim="20 x",
            measured=measured,
            is_met=None if factor is None else factor >= 5,
            is_aim_met=None if factor is None else factor >= 20,
        )
    )


def _did_not_run(bench: Bench, reason: str) -> None:
    text = f"THE COMPARISON WITH KAFKA'S PRODUCER DID NOT RUN: {reason}"
    print(f"\n{'!' * 20} {text} {'!' * 20}", file=sys.stderr, flush=True)
    bench.add(Table("From a lost cluster to the first record", ("what",), [(f"**{text}**",)]))
    _judge(bench, "did not run", None)
