"""A store's logs in a new cluster: kafka-server-start on what `mount` made, and nothing else."""

import contextlib
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from tests.build.sink_store import open_store
from tests.kafka.broker import KafkaBroker, free_ports
from tests.kafka.consumed import Consumed, read_with_confluent, read_with_kafka_python
from tests.kafka.mounted_turns import append_turn, stored
from tests.kafka.toolbox import KafkaToolbox
from tests.sparklog_command import Sparklog

pytestmark = pytest.mark.kafka

_EVENTS, _TABLE = "mount.events", "mount.table"
_TOPICS: dict[str, dict[str, object]] = {
    _EVENTS: {"partitions": 3, "segment.bytes": 2000, "batch.size": 500, "compression.type": "lz4", "retention.ms": -1},
    _TABLE: {"partitions": 1, "segment.bytes": 2000, "cleanup.policy": "compact", "compression.type": "zstd"},
}
_COUNTS = {_EVENTS: 3, _TABLE: 1}
_START_MS = 1_700_000_000_000
_FIRST = 37
"""Where a log starts, inside a segment."""


def _write(store: Path, turns: range) -> None:
    with closing(open_store(store, _TOPICS)) as writer:
        for turn in turns:
            append_turn(writer, _EVENTS, _TABLE, turn, _START_MS)


@pytest.fixture
def store(tmp_path: Path, sparklog: Sparklog) -> Path:
    """A store of two topics, one log of which starts inside a segment."""
    path = tmp_path / "store"
    _write(path, range(3))
    assert sparklog("delete-records", path, f"{_EVENTS}:0", "--before", _FIRST, "--execute").code == 0
    return path


@pytest.fixture
def broker(toolbox: KafkaToolbox, tmp_path: Path) -> Iterator[KafkaBroker]:
    """A broker that is not started."""
    with KafkaBroker(toolbox, tmp_path / "broker") as broker:
        yield broker


def _expected(store: Path) -> dict[tuple[str, int], list[Consumed]]:
    first = {(_EVENTS, 0): _FIRST}
    return {
        log: [record for record in records if record.offset >= first.get(log, 0)]
        for log, records in stored(store).items()
    }


def _complaints(broker: KafkaBroker) -> list[str]:
    return [line for line in broker.complaints() if "mount." in line]


def test_broker_when_it_first_starts_on_a_mount_then_serves_every_record_and_goes_on(
    store: Path, tmp_path: Path, broker: KafkaBroker, sparklog: Sparklog
) -> None:
    """Same offsets, keys, values and starts; new records come behind; the store's own files stay as they are."""
    expected, kept = _expected(store), shutil.copytree(store / "logs", tmp_path / "kept")
    out, port = tmp_path / "cluster", free_ports(1)[0]

    ran = sparklog("mount", store, "--new-cluster", "--out", out, "--broker", f"1@127.0.0.1:{port}", "--execute")
    assert ran.code == 0, ran.err
    broker.serve(out / "server.properties", f"127.0.0.1:{port}")
    assert read_with_confluent(broker.bootstrap, _COUNTS) == expected
    assert read_with_kafka_python(broker.bootstrap, _COUNTS) == expected
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    offsets: list[int | None] = []
    producer.produce(_EVENTS, b"new", partition=0, on_delivery=lambda _, message: offsets.append(message.offset()))
    producer.flush(30)
    del producer  # it would look for the broker for ever
    broker.stop()
    assert _complaints(broker) == []
    broker.serve(out / "server.properties", f"127.0.0.1:{port}")
    found = read_with_confluent(broker.bootstrap, _COUNTS)
    broker.stop()

    assert offsets == [expected[_EVENTS, 0][-1].offset + 1]
    assert found[_EVENTS, 0][:-1] == expected[_EVENTS, 0]
    assert found[_EVENTS, 0][-1].value == b"new"
    assert {key: log for key, log in found.items() if key != (_EVENTS, 0)} == {
        key: log for key, log in expected.items() if key != (_EVENTS, 0)
    }
    assert _complaints(broker) == []
    assert {p.relative_to(kept): p.read_bytes() for p in kept.rglob("*.log")} == {
        p.relative_to(store / "logs"): p.read_bytes() for p in (store / "logs").rglob("*.log")
    }
    _write(store, range(3, 4))
    assert sparklog("verify", store).code == 0


