"""Consumer groups' offsets and where `__consumer_offsets` has them: a group goes on where they say.

A group's records are all in one partition, by the hash of its name. A broker drops offsets whose commit time is older
than `offsets.retention.minutes`, so the time of the mount is theirs.

Source: Kafka GroupCoordinator.partitionFor, java.lang.String.hashCode.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

__all__ = [
    "OFFSETS_PARTITIONS",
    "OFFSETS_SETTINGS",
    "OFFSETS_TOPIC",
    "GroupOffset",
    "by_partition",
    "offsets_partition",
]

OFFSETS_TOPIC: Final = "__consumer_offsets"
OFFSETS_PARTITIONS: Final = 50
"""Kafka's default of `offsets.topic.num.partitions`."""

OFFSETS_SETTINGS: Final = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": str(100 << 20),
}
"""Of the topic, as a broker makes it."""

_INT32: Final = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """The offset that a group has committed for a partition.

    Attributes:
        offset: of the next record that the group wants.
        metadata: text of the consumer beside it.
    """

    group: str
    topic: str
    partition: int
    offset: int
    metadata: str = ""


def offsets_partition(group: str) -> int:
    """Return the partition of `__consumer_offsets` that has a group's offsets."""
    code = 0
    data = group.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        code = (code * 31 + int.from_bytes(data[at : at + 2])) % _INT32
    signed = code - _INT32 if code >= _INT32 // 2 else code
    return 0 if signed == -_INT32 // 2 else abs(signed) % OFFSETS_PARTITIONS


def by_partition(offsets: Iterable[GroupOffset]) -> dict[int, list[GroupOffset]]:
    """Return the offsets of each partition of `__consumer_offsets` that has some."""
    found: dict[int, list[GroupOffset]] = {}
    for each in offsets:
        found.setdefault(offsets_partition(each.group), []).append(each)
    return found
