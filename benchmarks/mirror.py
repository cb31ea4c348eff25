"""A mirror of a topic beside Spark's Kafka source into snappy Parquet: both read the same records of one broker."""

import statistics
import sys
from functools import partial
from pathlib import Path

from benchmarks.bench import FILES, Bench, noise_note
from benchmarks.kafka_sink import BROKER_SETTINGS, ServerToolbox
from benchmarks.rounds import Contender, Result, run_rounds
from benchmarks.session import kafka_jars
from benchmarks.table import Table, Verdict
from sparklog.pipeline.brokers.client_properties import ClientProperties
from sparklog.pipeline.brokers.kafka_admin import KafkaAdmin
from sparklog.pipeline.brokers.mirror_frame import SparkTarget
from sparklog.pipeline.brokers.mirror_loop import Mirror, MirrorOptions
from sparklog.storage_core.clock import SystemClock
from tests.kafka.broker import KafkaBroker, TopicSpec
from tests.kafka.toolbox import KafkaToolbox, KafkaToolError, KafkaUnavailableError

__all__ = ["run"]

_TOPIC = "mirrored"
_LOGS = 8
_PARQUET, _MIRROR = "Spark's Kafka source into snappy Parquet", "mirror"


def run(bench: Bench) -> None:
    """Time both; say loudly where there is no broker to read from."""
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


def _compare(bench: Bench, broker: KafkaBroker) -> None:
    rows = 4 * bench.million
    broker.create_topics(TopicSpec(name=_TOPIC, partitions=_LOGS, config={"retention.ms": -1}))
    frame = bench.frame(bench.rows_folder(FILES, rows)).drop("timestamp")
    options = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.compression.type": "zstd"}
    frame.write.format("kafka").options(**options).option("topic", _TOPIC).save()
    contenders = [
        Contender(name=_PARQUET, run=lambda: _write_parquet(bench, broker), units=rows),
        Contender(name=_MIRROR, prepare=lambda: _clear(bench), run=lambda: _mirror(bench, broker), units=rows),
    ]
    results = run_rounds(contenders, warmups=bench.pick(2, 1), rounds=bench.pick(5, 2))
    _report(bench, results, rows)


def _write_parquet(bench: Bench, broker: KafkaBroker) -> None:
    source = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": _TOPIC, "includeHeaders": "true"}
    frame = bench.spark.read.format("kafka").options(**source).load().drop("timestampType")
    frame.write.mode("overwrite").option("compression", "snappy").parquet(str(bench.folder / "parquet"))


def _clear(bench: Bench) -> None:
    bench.fresh("mirrored-store")


def _mirror(bench: Bench, broker: KafkaBroker) -> None:
    properties, store = ClientProperties(bootstrap_server=broker.bootstrap), Path(bench.folder / "mirrored-store")
    source = KafkaAdmin(bench.spark._jvm, properties)
    mirror = Mirror(
        MirrorOptions(store=store, topics=_TOPIC, until="now"),
        source,
        partial(SparkTarget, bench.spark, properties),
        lambda _line: None,
        SystemClock(),
    )
    while not mirror.is_done:
        mirror.advance()
    mirror.close()
    source.close()


def _report(bench: Bench, results: dict[str, Result], rows: int) -> None:
    baseline, ours = results[_PARQUET], results[_MIRROR]
    ratios = ours.ratios(baseline)
    share = statistics.median(ratios)
    table = [
        (_PARQUET, f"{baseline.median:.2f}", f"{baseline.cpu_median:.1f}", "1"),
        (
            _MIRROR,
            f"{ours.median:.2f}",
            f"{ours.cpu_median:.1f}",
            f"{share:.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        ),
    ]
    notes = (
        "the mirror opens a new store, asks the broker for topics, settings and groups, writes zstd level 1, and syncs;"
        " Parquet is not synced",
        noise_note(results.values()),
    )
    headers = ("what", "s", "CPU s", "of Parquet's time")
    bench.add(Table(f"{rows:,} records of about 100 B in {_LOGS} logs of a broker", headers, table, notes))
    _judge(bench, share)


def _judge(bench: Bench, share: float | None) -> None:
    bench.judge(
        Verdict(
            what="mirror against Spark's Kafka source into snappy Parquet",
            wanted="as fast",
            aim="0.7 of its time",
            measured="did not run" if share is None else f"{share:.2f} of its time",
            is_met=None if share is None else share <= 1.0,
            is_aim_met=None if share is None else share <= 0.7,
        )
    )


def _did_not_run(bench: Bench, reason: str) -> None:
    text = f"THE COMPARISON OF MIRROR DID NOT RUN: {reason}"
    print(f"\n{'!' * 20} {text} {'!' * 20}", file=sys.stderr, flush=True)
    bench.add(Table("Mirror beside Spark's Kafka source", ("what",), [(f"**{text}**",)]))
    _judge(bench, None)