def test_broker_when_a_log_has_three_epochs_then_clients_read_all_of_it(
    store: Path, tmp_path: Path, broker: KafkaBroker, sparklog: Sparklog
) -> None:
    """A taking by force and a truncation begin epochs; a client that compares epochs finds no log that was cut."""
    with closing(open_store(store, _TOPICS, take_lock_by_force=True)):
        pass
    _write(store, range(3, 4))
    assert sparklog("truncate", store, "--to", f"{_EVENTS}:0:110", "--execute").code == 0
    _write(store, range(4, 6))
    expected, out, port = _expected(store), tmp_path / "cluster", free_ports(1)[0]
    epochs = (store / "logs" / f"{_EVENTS}-0" / "leader-epoch-checkpoint").read_text().splitlines()
    assert [line.split()[0] for line in epochs[2:]] == ["0", "1", "2"]

    named = ("--broker", f"1@127.0.0.1:{port}", "--allow-gaps")  # a batch across the new end is lost
    assert sparklog("mount", store, "--new-cluster", "--out", out, *named, "--execute").code == 0
    broker.serve(out / "server.properties", f"127.0.0.1:{port}")

    assert read_with_kafka_python(broker.bootstrap, _COUNTS) == expected
    assert read_with_confluent(broker.bootstrap, _COUNTS) == expected
    assert _complaints(broker) == []


def test_three_brokers_when_they_start_on_one_mount_then_in_sync_and_nothing_is_lost_with_one_of_them(
    store: Path, tmp_path: Path, toolbox: KafkaToolbox, sparklog: Sparklog
) -> None:
    """Each has every log; the two that are left serve all of them, and take new records."""
    expected, out = _expected(store), tmp_path / "cluster"
    ports = free_ports(3)
    named = [each for node, port in enumerate(ports, 1) for each in ("--broker", f"{node}@127.0.0.1:{port}")]

    assigned = {"topic": _EVENTS, "partition": 0, "replicas": [3, 1, 2]}
    (tmp_path / "r.json").write_text(json.dumps({"version": 1, "partitions": [assigned]}))
    named += ["--replication-factor", "3", "--reassignment-json-file", str(tmp_path / "r.json")]

    ran = sparklog("mount", store, "--new-cluster", "--out", out, *named, "--execute")
    assert ran.code == 0, ran.err
    with contextlib.ExitStack() as stack:
        brokers = [stack.enter_context(KafkaBroker(toolbox, tmp_path / f"b{node}")) for node in (1, 2, 3)]
        for node, (broker, port) in enumerate(zip(brokers, ports, strict=True), 1):
            broker.begin(out / f"broker-{node}" / "server.properties", f"127.0.0.1:{port}")
        for broker in brokers:
            broker.await_started()
        _wait_for_replicas(brokers[0].bootstrap, 3)
        metadata = AdminClient({"bootstrap.servers": brokers[0].bootstrap}).list_topics(timeout=30)
        assert metadata.topics[_EVENTS].partitions[0].replicas == [3, 1, 2]
        assert read_with_confluent(brokers[0].bootstrap, _COUNTS) == expected
        brokers[0].kill()
        others = ",".join(each.bootstrap for each in brokers[1:])
        _wait_for_replicas(others, 2)
        found = read_with_confluent(others, _COUNTS)

    assert found == expected


def _wait_for_replicas(bootstrap: str, count: int) -> None:
    """Return once each partition has a leader and so many replicas in sync."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + 120
    while True:
        topics = admin.list_topics(timeout=30).topics
        partitions = [each for topic in _COUNTS for each in topics[topic].partitions.values()]
        if all(len(each.isrs) == count and each.leader > 0 for each in partitions):
            return
        assert time.monotonic() < deadline, [(each.id, each.leader, each.isrs) for each in partitions]
        time.sleep(0.2)
