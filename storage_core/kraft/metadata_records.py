"""Records of a cluster's metadata: features, topics, their partitions and settings.

A record's value is the version of the frame, then type and version of the message as unsigned varints, then the
message in Kafka's flexible encoding: big-endian integers, a length plus one before strings and arrays, tagged fields at
the end.

Source: Kafka MetadataRecordSerde, FeatureLevelRecord.json, TopicRecord.json, PartitionRecord.json, ConfigRecord.json.
"""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["PartitionMetadata", "TopicMetadata", "feature_records", "topic_records"]

_FRAME_VERSION: Final = b"\x01"
_TOPIC, _PARTITION, _CONFIG, _FEATURE_LEVEL = 2, 3, 4, 12
_TOPIC_RESOURCE: Final = 2
_NO_LEADER: Final = -1
_LAST_KNOWN_ELR_TAG: Final = 2


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A partition and where its replicas are.

    Attributes:
        replicas: node ids, the preferred leader first.
        directories: `directory.id` of the log directory on each of these nodes.
        leader_epoch: the largest one of its log.
    """

    partition: int
    replicas: tuple[int, ...]
    directories: tuple[str, ...]
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic.

    Attributes:
        topic_id: 22 characters, as in `partition.metadata`.
        settings: Kafka's topic properties that differ from the broker's.
    """

    name: str
    topic_id: str
    partitions: tuple[PartitionMetadata, ...]
    settings: Mapping[str, str]


def feature_records(levels: Mapping[str, int]) -> list[bytes]:
    """Return the values of the FeatureLevel records."""
    return [_record(_FEATURE_LEVEL, 0, _string(name), _int16(level)) for name, level in levels.items()]


def topic_records(topic: TopicMetadata) -> list[bytes]:
    """Return the values of a topic's records: itself, its partitions, its settings."""
    topic_id, resource = _uuid(topic.topic_id), _TOPIC_RESOURCE.to_bytes() + _string(topic.name)
    return [
        _record(_TOPIC, 0, _string(topic.name), topic_id),
        *(_partition(each, topic_id) for each in topic.partitions),
        *(_record(_CONFIG, 0, resource, _string(key), _string(value)) for key, value in topic.settings.items()),
    ]


def _partition(each: PartitionMetadata, topic_id: bytes) -> bytes:
    """Return a partition's record.

    A broker's first registration counts as an unclean stop, which takes it out of the replicas in sync (feature
    `eligible.leader.replicas.version` 1). Of several replicas the last one stays as the leader that was known last. An
    only replica is written as that one at once: it would lead for a moment, lose the partition, and lead again.
    """
    replicas, nobody = _array(map(_int32, each.replicas)), _array([])
    is_only = len(each.replicas) == 1
    return _record(
        *(_PARTITION, 2, _int32(each.partition), topic_id, replicas),
        *(nobody if is_only else replicas, nobody, nobody),  # in sync, removing, adding
        *(_int32(_NO_LEADER if is_only else each.replicas[0]), _int32(each.leader_epoch), _int32(0)),  # partition epoch
        _array(map(_uuid, each.directories)),
        tags={_LAST_KNOWN_ELR_TAG: replicas} if is_only else None,
    )


def _record(api_key: int, version: int, *fields: bytes, tags: Mapping[int, bytes] | None = None) -> bytes:
    tagged = b"".join(_varint(tag) + _varint(len(data)) + data for tag, data in (tags or {}).items())
    head = _FRAME_VERSION + _varint(api_key) + _varint(version)
    return head + b"".join(fields) + _varint(len(tags or {})) + tagged


def _varint(value: int) -> bytes:
    """Return an unsigned varint: seven bits a byte, the lowest ones first."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _int16(value: int) -> bytes:
    return value.to_bytes(2, signed=True)


def _int32(value: int) -> bytes:
    return value.to_bytes(4, signed=True)


def _string(text: str) -> bytes:
    data = text.encode()
    return _varint(len(data) + 1) + data


def _array(items: Iterable[bytes]) -> bytes:
    found = list(items)
    return _varint(len(found) + 1) + b"".join(found)


def _uuid(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")
