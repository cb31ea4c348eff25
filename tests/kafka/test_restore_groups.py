"""`sparklog restore-groups`: groups of a running cluster get the offsets that a mirror has."""

from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.kafka.broker import KafkaBroker, TopicSpec
from tests.kafka.mirrors import mirror_until_now
from tests.kafka.produced import ProducedRecord, produce_with_confluent
from tests.kafka.toolbox import KafkaToolbox
from tests.sparklog_command import Sparklog

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

_TOPIC = "restored"


def _commit(broker: KafkaBroker, group: str, *offsets: int) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    given = [TopicPartition(_TOPIC, number, offset) for number, offset in enumerate(offsets)]
    consumer.commit(offsets=given, asynchronous=False)
    consumer.close()


def _committed(broker: KafkaBroker, group: str) -> list[int]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(_TOPIC, number) for number in range(2)])]
    answer = admin.list_consumer_group_offsets(asked)[group].result(60)
    return [each.offset for each in answer.topic_partitions]


def test_groups_when_their_cluster_lost_them_then_have_their_offsets_again(
    broker: KafkaBroker, toolbox: KafkaToolbox, tmp_path: Path, sparklog: Sparklog
) -> None:
    """A plan first; what a group has reached since is kept; the file for Kafka's own tool has the same offsets."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})  # held: its end would cancel the requests
    broker.create_topics(TopicSpec(name=_TOPIC, partitions=2, config={"retention.ms": -1}))
    records = [ProducedRecord(_TOPIC, number % 2, 1_700_000_000_000, b"k", b"v") for number in range(40)]
    produce_with_confluent(broker.bootstrap, records)
    _commit(broker, "lost", 7, 20)
    _commit(broker, "ahead", 5, 5)
    store = tmp_path / "store"
    mirror_until_now(tmp_path, broker.bootstrap, store, _TOPIC)
    admin.delete_consumer_groups(["lost"])["lost"].result(30)
    _commit(broker, "ahead", 5, 9)
    arguments = ("restore-groups", store, "--bootstrap-server", broker.bootstrap, "--groups", "lost|ahead")

    planned = sparklog(*arguments)
    assert (planned.code, _committed(broker, "lost")) == (0, [-1001, -1001])
    assert "lost: 2 offsets" in planned.out
    assert f"ahead: {_TOPIC}-1 offset 5 is below the group's offset 9 there" in planned.out
    assert "planned: 2 offsets, 1 are there, 1 are not given" in planned.out
    executed = sparklog(*arguments, "--execute")
    assert executed.code == 1, executed.err
    assert (_committed(broker, "lost"), _committed(broker, "ahead")) == ([7, 20], [5, 9])
    again = sparklog(*arguments, "--execute", "--json")
    assert (again.objects[0]["given"], again.objects[0]["kept"]) == ([], 3)

    file = tmp_path / "offsets.csv"
    file.write_text(sparklog("restore-groups", store, "--csv", "--groups", "lost").out)
    admin.delete_consumer_groups(["lost"])["lost"].result(30)
    toolbox.run(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", broker.bootstrap, "--group", "lost"),
        *("--reset-offsets", "--from-file", str(file), "--execute"),
    )
    assert _committed(broker, "lost") == [7, 20]
