"""A store's logs in a broker that has the topics: `mount --into` its stopped data directory, and start it again."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from sparklog.storage_core.kraft.read_metadata import read_cluster_metadata
from tests.build.sink_store import open_store
from tests.kafka.broker import KafkaBroker, TopicSpec
from tests.kafka.consumed import Consumed, read_with_confluent, read_with_kafka_python
from tests.kafka.mounted_turns import append_turn, stored
from tests.kafka.toolbox import KafkaToolbox
from tests.sparklog_command import Sparklog

pytestmark = pytest.mark.kafka

_EVENTS, _TABLE, _OWN = "into.events", "into.table", "into.own"
_TOPICS: dict[str, dict[str, object]] = {
    _EVENTS: {"partitions": 2, "segment.bytes": 2000, "batch.size": 500, "compression.type": "lz4", "retention.ms": -1},
    _TABLE: {
        "segment.bytes": 2000,
        "cleanup.policy": "compact",
        "compression.type": "zstd",
        "min.compaction.lag.ms": 10**15,
    },
}
_COUNTS = {_EVENTS: 2, _TABLE: 1, _OWN: 1}
_START_MS = 1_700_000_000_000
_FIRST = 37
"""Where a log starts, inside a segment."""


def _write(store: Path, turns: range, **options: Any) -> None:
    with closing(open_store(store, _TOPICS, **options)) as writer:
        for turn in turns:
            append_turn(writer, _EVENTS, _TABLE, turn, _START_MS)


@pytest.fixture
def store(tmp_path: Path, sparklog: Sparklog) -> Path:
    """A store of two topics with two leader epochs, one log of which starts inside a segment."""
    path = tmp_path / "store"
    _write(path, range(2))
    for turn in range(2, 6):
        _write(path, range(turn, turn + 1), take_lock_by_force=True)
    assert sparklog("delete-records", path, f"{_EVENTS}:0", "--before", _FIRST, "--execute").code == 0
    return path


@pytest.fixture
def broker(toolbox: KafkaToolbox, tmp_path: Path) -> Iterator[KafkaBroker]:
    """A stopped broker that has made the topics, and one of its own with a record."""
    with KafkaBroker(toolbox, tmp_path / "broker") as broker:
        broker.format()
        broker.start()
        settings = {"retention.ms": -1, "internal.segment.bytes": 2000}
        broker.create_topics(
            TopicSpec(name=_EVENTS, partitions=2, config=settings),
            TopicSpec(name=_TABLE, config={"cleanup.policy": "compact", "min.compaction.lag.ms": 10**15}),
            TopicSpec(name=_OWN),
        )
        _produce(broker, _OWN)
        broker.stop()
        yield broker


def _produce(broker: KafkaBroker, topic: str) -> int:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    offsets: list[int | None] = []
    producer.produce(topic, b"new", partition=0, on_delivery=lambda _, message: offsets.append(message.offset()))
    producer.flush(60)
    assert offsets[0] is not None
    return offsets[0]


def _expected(store: Path) -> dict[tuple[str, int], list[Consumed]]:
    first = {(_EVENTS, 0): _FIRST}
    return {
        log: [record for record in records if record.offset >= first.get(log, 0)]
        for log, records in stored(store).items()
    }


def test_broker_when_its_empty_logs_got_those_of_a_store_then_serves_every_record_and_goes_on(
    store: Path, tmp_path: Path, broker: KafkaBroker, sparklog: Sparklog
) -> None:
    """Higher epochs than the broker's are lowered; its other topic stays, and so do the store's files."""
    expected, kept = _expected(store), shutil.copytree(store / "logs", tmp_path / "kept")

    refused = sparklog("mount", store, "--into", broker.log_dir, "--execute")
    ran = sparklog("mount", store, "--into", broker.log_dir, "--topics-made-anew", "--execute")
    assert (refused.code, "the target's topic is another one" in refused.err) == (2, True), refused.err
    assert ran.code == 0, ran.err
    assert f"{_EVENTS}-1: its leader epochs are above the broker's" in ran.out
    broker.start()
    found = read_with_confluent(broker.bootstrap, _COUNTS)
    [own] = found.pop((_OWN, 0))
    assert (own.value, found) == (b"new", expected)
    assert {log: each for log, each in read_with_kafka_python(broker.bootstrap, _COUNTS).items() if log[0] != _OWN} == (
        expected
    )
    running = sparklog("mount", store, "--into", broker.log_dir, "--topics-made-anew")
    offset = _produce(broker, _EVENTS)
    broker.stop()
    broker.start()
    found = read_with_confluent(broker.bootstrap, _COUNTS)
    broker.stop()

    assert (running.code, "a broker runs on this folder" in running.err) == (3, True), running.err
    assert offset == expected[_EVENTS, 0][-1].offset + 1
    assert found[_EVENTS, 0][:-1] == expected[_EVENTS, 0]
    assert found[_EVENTS, 0][-1].value == b"new"
    assert (found[_EVENTS, 1], found[_TABLE, 0]) == (expected[_EVENTS, 1], expected[_TABLE, 0])
    assert [line for line in broker.complaints() if "into." in line] == []
    newer = sparklog("mount", store, "--into", broker.log_dir, "--topics-made-anew", "--execute")
    assert (newer.code, "the target has records: log=into.events-0" in newer.err) == (2, True), newer.err
    assert {p.relative_to(kept): p.read_bytes() for p in kept.rglob("*.log")} == {
        p.relative_to(store / "logs"): p.read_bytes() for p in (store / "logs").rglob("*.log")
    }


def test_broker_when_mount_made_its_topics_then_their_settings_are_the_stores_and_so_are_the_records(
    store: Path, tmp_path: Path, toolbox: KafkaToolbox, sparklog: Sparklog
) -> None:
    """One command creates the topics, the next one, which it prints, fills their logs."""
    expected, counts = _expected(store), {_EVENTS: 2, _TABLE: 1}
    with KafkaBroker(toolbox, tmp_path / "broker") as broker:
        broker.format()
        broker.start()
        command = ("mount", store, "--into", broker.log_dir, "--create-topics", broker.bootstrap)
        planned, created = sparklog(*command), sparklog(*command, "--execute")
        assert (planned.code, created.code) == (0, 0), planned.err + created.err
        assert "planned: 2 topics to create" in planned.out
        again = sparklog(*command, "--execute")
        broker.stop()
        *_, printed = created.out.strip().rpartition("then: sparklog ")
        ran = sparklog(*printed.split())
        assert ran.code == 0, ran.err
        assert "warning" not in ran.out.replace(f"warning: {_TABLE}", "")
        broker.start()
        found = read_with_confluent(broker.bootstrap, counts)
        broker.stop()

    assert "created: 0 topics" in again.out
    assert found == expected
    settings = read_cluster_metadata(broker.log_dir)
    assert settings is not None
    assert settings.settings[_EVENTS]["retention.ms"] == "-1"
    assert settings.settings[_TABLE]["cleanup.policy"] == "compact"
