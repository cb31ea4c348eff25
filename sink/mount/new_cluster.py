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

from sparklog.sink.mount.place_logs import place_log, write_checkpoints
from sparklog.sink.mount.plan_mount import MountedLog, MountPlan
from sparklog.sink.store.store_folder import Store, random_id
from sparklog.storage_core.checkpoint.meta_properties import render_meta_properties, render_properties
from sparklog.storage_core.errors import CorruptFileError, InvalidConfigError
from sparklog.storage_core.inspect.verify.findings import HARMLESS_KINDS
from sparklog.storage_core.inspect.verify.verify_log import VerifyOptions, verify_directory
from sparklog.storage_core.kraft.bootstrap_checkpoint import BOOTSTRAP_CHECKPOINT, render_bootstrap_checkpoint
from sparklog.storage_core.kraft.metadata_records import (
    PartitionMetadata,
    TopicMetadata,
    feature_records,
    topic_records,
)
from sparklog.storage_core.log_config import INT32_MAX, LogConfig
from sparklog.storage_core.storage.local import storage_errors, write_file
from sparklog.storage_core.storage.new_folder import new_folder
from sparklog.storage_core.storage.share_file import Sharing

__all__ = ["Broker", "NewCluster", "check_target", "make_cluster", "topic_settings"]

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
_BROKERS_DEFAULTS: Final = {"message.timestamp.after.max.ms": 3_600_000}
"""Where a broker's default is another one than ours."""

_LAST_PORT: Final = 65_535
_SEGMENT_BYTES: Final = "segment.bytes"
_LEAST_SEGMENT_BYTES: Final = 1 << 20
"""A broker refuses a smaller `segment.bytes`, but takes it as `internal.segment.bytes`."""

_KEPT_FOR_EVER: Final = {"retention.ms": "-1", "retention.bytes": "-1"}


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker of the cluster, which is a controller, too.

    Attributes:
        host: clients and brokers reach it there, and it listens there.
        port: for clients; the next one is for controllers.
    """

    node_id: int
    host: str
    port: int

    def __post_init__(self) -> None:
        if not 0 <= self.node_id <= INT32_MAX:
            raise InvalidConfigError(f"a node id is outside 0..{INT32_MAX}: broker={self}")
        if not 1 <= self.port < _LAST_PORT:
            raise InvalidConfigError(
                f"a port is outside 1..{_LAST_PORT - 1}, as the next one is taken, too: broker={self}"
            )

    def __str__(self) -> str:
        return f"{self.node_id}@{self.host}:{self.port}"

    @property
    def voter(self) -> str:
        """Its entry in `controller.quorum.voters`."""
        return f"{self.node_id}@{self.host}:{self.port + 1}"

    def addresses(self) -> list[tuple[str, int]]:
        """Return where it listens."""
        return [(self.host, self.port), (self.host, self.port + 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCluster:
    """A cluster to make.

    Attributes:
        cluster_id: its id.
        brokers: each one once.
        replication_factor: of every topic.
    """

    cluster_id: str
    brokers: tuple[Broker, ...]
    replication_factor: int

    def __post_init__(self) -> None:
        nodes = [each.node_id for each in self.brokers]
        addresses = [address for each in self.brokers for address in each.addresses()]
        if len(set(nodes)) < len(nodes):
            raise InvalidConfigError(f"a node id is given twice: nodes={nodes}")
        if len(set(addresses)) < len(addresses):
            listed = ", ".join(map(str, self.brokers))
            raise InvalidConfigError(f"two listeners have one port, a controller's is its broker's plus one: {listed}")
        if not 1 <= self.replication_factor <= len(nodes):
            raise InvalidConfigError(
                f"the replication factor is outside 1..{len(nodes)}, the number of brokers: {self.replication_factor}"
            )

    def replicas(self, topic_number: int, partition: int) -> tuple[Broker, ...]:
        """Return the brokers of a partition, its preferred leader first: in turn, as a controller places them."""
        first = topic_number + partition
        return tuple(self.brokers[(first + each) % len(self.brokers)] for each in range(self.replication_factor))

    def folder(self, broker: Broker) -> str:
        """Return the name of a broker's folder below that of the cluster; empty for an only broker."""
        return "" if len(self.brokers) == 1 else f"broker-{broker.node_id}"


