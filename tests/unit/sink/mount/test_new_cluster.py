"""What a new cluster is told of the topics, and where their replicas go."""

import pytest

from sparklog.sink.mount.cluster import Broker, NewCluster
from sparklog.sink.mount.new_cluster import topic_settings
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.topic_partition import TopicPartition

_TIMES = {"message.timestamp.after.max.ms": "9223372036854775807"}
"""A broker's default is one hour; ours takes every timestamp."""

_BROKERS = tuple(Broker(node_id, "localhost", 9000 + node_id * 10) for node_id in (1, 2, 3))


def test_topic_settings_when_they_differ_from_the_defaults_then_under_the_names_that_a_broker_takes() -> None:
    """A producer's batch.size is not a topic's, and a broker refuses a segment.bytes below 1 MiB."""
    config = LogConfig(segment_bytes=2000, batch_size=500, compression_type="zstd", retention_ms=-1)

    assert topic_settings(config) == {
        "internal.segment.bytes": "2000",
        "compression.type": "zstd",
        "retention.ms": "-1",
        **_TIMES,
    }


def test_topic_settings_when_a_segment_is_large_enough_then_its_own_name() -> None:
    """1 MiB is the least."""
    assert topic_settings(LogConfig(segment_bytes=1 << 20)) == {"segment.bytes": "1048576", **_TIMES}


def test_topic_settings_when_they_are_not_known_then_no_record_is_deleted() -> None:
    """A broker's default would delete what is older than a week."""
    assert topic_settings(None) == {"retention.ms": "-1", "retention.bytes": "-1"}


def test_replicas_when_brokers_are_fewer_than_partitions_then_in_turn() -> None:
    """The preferred leaders of a topic's partitions are different brokers, and so are those of two topics."""
    cluster = NewCluster(cluster_id="c" * 22, brokers=_BROKERS, replication_factor=2)

    assert [[each.node_id for each in cluster.replicas(0, TopicPartition("t", number))] for number in range(4)] == [
        [1, 2],
        [2, 3],
        [3, 1],
        [1, 2],
    ]
    assert [each.node_id for each in cluster.replicas(1, TopicPartition("u", 0))] == [2, 3]


def test_replicas_when_some_are_assigned_then_those_and_the_others_in_turn() -> None:
    """The first one is the preferred leader; a partition may have more or fewer than the others."""
    assigned = {TopicPartition("t", 0): (3, 1, 2), TopicPartition("t", 2): (2,)}
    cluster = NewCluster(cluster_id="c" * 22, brokers=_BROKERS, replication_factor=2, assigned=assigned)

    found = [[each.node_id for each in cluster.replicas(0, TopicPartition("t", number))] for number in range(3)]

    assert found == [[3, 1, 2], [2, 3], [2]]


@pytest.mark.parametrize("replicas", [(), (1, 1), (1, 4)])
def test_cluster_when_assigned_replicas_are_no_brokers_of_it_then_refused(replicas: tuple[int, ...]) -> None:
    """None, one twice, an unknown one."""
    with pytest.raises(InvalidConfigError, match=r"partition=t-0 replicas=.* brokers=\[1, 2, 3\]"):
        NewCluster(
            cluster_id="c" * 22, brokers=_BROKERS, replication_factor=1, assigned={TopicPartition("t", 0): replicas}
        )


@pytest.mark.parametrize("factor", [0, 4])
def test_cluster_when_there_are_too_few_brokers_then_refused(factor: int) -> None:
    """A partition has at most one replica on a broker."""
    with pytest.raises(InvalidConfigError, match=r"replication factor is outside 1\.\.3"):
        NewCluster(cluster_id="c" * 22, brokers=_BROKERS, replication_factor=factor)


def test_topic_settings_when_policies_are_written_freely_then_as_a_broker_takes_them() -> None:
    """Lower case, each once."""
    config = LogConfig(cleanup_policy="Delete, compact,delete", message_timestamp_after_max_ms=3_600_000)

    assert topic_settings(config) == {"cleanup.policy": "compact,delete"}


@pytest.mark.parametrize(
    ("brokers", "message"),
    [
        ((Broker(1, "h", 9092), Broker(2, "h", 9093)), "two listeners have one port"),
        ((Broker(1, "h", 9092), Broker(1, "i", 9092)), "given twice"),
    ],
)
def test_cluster_when_brokers_get_in_each_others_way_then_refused(brokers: tuple[Broker, ...], message: str) -> None:
    """A controller takes the port above its broker's."""
    with pytest.raises(InvalidConfigError, match=message):
        NewCluster(cluster_id="c" * 22, brokers=brokers, replication_factor=1)


@pytest.mark.parametrize(("node_id", "port"), [(2**31, 9092), (1, 0), (1, 65_535)])
def test_broker_when_a_number_is_out_of_range_then_refused(node_id: int, port: int) -> None:
    """Node ids are int32; two ports are needed."""
    with pytest.raises(InvalidConfigError, match="outside"):
        Broker(node_id, "h", port)
