"""The commands of `docs/disaster-recovery.md`, typed in their order: what they print is what the page shows."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.documented_samples import Sample, printed, samples
from tests.kafka.broker import KafkaBroker, TopicSpec, free_ports
from tests.kafka.consumed import Consumed, Log, read_with_confluent
from tests.kafka.produced import ProducedRecord, produce_with_confluent
from tests.kafka.toolbox import KafkaToolbox

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "disaster-recovery.md"
_ADDRESS = "kafka1.example:9092"
_START = "kafka-server-start.sh "
_COUNTS = {"orders": 2, "customers": 1}
_GROUP, _POSITIONS = "billing", {0: 120, 1: 90}
_START_MS = 1_700_000_000_000


@pytest.fixture
def source(toolbox: KafkaToolbox, tmp_path: Path) -> Iterator[KafkaBroker]:
    """The cluster that will be gone; a group has read a part of it."""
    with KafkaBroker(toolbox, tmp_path / "source") as broker:
        broker.format()
        broker.start()
        orders = TopicSpec(name="orders", partitions=2, config={"retention.ms": -1})
        broker.create_topics(orders, TopicSpec(name="customers", config={"cleanup.policy": "compact"}))
        _produce(broker, "order", 0, 200)
        consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": _GROUP})
        consumer.commit(offsets=[TopicPartition("orders", *each) for each in _POSITIONS.items()], asynchronous=False)
        consumer.close()
        yield broker


def _produce(broker: KafkaBroker, word: str, first: int, count: int) -> None:
    records = [
        ProducedRecord(
            topic, partition, _START_MS + number * 1000, f"{number % 17}".encode(), f"{word} {number}".encode()
        )
        for number in range(first, first + count)
        for topic, partitions in _COUNTS.items()
        for partition in range(partitions)
    ]
    produce_with_confluent(broker.bootstrap, records)


def test_runbook_when_its_commands_are_typed_then_they_print_what_it_shows(
    source: KafkaBroker, toolbox: KafkaToolbox, tmp_path: Path
) -> None:
    """A cluster ends and comes back, a group is lost there and restored, a load is taken back, folders are imported."""
    page = list(samples(_PAGE))
    assert len(page) == 14
    mirror, verify, plan, mount, earlier, start, create, fill, *restored, truncate, truncated, planned, imported = page

    _type(mirror, tmp_path, source.bootstrap)
    _produce(source, "wrong", 200, 100)
    printed(mirror.command.replace(_ADDRESS, source.bootstrap), tmp_path)
    held = read_with_confluent(source.bootstrap, _COUNTS)
    source.kill()
    shutil.rmtree(tmp_path / "source")

    port = free_ports(1)[0]
    for sample in (verify, plan, mount, earlier):
        _type(sample, tmp_path, f"127.0.0.1:{port}")
    with KafkaBroker(toolbox, tmp_path / "broker") as broker:
        assert start.command.startswith(_START)
        broker.serve(tmp_path / start.command.removeprefix(_START), f"127.0.0.1:{port}")
        assert read_with_confluent(broker.bootstrap, _COUNTS) == held
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})  # held: its end would cancel the request
        admin.delete_consumer_groups([_GROUP])[_GROUP].result(60)
        del admin  # it would look for the broker for ever
        for sample in restored:
            _type(sample, tmp_path, broker.bootstrap)
        consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": _GROUP})
        committed = consumer.committed([TopicPartition("orders", partition) for partition in _POSITIONS], 60)
        consumer.close()
        assert {each.partition: each.offset for each in committed} == _POSITIONS
        broker.stop()
    _fill_another(create, fill, toolbox, tmp_path, held)
    for sample in (truncate, truncated, planned, imported):
        _type(sample, tmp_path, _ADDRESS)


def _fill_another(
    create: Sample, fill: Sample, toolbox: KafkaToolbox, folder: Path, held: dict[Log, list[Consumed]]
) -> None:
    """Give a broker that is there the topics, and then the records."""
    with KafkaBroker(toolbox, folder / "other") as broker:
        broker.format()
        broker.start()
        _type(create, folder, broker.bootstrap)
        broker.stop()
        _type(fill, folder, _ADDRESS)
        broker.start()
        assert read_with_confluent(broker.bootstrap, _COUNTS) == held
        broker.stop()


def _type(sample: Sample, folder: Path, address: str) -> None:
    """Type a command with this address for the page's, and compare what it prints."""
    lines = printed(sample.command.replace(_ADDRESS, address), folder)
    assert [line.replace(address, _ADDRESS) for line in lines] == sample.lines
