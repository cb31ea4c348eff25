"""A micro-batch into logs beside Spark's own Kafka sink into a broker on the same machine."""

import statistics
import sys
import uuid

from pyspark.sql import DataFrame

from benchmarks.bench import FILES, Bench, noise_note
from benchmarks.rounds import Contender, run_rounds
from benchmarks.rows import ROWS_TEXT
from benchmarks.session import kafka_jars
from benchmarks.stores import MicroBatchWriter
from benchmarks.table import Table, Verdict
from tests.kafka.broker import KafkaBroker, TopicSpec
from tests.kafka.toolbox import KafkaToolbox, KafkaToolError, KafkaUnavailableError

__all__ = ["BROKER_SETTINGS", "ServerToolbox", "run"]

_LOGS = 8
_BATCH_BYTES = 16_384
_CODECS = ("none", "zstd")
_ZSTD_LEVEL = 1
_SHORT_LIVED_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
BROKER_SETTINGS = {"num.network.threads": 3, "num.io.threads": 8, "log.cleaner.enable": "false"}


def run(bench: Bench) -> None:
    """Time both codecs, both ways; say loudly where there is no broker to compare with."""
    jars, reason = kafka_jars()
    if not jars:
        _did_not_run(bench, reason)
        return
    folder = bench.fresh("broker")
    folder.mkdir()
    try:
        toolbox = ServerToolbox(KafkaToolbox.obtain().jars)
        with KafkaBroker(toolbox, folder) as broker:
            broker.format()
            broker.start(BROKER_SETTINGS)
            _compare(bench, broker)
    except (KafkaUnavailableError, KafkaToolError) as error:
        _did_not_run(bench, str(error))
    bench.fresh("broker")


class ServerToolbox(KafkaToolbox):
    """Runs Kafka's classes as a server is run: with the optimising compiler and the default collector."""

    def command(self, main_class: str, *arguments: str, heap: str = "512m", log_level: str = "error") -> list[str]:
        """Return the command line that runs a class of Kafka's."""
        heap = "1g" if main_class == "kafka.Kafka" else heap
        command = super().command(main_class, *arguments, heap=heap, log_level=log_level)
        return [each for each in command if each not in _SHORT_LIVED_OPTIONS]


class _KafkaWriter:
    """Writes a frame into a new topic each time."""

    def __init__(self, frame: DataFrame, broker: KafkaBroker, codec: str) -> None:
        self.name = f"Spark's Kafka sink, {codec}"
        self._frame = frame
        self._broker = broker
        self._topic = ""
        self._options = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "kafka.acks": "all",
            "kafka.batch.size": str(_BATCH_BYTES),
            "kafka.compression.type": codec,
            "kafka.compression.zstd.level": str(_ZSTD_LEVEL),
        }

    def contender(self) -> Contender:
        return Contender(name=self.name, prepare=self._prepare, run=self._run)

    def _prepare(self) -> None:
        self._topic = f"bench-{uuid.uuid4().hex}"
        self._broker.create_topics(TopicSpec(name=self._topic, partitions=_LOGS))

    def _run(self) -> None:
        self._frame.write.format("kafka").options(**self._options).option("topic", self._topic).save()


def _compare(bench: Bench, broker: KafkaBroker) -> None:
    rows = 4 * bench.million
    frame = bench.frame(bench.rows_folder(FILES, rows)).drop("timestamp")
    writers = [_KafkaWriter(frame, broker, codec) for codec in _CODECS]
    stores = [
        MicroBatchWriter(f"logs, {codec}", frame, bench.folder / "store", _properties(codec)) for codec in _CODECS
    ]
    contenders = [each.contender() for pair in zip(writers, stores, strict=True) for each in pair]
    results = run_rounds(contenders, warmups=bench.pick(2, 1), rounds=bench.pick(5, 2))
    table = []
    for codec, writer, store in zip(_CODECS, writers, stores, strict=True):
        baseline, ours = results[writer.name], results[store.name]
        table.append((writer.name, f"{baseline.median:.2f}", f"{baseline.cpu_median:.1f}", "1", "1"))
        speeds = _speed_text(baseline.ratios(ours)), _speed_text(baseline.cpu_ratios(ours))
        table.append((store.name, f"{ours.median:.2f}", f"{ours.cpu_median:.1f}", *speeds))
        _judge(bench, codec, statistics.median(baseline.ratios(ours)))
    notes = (
        f"{ROWS_TEXT} (not sent: both take their own time); zstd is level {_ZSTD_LEVEL}; `batch.size={_BATCH_BYTES}`",
        "Kafka sink: `acks=all`, one replica, other producer settings as Spark leaves them; the broker has a heap of"
        " 1 GiB, `num.io.threads=8`, is already running, and syncs nothing; its CPU is in the figure",
        noise_note(results.values()),
    )
    headers = ("what", "s", "CPU s", "speed against the Kafka sink", "CPU saved, as a factor")
    bench.add(
        Table(f"Micro-batch of {rows:,} records over {_LOGS} logs, beside Spark's Kafka sink", headers, table, notes)
    )


def _properties(codec: str) -> dict[str, object]:
    return {
        "partitions": _LOGS,
        "compression.type": "uncompressed" if codec == "none" else codec,
        "compression.zstd.level": _ZSTD_LEVEL,
        "batch.size": _BATCH_BYTES,
    }


def _speed_text(factors: list[float]) -> str:
    return f"{statistics.median(factors):.2f} ({min(factors):.2f} to {max(factors):.2f})"


def _judge(bench: Bench, codec: str, factor: float | None) -> None:
    bench.judge(
        Verdict(
            what=f"micro-batch against Spark's Kafka sink, {codec}",
            wanted="1.4 x its speed",
            aim="2 x",
            measured="did not run" if factor is None else f"{factor:.2f} x",
            is_met=None if factor is None else factor >= 1.4,
            is_aim_met=None if factor is None else factor >= 2,
        )
    )


def _did_not_run(bench: Bench, reason: str) -> None:
    text = f"THE COMPARISON WITH SPARK'S KAFKA SINK DID NOT RUN: {reason}"
    print(f"\n{'!' * 20} {text} {'!' * 20}", file=sys.stderr, flush=True)
    bench.add(Table("Micro-batch beside Spark's Kafka sink", ("what",), [(f"**{text}**",)]))
    for codec in _CODECS:
        _judge(bench, codec, None)
