"""Makes the data directories of a new KRaft cluster that serves a store's logs at its first start.

```
<out>/                     of one broker; of several: <out>/broker-<node id>/
  server.properties        for kafka-server-start
  data/                    its log.dirs
    meta.properties        cluster, node and directory id
    bootstrap.checkpoint   features, topics, partitions and their settings, in force before retention first runs
    recovery-point-offset-checkpoint   replication-offset-checkpoint
    log-start-offset-checkpoint        cleaner-offset-checkpoint
    <topic>-<partition>/
    __consumer_offsets-<partition>/     offsets of consumer groups, if a mirror has read some
```

Each broker is a controller, too, with all brokers as voters. The folder gets its name once it is complete.

Source: Kafka StorageTool, BootstrapDirectory, LogManager.loadLogs.
"""

import os
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from sparklog.sink.mount.cluster import Broker, NewCluster
from sparklog.sink.mount.place_groups import place_groups
from sparklog.sink.mount.place_logs import may_be_linked, place_log, refuse_damage, write_checkpoints
from sparklog.sink.mount.plan_mount import MountedLog, MountPlan
from sparklog.sink.store.new_log_place import can_share, check_rooms
from sparklog.sink.store.store_folder import Store, random_id
from sparklog.storage_core.checkpoint.meta_properties import render_meta_properties, render_properties
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.kraft.bootstrap_checkpoint import BOOTSTRAP_CHECKPOINT, render_bootstrap_checkpoint
from sparklog.storage_core.kraft.group_offsets import (
    OFFSETS_PARTITIONS,
    OFFSETS_SETTINGS,
    OFFSETS_TOPIC,
    by_partition,
)
from sparklog.storage_core.kraft.metadata_records import (
    PartitionMetadata,
    TopicMetadata,
    feature_records,
    topic_records,
)
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.storage.local import storage_errors, write_file
from sparklog.storage_core.storage.new_folder import check_new_folder, new_folder
from sparklog.storage_core.storage.share_file import Sharing
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["check_out", "check_target", "make_cluster", "mounted_settings", "topic_settings"]

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

_MOST_NAMES: Final = 5
_LEAST_REPLICAS: Final = "min.insync.replicas"
_SEGMENT_BYTES: Final = "segment.bytes"
_LEAST_SEGMENT_BYTES: Final = 1 << 20
"""A broker refuses a smaller `segment.bytes`, but takes it as `internal.segment.bytes`."""

_BULKY_BYTES: Final = 1 << 20
"""Of a segment: several threads check larger ones faster; over smaller ones they wait for each other."""

_KEPT_FOR_EVER: Final = {"retention.ms": "-1", "retention.bytes": "-1"}


def check_target(store: Store, plan: MountPlan, cluster: NewCluster, out: Path) -> None:
    """Refuse a cluster that can't be made, or not in this folder.

    Raises:
        InvalidConfigError: as `check_out`; the folder lies in the store or around it; replicas are assigned of
            partitions that are not mounted.
    """
    unknown = sorted(set(cluster.assigned).difference(each.log for each in plan.logs))
    if unknown:
        named = ", ".join(map(str, unknown[:_MOST_NAMES])) + (", ..." if unknown[_MOST_NAMES:] else "")
        raise InvalidConfigError(f"replicas are assigned of {len(unknown)} partitions that are not mounted: {named}")
    target = out.resolve()
    for folder in {store.root, *(each.directory.parent for each in plan.logs)}:
        if target.is_relative_to(folder.resolve()) or folder.resolve().is_relative_to(target):
            raise InvalidConfigError(f"--out and the store lie in each other: path={out} store={folder}")
    check_out(out)


def check_out(out: Path) -> None:
    """Refuse a folder in which no cluster can be made, whatever the store.

    Raises:
        InvalidConfigError: it is not empty, or a mount point; its name can't be in a list.
    """
    target = out.resolve()
    if target.is_mount():
        raise InvalidConfigError(f"--out is a mount point, name a folder in it: path={out}")
    if "," in str(target):
        raise InvalidConfigError(f"--out has a comma, which separates log.dirs: path={out}")
    check_new_folder(out)


