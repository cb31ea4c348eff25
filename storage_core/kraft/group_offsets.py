"""Consumer groups' offsets as records of `__consumer_offsets`: a group goes on where they say.

A group's records are all in one partition, by the hash of its name. A broker drops offsets whose commit time is older
than `offsets.retention.minutes`, so the time of the mount is theirs.

Source: Kafka OffsetCommitKey.json, OffsetCommitValue.json, GroupCoordinator.partitionFor, java.lang.String.hashCode.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from sparklog.storage_core.record.v2.batch_encode import EncodeOptions, encode_batches
from sparklog.storage_core.record.v2.record_columns import RecordColumns

__all__ = [
    "OFFSETS_PARTITIONS",
    "OFFSETS_SETTINGS",
    "OFFSETS_TOPIC",
    "GroupOffset",
    "by_partition",
    "offsets_partition",
    "render_offsets",
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

_KEY_VERSION: Final = 1
_VALUE_VERSION: Final = 3
_NO_EPOCH: Final = -1
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


def render_offsets(offsets: Sequence[GroupOffset], commit_ms: int) -> bytes:
    """Return batches from offset 0 on with the offsets of groups of one partition; no bytes for none."""
    count = len(offsets)
    columns = RecordColumns(
        key=pa.array(map(_key, offsets), pa.binary()),
        value=pa.array([_value(each, commit_ms) for each in offsets], pa.binary()),
        timestamp=np.full(count, commit_ms, np.int64),
        offset=np.arange(count, dtype=np.int64),
    )
    options = EncodeOptions(partition_leader_epoch=0)
    rows, groups = np.arange(count, dtype=np.int64), np.array([0, count], np.int64)
    return encode_batches(columns, rows, groups, options).data.tobytes()


def by_partition(offsets: Iterable[GroupOffset]) -> dict[int, list[GroupOffset]]:
    """Return the offsets of each partition of `__consumer_offsets` that has some."""
    found: dict[int, list[GroupOffset]] = {}
    for each in offsets:
        found.setdefault(offsets_partition(each.group), []).append(each)
    return found


def _key(each: GroupOffset) -> bytes:
    partition = each.partition.to_bytes(4)
    return _int16(_KEY_VERSION) + _string(each.group) + _string(each.topic) + partition


def _value(each: GroupOffset, commit_ms: int) -> bytes:
    epoch = _NO_EPOCH.to_bytes(4, signed=True)
    return _int16(_VALUE_VERSION) + each.offset.to_bytes(8) + epoch + _string(each.metadata) + commit_ms.to_bytes(8)


def _string(text: str) -> bytes:
    data = text.encode()
    return _int16(len(data)) + data


def _int16(value: int) -> bytes:
    return value.to_bytes(2)
