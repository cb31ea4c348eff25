"""Makes the data directories of a new KRaft cluster that serves a store's logs at its first start.

```
<out>/                     of one broker; of several: <out>/broker-<node id>/
  server.properties        for kafka-server-start
  data/                    its log.dirs
    meta.properties        cluster, node and directory id
    bootstrap.checkpoint   features, topics, partitions and their settings, in force before retention first runs
    recovery-point-offset-checkpoint   log-start-offset-checkpoint   cleaner-offset-checkpoint
    <topic>-<partition>/
```

Each broker is a controller, too, with all brokers as voters. The folder gets its name once it is complete.

Source: Kafka StorageTool, BootstrapDirectory, LogManager.loadLogs.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparklog.sink.mount.place_logs import place_logs
from sparklog.sink.mount.plan_mount import MountedLog, MountPlan
from sparklog.sink.store.store_folder import random_id
from sparklog.storage_core.checkpoint.meta_properties import render_meta_properties
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.kraft.bootstrap_checkpoint import BOOTSTRAP_CHECKPOINT, render_bootstrap_checkpoint
from sparklog.storage_core.kraft.metadata_records import (
    PartitionMetadata,
    TopicMetadata,
    feature_records,
    topic_records,
)
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.storage.local import storage_errors, write_file
from sparklog.storage_core.storage.new_folder import new_folder
from sparklog.storage_core.storage.share_file import Sharing

__all__ = ["Broker", "NewCluster", "make_cluster", "topic_settings"]

_FEATURES: Final = {
    "metadata.version": 30,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}
"""Of Kafka 4.3."""

_NOT_A_BROKERS: Final = frozenset({"batch.size"})
_SEGMENT_BYTES: Final = "segment.bytes"
_LEAST_SEGMENT_BYTES: Final = 1 << 20
"""A broker refuses a smaller `segment.bytes`, but takes it as `internal.segment.bytes`."""

_KEPT_FOR_EVER: Final = {"retention.ms": "-1", "retention.bytes": "-1"}


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker of the cluster.

    Attributes:
        host: clients and brokers reach it there.
        port: for clients; the next one is for controllers.
    """

    node_id: int
    host: str
    port: int

    @property
    def voter(self) -> str:
        """Its entry in `controller.quorum.voters`."""
        return f"{self.node_id}@{self.host}:{self.port + 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCluster:
    """A cluster to make.

    Attributes:
        cluster_id: 22 characters.
        brokers: by node id, each one once.
        replication_factor: of every topic.
    """

    cluster_id: str
    brokers: tuple[Broker, ...]
    replication_factor: int

    def __post_init__(self) -> None:
        nodes = [each.node_id for each in self.brokers]
        if len(set(nodes)) < len(nodes):
            raise InvalidConfigError(f"a node id is given twice: nodes={nodes}")
        if not 1 <= self.replication_factor <= len(nodes):
            raise InvalidConfigError(
                f"the replication factor is outside 1..{len(nodes)}, the number of brokers: {self.replication_factor}"
            )

    def replicas(self, topic_number: int, partition: int) -> tuple[Broker, ...]:
        """Return the brokers of a partition, its preferred leader first: in turn, as a controller places them."""
        first = topic_number + partition
        return tuple(self.brokers[(first + each) % len(self.brokers)] for each in range(self.replication_factor))


def make_cluster(plan: MountPlan, cluster: NewCluster, out: Path, now_ms: int) -> set[Sharing]:
    """Make the directories; return how closed segments got there.

    Raises:
        InvalidConfigError: the folder exists, and is not empty.
        StoreLockedError: another process is making it.
        StorageError: the disk refused; nothing is left.
    """
    directory_ids = {each: random_id() for each in cluster.brokers}
    topics, placement = _topics(plan, cluster, directory_ids)
    records = [*feature_records(_FEATURES), *(record for topic in topics for record in topic_records(topic))]
    metadata = render_bootstrap_checkpoint(records, now_ms)
    used = set[Sharing]()
    with new_folder(out) as folder, storage_errors(out):
        for broker, logs in placement.items():
            name = "" if len(cluster.brokers) == 1 else f"broker-{broker.node_id}"
            data = folder / name / "data"
            data.mkdir(parents=True)
            used |= place_logs(logs, data)
            meta = render_meta_properties(cluster.cluster_id, broker.node_id, directory_ids[broker])
            write_file(data / "meta.properties", meta)
            write_file(data / BOOTSTRAP_CHECKPOINT, metadata)
            properties = _server_properties(cluster, broker, out.absolute() / name / "data")
            write_file(folder / name / "server.properties", properties.encode())
    return used


def topic_settings(config: LogConfig | None) -> dict[str, str]:
    """Return a topic's settings for a broker: what differs from the defaults, under the names that a broker takes.

    A topic of unknown settings keeps its records: a broker's default would delete what is older than a week.
    """
    if config is None:
        return dict(_KEPT_FOR_EVER)
    default = LogConfig()
    found = {
        name: str(getattr(config, field))
        for name, field in LogConfig.property_names().items()
        if getattr(config, field) != getattr(default, field) and name not in _NOT_A_BROKERS
    }
    if int(found.get(_SEGMENT_BYTES, _LEAST_SEGMENT_BYTES)) < _LEAST_SEGMENT_BYTES:
        found["internal.segment.bytes"] = found.pop(_SEGMENT_BYTES)
    return found


def _topics(
    plan: MountPlan, cluster: NewCluster, directory_ids: dict[Broker, str]
) -> tuple[list[TopicMetadata], dict[Broker, list[MountedLog]]]:
    """Return the topics' metadata, and the logs of each broker."""
    placement: dict[Broker, list[MountedLog]] = {each: [] for each in cluster.brokers}
    topics = []
    for number, (name, logs) in enumerate(plan.topics().items()):
        partitions = []
        for each in logs:
            replicas = cluster.replicas(number, each.log.partition)
            for broker in replicas:
                placement[broker].append(each)
            nodes = tuple(broker.node_id for broker in replicas)
            directories = tuple(directory_ids[broker] for broker in replicas)
            partitions.append(PartitionMetadata(each.log.partition, nodes, directories, each.state.leader_epoch))
        settings = topic_settings(plan.settings.get(name))
        topics.append(TopicMetadata(name, logs[0].state.topic_id, tuple(partitions), settings))
    return topics, placement


def _server_properties(cluster: NewCluster, broker: Broker, data: Path) -> str:
    replicas = min(3, len(cluster.brokers))
    values = {
        "process.roles": "broker,controller",
        "node.id": broker.node_id,
        "controller.quorum.voters": ",".join(each.voter for each in cluster.brokers),
        "listeners": f"PLAINTEXT://{broker.host}:{broker.port},CONTROLLER://{broker.host}:{broker.port + 1}",
        "advertised.listeners": f"PLAINTEXT://{broker.host}:{broker.port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": data,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": max(1, replicas - 1),
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": max(1, replicas - 1),
    }
    return "".join(f"{name}={value}\n" for name, value in values.items())