def make_cluster(plan: MountPlan, cluster: NewCluster, out: Path, now_ms: int) -> set[Sharing]:
    """Make the directories, and check every log in them; return how closed segments got there.

    Raises:
        InvalidConfigError: the folder exists, and is not empty.
        StoreLockedError: another process is making it.
        CorruptFileError: a log is damaged; nothing is left.
        StorageError: the disk refused, or has no room; nothing is left.
    """
    directory_ids = {each: random_id() for each in cluster.brokers}
    topics, placement = _topics(plan, cluster, directory_ids)
    groups = by_partition(plan.groups.given)
    offsets_topic = _offsets_topic(cluster, directory_ids, len(topics)) if groups else None
    topics += [offsets_topic] if offsets_topic is not None else []
    records = [*feature_records(_FEATURES), *(record for topic in topics for record in topic_records(topic))]
    metadata = render_bootstrap_checkpoint(records, now_ms)
    used, linked = set[Sharing](), _of_one_replica(placement)
    _check_room(placement, out, linked)
    with new_folder(out) as folder:
        for broker, logs in placement.items():
            data = folder / cluster.folder(broker) / "data"
            with storage_errors(data):
                data.mkdir(parents=True)
                used |= _place(logs, data, linked)
                write_checkpoints(logs, data)
                if offsets_topic is not None:
                    for number in _partitions_on(broker, offsets_topic):
                        place_groups(groups.get(number, []), number, offsets_topic.topic_id, data, commit_ms=now_ms)
                meta = render_meta_properties(cluster.cluster_id, broker.node_id, directory_ids[broker])
                write_file(data / "meta.properties", meta)
                write_file(data / BOOTSTRAP_CHECKPOINT, metadata)
                final = out.resolve() / cluster.folder(broker) / "data"
                write_file(data.parent / "server.properties", _server_properties(cluster, broker, final))
    return used


def _of_one_replica(placement: Mapping[Broker, Sequence[MountedLog]]) -> set[TopicPartition]:
    """Return the logs whose files only one broker gets: those may be links."""
    counts = Counter(each.log for logs in placement.values() for each in logs)
    return {log for log, count in counts.items() if count == 1}


def _check_room(placement: Mapping[Broker, Sequence[MountedLog]], out: Path, linked: Set[TopicPartition]) -> None:
    """Refuse a filesystem without room for what is copied; whether blocks are shared is tried once per log directory.

    Raises:
        StorageError: it has less.
    """
    shares: dict[tuple[Path, bool], bool] = {}
    needed = []
    for each in (log for logs in placement.values() for log in logs):
        how = each.directory.parent, each.log in linked and may_be_linked(each)
        if how not in shares and each.closed:
            shares[how] = can_share(each.closed[0].log_path, each.log, out, may_link=how[1])
        needed.append((out, each.copied_bytes(shares=shares.get(how, True))))
    check_rooms(needed)


def _place(logs: Sequence[MountedLog], data: Path, linked: Set[TopicPartition]) -> set[Sharing]:
    """Put logs into a log directory, and check them there; return how closed segments got there."""

    def place(each: MountedLog) -> set[Sharing]:
        target = data / each.log.directory_name
        used = place_log(each, target, may_link=each.log in linked)
        refuse_damage(each, target)
        return used

    segments = sum(len(each.closed) + 1 for each in logs)
    is_bulky = sum(each.size_bytes for each in logs) >= segments * _BULKY_BYTES
    with ThreadPoolExecutor(os.cpu_count() if is_bulky else 1, thread_name_prefix="mount") as pool:
        return set[Sharing]().union(*pool.map(place, logs))


def _offsets_topic(cluster: NewCluster, directory_ids: dict[Broker, str], number: int) -> TopicMetadata:
    """Return the topic of the groups' offsets."""
    partitions = []
    for partition in range(OFFSETS_PARTITIONS):
        replicas = cluster.replicas(number, TopicPartition(OFFSETS_TOPIC, partition))
        nodes, directories = (each.node_id for each in replicas), (directory_ids[each] for each in replicas)
        partitions.append(PartitionMetadata(partition, tuple(nodes), tuple(directories), leader_epoch=0))
    return TopicMetadata(OFFSETS_TOPIC, random_id(), tuple(partitions), OFFSETS_SETTINGS)


def _partitions_on(broker: Broker, topic: TopicMetadata) -> list[int]:
    return [each.partition for each in topic.partitions if broker.node_id in each.replicas]


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


def mounted_settings(plan: MountPlan, topic: str, replication_factor: int) -> dict[str, str]:
    """Return the settings of a topic for its brokers.

    Those of a mirrored topic that only brokers use are among them, without what these brokers can't have.
    """
    others = {
        name: value
        for name, value in plan.others.get(topic, {}).items()
        if not (name.startswith("remote.") or name.endswith(".throttled.replicas"))
        and not (name == _LEAST_REPLICAS and int(value) > replication_factor)
    }
    return topic_settings(plan.settings.get(topic)) | others


def _topics(
    plan: MountPlan, cluster: NewCluster, directory_ids: dict[Broker, str]
) -> tuple[list[TopicMetadata], dict[Broker, list[MountedLog]]]:
    """Return the topics' metadata, and the logs of each broker."""
    placement: dict[Broker, list[MountedLog]] = {each: [] for each in cluster.brokers}
    topics = []
    for number, (name, logs) in enumerate(plan.topics().items()):
        partitions = []
        for each in logs:
            replicas = cluster.replicas(number, each.log)
            for broker in replicas:
                placement[broker].append(each)
            nodes = tuple(broker.node_id for broker in replicas)
            directories = tuple(directory_ids[broker] for broker in replicas)
            partitions.append(PartitionMetadata(each.log.partition, nodes, directories, each.state.leader_epoch))
        settings = mounted_settings(plan, name, min(len(each.replicas) for each in partitions))
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
