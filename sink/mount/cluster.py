"""A new cluster: its brokers, and which of them have the replicas of a partition."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.log_config import INT32_MAX
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["Broker", "NewCluster"]

_LAST_PORT: Final = 65_535


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
        replication_factor: of every partition that has no place assigned.
        assigned: node ids of some partitions' replicas, the preferred leader first.
    """

    cluster_id: str
    brokers: tuple[Broker, ...]
    replication_factor: int
    assigned: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)

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
        for log, replicas in self.assigned.items():
            if not replicas or len(set(replicas)) < len(replicas) or not set(replicas) <= set(nodes):
                raise InvalidConfigError(
                    f"replicas of a partition are not different ones of the brokers: partition={log}"
                    f" replicas={[*replicas]} brokers={nodes}"
                )

    def replicas(self, topic_number: int, log: TopicPartition) -> tuple[Broker, ...]:
        """Return the brokers of a partition, its preferred leader first: the assigned ones, or in turn.

        A controller, too, gives the next partition, and the next topic, to the next broker.
        """
        if log in self.assigned:
            by_id = {each.node_id: each for each in self.brokers}
            return tuple(by_id[each] for each in self.assigned[log])
        first = topic_number + log.partition
        return tuple(self.brokers[(first + each) % len(self.brokers)] for each in range(self.replication_factor))

    def folder(self, broker: Broker) -> str:
        """Return the name of a broker's folder below that of the cluster; empty for an only broker."""
        return "" if len(self.brokers) == 1 else f"broker-{broker.node_id}"
