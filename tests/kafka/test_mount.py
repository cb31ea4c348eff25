"""A store's logs in a new cluster: kafka-server-start on what `mount` made, and nothing else."""

import shutil
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from tests.build.sink_store import in_process, log_directories, open_store, rows
from tests.kafka.broker import KafkaBroker
from tests.kafka.consumed import Consumed, read_with_confluent, read_with_kafka_python
from tests.kafka.ours import read_log
from tests.kafka.toolbox import KafkaToolbox
from tests.sparklog_command import Sparklog

pytestmark = pytest.mark.kafka

_EVENTS, _TABLE = "mount.events", "mount.table"
_TOPICS: dict[str, dict[str, object]] = {
    _EVENTS: {"partitions": 3, "segment.bytes": 2000, "batch.size": 500, "compression.type": "lz4", "retention.ms": -1},
    _TABLE: {"partitions": 1, "segment.bytes": 2000, "cleanup.policy": "compact", "compression.type": "zstd"},
}
_START_MS = 1_700_000_000_000
_FIRST = 37
"""Where a log starts, inside a segment."""


def _write(store: Path, turns: range) -> None:
    with closing(open_store(store, _TOPICS)) as writer:
        for turn in turns:
            numbers = range(turn * 200, (turn + 1) * 200)
            columns: dict[str, list[Any]] = {
                "topic": [_EVENTS if number % 3 else _TABLE for number in numbers],
                "timestamp": [_START_MS + number for number in numbers],
                "key": [f"key-{number % 17}" for number in numbers],
                "value": [f"value-{number}" * 5 for number in numbers],
            }
            writer.append("query", turn, in_process(rows(**columns)))


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


def _free_port() -> int:
    """Return a port that is free together with the next one."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return int(port)


def _expected(store: Path) -> dict[tuple[str, int], list[Consumed]]:
    found = {}
    for name, directory in log_directories(store).items():
        topic, _, partition = name.rpartition("-")
        first = _FIRST if name == f"{_EVENTS}-0" else 0
        found[topic, int(partition)] = [record for record in read_log(directory) if record.offset >= first]
    return found


def test_broker_when_it_first_starts_on_a_mount_then_serves_every_record_and_goes_on(
    store: Path, tmp_path: Path, broker: KafkaBroker, sparklog: Sparklog
) -> None:
    """Same offsets, keys, values and starts; new records come behind; the store's own files stay as they are."""
    expected, kept = _expected(store), shutil.copytree(store / "logs", tmp_path / "kept")
    out, port = tmp_path / "cluster", _free_port()

    ran = sparklog("mount", store, "--out", out, "--broker", f"1@127.0.0.1:{port}", "--execute")
    assert ran.code == 0, ran.err
    broker.serve(out / "server.properties", f"127.0.0.1:{port}")
    counts = {_EVENTS: 3, _TABLE: 1}
    assert read_with_confluent(broker.bootstrap, counts) == expected
    assert read_with_kafka_python(broker.bootstrap, counts) == expected
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    offsets: list[int | None] = []
    producer.produce(_EVENTS, b"new", partition=0, on_delivery=lambda _, message: offsets.append(message.offset()))
    producer.flush(30)
    del producer  # it would look for the broker for ever
    broker.stop()
    broker.serve(out / "server.properties", f"127.0.0.1:{port}")
    found = read_with_confluent(broker.bootstrap, counts)
    broker.stop()

    assert offsets == [expected[_EVENTS, 0][-1].offset + 1]
    assert found[_EVENTS, 0][:-1] == expected[_EVENTS, 0]
    assert found[_EVENTS, 0][-1].value == b"new"
    assert {key: log for key, log in found.items() if key != (_EVENTS, 0)} == {
        key: log for key, log in expected.items() if key != (_EVENTS, 0)
    }
    assert [line for line in broker.complaints() if "mount." in line] == []
    assert {p.relative_to(kept): p.read_bytes() for p in kept.rglob("*.log")} == {
        p.relative_to(store / "logs"): p.read_bytes() for p in (store / "logs").rglob("*.log")
    }
    _write(store, range(3, 4))
    assert sparklog("verify", store).code == 0
