"""The cluster is gone: its mirror, mounted, is a cluster in which every consumer group goes on."""

import random
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.kafka.broker import KafkaBroker, TopicSpec, free_ports
from tests.kafka.console import console_lines, print_like_console
from tests.kafka.consumed import CREATE_TIME, Consumed, Log, read_with_confluent, read_with_kafka_python
from tests.kafka.group_positions import committed_offsets, next_with_confluent
from tests.kafka.mirrors import MirrorRun, mirror_until_now
from tests.kafka.produced import ProducedRecord, produce_in_transactions, produce_with_confluent
from tests.kafka.toolbox import KafkaToolbox
from tests.seeds import take_seed
from tests.sparklog_command import Sparklog

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

_CODECS, _TRANSACTIONS, _COMPACTED = "show.codecs", "show.transactions", "show.compacted"
_APPEND_TIME, _HEADERS, _STARTED = "show.append-time", "show.headers", "show.started"
_COUNTS = {_CODECS: 10, _TRANSACTIONS: 10, _COMPACTED: 8, _APPEND_TIME: 8, _HEADERS: 8, _STARTED: 6}
_LOGS = [(topic, number) for topic, count in _COUNTS.items() for number in range(count)]
_GROUPS = [f"group-{number}" for number in range(19)] + ["gruppe é漢字"]
_PATTERN = r"show\..*"
_START_MS = 1_700_000_000_000
_FOREVER: Mapping[str, object] = {"retention.ms": -1}

_Positions = dict[str, dict[Log, int]]


@pytest.fixture
def source(toolbox: KafkaToolbox, tmp_path: Path) -> Iterator[KafkaBroker]:
    """A broker with six topics of different kinds, 50 logs in all."""
    with KafkaBroker(toolbox, tmp_path / "source") as broker:
        broker.format()
        broker.start()
        compaction: dict[str, object] = {
            "cleanup.policy": "compact",
            "internal.segment.bytes": 3000,
            "min.cleanable.dirty.ratio": 0.01,
        }
        kinds: dict[str, Mapping[str, object]] = {
            _COMPACTED: compaction,
            _APPEND_TIME: {"message.timestamp.type": "LogAppendTime"},
        }
        broker.create_topics(
            *(
                TopicSpec(name=name, partitions=count, config={**_FOREVER, **kinds.get(name, {})})
                for name, count in _COUNTS.items()
            )
        )
        produce_with_confluent(broker.bootstrap, _records(_COMPACTED, 0, 60), {"batch.num.messages": 5})
        _await_compaction(broker)
        _produce(broker, 0)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        starts = [TopicPartition(_STARTED, number, 11 + number) for number in range(_COUNTS[_STARTED])]
        for result in admin.delete_records(starts).values():
            result.result(30)
        yield broker


def _produce(broker: KafkaBroker, turn: int) -> None:
    """Produce records to all topics but the compacted one."""
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        mine = [each for each in _records(_CODECS, turn, 30) if each.partition % 5 == number]
        produce_with_confluent(broker.bootstrap, mine, {"compression.type": codec})
    for topic in (_APPEND_TIME, _HEADERS, _STARTED):
        produce_with_confluent(broker.bootstrap, _records(topic, turn, 30))
    committed, aborted = _records(_TRANSACTIONS, turn, 12), _records(_TRANSACTIONS, turn + 50, 7)
    produce_in_transactions(broker.bootstrap, [(committed, "commit"), (aborted, "abort"), (committed, "commit")])


def _records(topic: str, turn: int, count: int) -> list[ProducedRecord]:
    """Return `count` records for each partition."""
    return [
        ProducedRecord(
            topic,
            partition,
            _START_MS + turn * 100_000 + number * 1000 - (number % 5) * 3000,
            f"key {number % 7}".encode(),
            None if number % 29 == 28 else f"{topic} turn {turn} number {number} ".encode() * (1 + number % 9),
            ((), (("trace", f"{number}".encode()),), (("trace", None), ("é", b"\xff")))[number % 3],
        )
        for number in range(count)
        for partition in range(_COUNTS[topic])
    ]