def check_target(store: Store, plan: MountPlan, out: Path) -> None:
    """Refuse a folder in which a cluster can't be made.

    Raises:
        InvalidConfigError: it lies in the store or around it; it is a mount point; its name can't be in a list.
    """
    target = out.resolve()
    for folder in {store.root, *(each.directory.parent for each in plan.logs)}:
        if target.is_relative_to(folder.resolve()) or folder.resolve().is_relative_to(target):
            raise InvalidConfigError(f"--out and the store lie in each other: path={out} store={folder}")
    if target.is_mount():
        raise InvalidConfigError(f"--out is a mount point, name a folder in it: path={out}")
    if "," in str(target):
        raise InvalidConfigError(f"--out has a comma, which separates log.dirs: path={out}")


def make_cluster(plan: MountPlan, cluster: NewCluster, out: Path, now_ms: int) -> set[Sharing]:
    """Make the directories, and check every log in them; return how closed segments got there.

    Raises:
        InvalidConfigError: the folder exists, and is not empty.
        StoreLockedError: another process is making it.
        CorruptFileError: a log is damaged; nothing is left.
        StorageError: the disk refused; nothing is left.
    """
    directory_ids = {each: random_id() for each in cluster.brokers}
    topics, placement = _topics(plan, cluster, directory_ids)
    records = [*feature_records(_FEATURES), *(record for topic in topics for record in topic_records(topic))]
    metadata = render_bootstrap_checkpoint(records, now_ms)
    used, may_link = set[Sharing](), cluster.replication_factor == 1
    with new_folder(out) as folder:
        for broker, logs in placement.items():
            data = folder / cluster.folder(broker) / "data"
            with storage_errors(data):
                data.mkdir(parents=True)
                for each in logs:
                    target = data / each.log.directory_name
                    used |= place_log(each, target, may_link=may_link)
                    _refuse_damage(each, target)
                write_checkpoints(logs, data)
                meta = render_meta_properties(cluster.cluster_id, broker.node_id, directory_ids[broker])
                write_file(data / "meta.properties", meta)
                write_file(data / BOOTSTRAP_CHECKPOINT, metadata)
                final = out.resolve() / cluster.folder(broker) / "data"
                write_file(data.parent / "server.properties", _server_properties(cluster, broker, final))
    return used


def _refuse_damage(each: MountedLog, directory: Path) -> None:
    """Check a log as `verify` does, by what the ledger has of it."""
    report = verify_directory(directory, each.expected, VerifyOptions(known_lost=each.lost))
    found = [finding for finding in report.findings if finding.kind not in HARMLESS_KINDS]
    if found:
        more = f" and {len(found) - 1} more findings" if found[1:] else ""
        raise CorruptFileError(
            f"a log of the store is damaged: {found[0]}{more}: path={each.directory}; repair the store"
        )


def topic_settings(config: LogConfig | None) -> dict[str, str]:
    """Return a topic's settings for a broker: what differs from its defaults, under the names that it takes.

    A topic of unknown settings keeps its records: a broker's default would delete what is older than a week.
    """
    if config is None:
        return dict(_KEPT_FOR_EVER)
    default = LogConfig()
    found = {
        name: str(getattr(config, field))
        for name, field in LogConfig.property_names().items()
        if getattr(config, field) != _BROKERS_DEFAULTS.get(name, getattr(default, field)) and name not in _NOT_A_BROKERS
    }
    if "cleanup.policy" in found:
        found["cleanup.policy"] = ",".join(sorted(config.cleanup_policies))
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


def _server_properties(cluster: NewCluster, broker: Broker, data: Path) -> bytes:
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
    return render_properties({name: str(value) for name, value in values.items()})