def _await_compaction(broker: KafkaBroker) -> None:
    """Wait until the cleaner has come to rest, and keep it from beginning again, also in the new cluster."""
    deadline, counts = time.monotonic() + 60, list[int]()
    while len(counts) < 4 or counts[-1] > 40 * _COUNTS[_COMPACTED] or len(set(counts[-4:])) > 1:
        assert time.monotonic() < deadline, counts
        time.sleep(0.3)
        logs = read_with_confluent(broker.bootstrap, {_COMPACTED: _COUNTS[_COMPACTED]})
        counts.append(sum(map(len, logs.values())))
    entry = ConfigEntry("min.compaction.lag.ms", str(10**15), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, _COMPACTED, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})  # held: its end would cancel the request
    for result in admin.incremental_alter_configs([resource]).values():
        result.result(30)


def _commit_positions(broker: KafkaBroker, chance: random.Random) -> _Positions:
    """Let each group commit a random offset of each log, from its start to its end; return them."""
    positions: _Positions = {}
    for group in _GROUPS:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
        try:
            spans = {log: consumer.get_watermark_offsets(TopicPartition(*log), timeout=30) for log in _LOGS}
            positions[group] = {log: chance.randint(*span) for log, span in spans.items()}
            offsets = [TopicPartition(*log, offset) for log, offset in positions[group].items()]
            for each in consumer.commit(offsets=offsets, asynchronous=False):
                assert each.error is None
        finally:
            consumer.close()
    return positions


def _committed(bootstrap: str) -> _Positions:
    """Return what the cluster has of the groups."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return {group: committed_offsets(admin, group, _LOGS) for group in _GROUPS}


def _as_mirrored(logs: Mapping[Log, list[Consumed]]) -> dict[Log, list[Consumed]]:
    return {log: [each._replace(timestamp_type=CREATE_TIME) for each in records] for log, records in logs.items()}


def test_groups_when_the_cluster_is_gone_then_each_goes_on_with_exactly_the_next_record(
    source: KafkaBroker, toolbox: KafkaToolbox, tmp_path: Path, sparklog: Sparklog
) -> None:
    """1,000 positions of 20 groups; mirrored with kills, mounted, served by a stock broker, produced to, restarted."""
    chance, store = random.Random(take_seed()), tmp_path / "store"
    _commit_positions(source, chance)
    limits = ("--max-offsets", "250", "--every", "200ms")
    for _ in range(3):
        run = MirrorRun(tmp_path, source.bootstrap, store, _PATTERN, *limits)
        run.await_text("batch ")
        run.kill()
    _produce(source, 1)
    positions = _commit_positions(source, chance)
    mirror_until_now(tmp_path, source.bootstrap, store, _PATTERN, *limits)
    expected = _as_mirrored(read_with_confluent(source.bootstrap, _COUNTS, isolation="read_committed"))
    source.kill()
    shutil.rmtree(tmp_path / "source")

    out, port = tmp_path / "cluster", free_ports(1)[0]
    ran = sparklog("mount", store, "--new-cluster", "--out", out, "--broker", f"1@127.0.0.1:{port}", "--execute")
    assert ran.code == 0, ran.err
    assert "consumer groups: 20, 1,000 offsets" in ran.out

    with KafkaBroker(toolbox, tmp_path / "broker") as broker:
        broker.serve(out / "server.properties", f"127.0.0.1:{port}")
        assert read_with_confluent(broker.bootstrap, _COUNTS) == expected
        assert read_with_kafka_python(broker.bootstrap, _COUNTS) == expected
        total = sum(map(len, expected.values()))
        assert console_lines(toolbox, broker.bootstrap, _COUNTS, total) == print_like_console(expected)
        assert _committed(broker.bootstrap) == positions

        new = [each for topic in _COUNTS for each in _records(topic, 9, 1)]
        produce_with_confluent(broker.bootstrap, [each for each in new if each.topic != _TRANSACTIONS])
        inside = [each for each in new if each.topic == _TRANSACTIONS]
        produce_in_transactions(broker.bootstrap, [(inside, "abort"), (inside, "commit")])
        after = read_with_confluent(broker.bootstrap, _COUNTS, isolation="read_committed")
        assert {log: records[:-1] for log, records in after.items()} == expected
        for group in _GROUPS:
            nexts = {
                log: next((each.offset, each.value) for each in records if each.offset >= positions[group][log])
                for log, records in after.items()
            }
            assert next_with_confluent(broker.bootstrap, group, _LOGS) == nexts, group

        broker.stop()
        broker.serve(out / "server.properties", f"127.0.0.1:{port}")
        assert read_with_confluent(broker.bootstrap, _COUNTS, isolation="read_committed") == after
        assert _committed(broker.bootstrap) == positions
        broker.stop()
        assert [line for line in broker.complaints() if "show." in line or "__consumer_offsets" in line] == []
