"""Topics and their settings as a broker's copy of the metadata log has them: the newest snapshot, and the log above it.

A cluster that has not started yet has them in `bootstrap.checkpoint`, as a mount makes it.

Of the records only Topic, Partition, RemoveTopic and Config are read; others are passed over, as are fields after those
that are needed. A record at the log's end may not be committed yet; it counts, as it does for a controller that starts
alone.

Source: Kafka MetadataRecordSerde, TopicRecord.json, PartitionRecord.json, ConfigRecord.json, RemoveTopicRecord.json;
KIP-630.
"""

import base64
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.kraft.bootstrap_checkpoint import BOOTSTRAP_CHECKPOINT
from sparklog.storage_core.log.files.segments import SegmentFiles, list_segments
from sparklog.storage_core.log.scan.segment_reader import SegmentReader
from sparklog.storage_core.record.batch_decode import iter_decoded
from sparklog.storage_core.storage.local import storage_errors

__all__ = ["ClusterMetadata", "read_cluster_metadata"]

METADATA_LOG: Final = "__cluster_metadata-0"

_SNAPSHOT: Final = re.compile(r"([0-9]{20})-[0-9]{10}\.checkpoint")
_FRAME_VERSION: Final = 1
_TOPIC, _PARTITION, _CONFIG, _REMOVE_TOPIC = 2, 3, 4, 9
_TOPIC_RESOURCE: Final = 2
_VARINT_BITS: Final = 7
_LONGEST_VARINT: Final = 5
_ID_BYTES: Final = 16


@dataclass(slots=True)
class ClusterMetadata:
    """What a cluster knows of its topics.

    Attributes:
        topic_ids: 22 characters, by topic.
        settings: properties that were set for a topic, by topic.
        replicas: number of replicas of each partition when it was made, by topic and partition.
    """

    topic_ids: dict[str, str] = field(default_factory=dict)
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    replicas: dict[str, dict[int, int]] = field(default_factory=dict)


def read_cluster_metadata(root: Path) -> ClusterMetadata | None:
    """Return what the metadata log in a root has; None without one.

    Raises:
        CorruptFileError: a record can't be read; the message names the log.
        CorruptBatchError: the log is damaged.
        StorageError: the disk refused.
    """
    directory, bootstrap = root / METADATA_LOG, root / BOOTSTRAP_CHECKPOINT
    found = ClusterMetadata()
    if not directory.is_dir():
        if not bootstrap.is_file():
            return None
        for _, value in _records(SegmentFiles(0, bootstrap)):
            _apply(found, value, root)
        return found
    with storage_errors(directory):
        snapshots = sorted(
            (int(match[1]), name) for name in os.listdir(directory) if (match := _SNAPSHOT.fullmatch(name))
        )
    above = 0
    for end_offset, name in snapshots[-1:]:
        above = end_offset
        for _, value in _records(SegmentFiles(0, directory / name)):
            _apply(found, value, directory)
    for segment in list_segments(directory):
        for offset, value in _records(segment):
            if offset >= above:
                _apply(found, value, directory)
    return found


def _records(files: SegmentFiles) -> Iterator[tuple[int, bytes]]:
    """Yield offset and value of the records; a torn tail ends them."""
    with SegmentReader(files) as reader:
        for chunk in reader.chunks():
            reader.check_crcs(chunk, chunk.scan)
            for batch in iter_decoded(chunk.data, chunk.scan):
                yield from zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True)


def _apply(found: ClusterMetadata, value: bytes | None, directory: Path) -> None:
    try:
        _apply_record(found, _Fields(value or b""))
    except (IndexError, UnicodeDecodeError) as error:
        raise CorruptFileError(f"a metadata record can't be read: log={directory} ({error})") from None


def _apply_record(found: ClusterMetadata, fields: "_Fields") -> None:
    if fields.varint() != _FRAME_VERSION:
        raise IndexError("another frame version")
    kind, _ = fields.varint(), fields.varint()
    if kind == _TOPIC:
        name = fields.string() or ""
        found.topic_ids[name] = fields.uuid()
        found.settings.setdefault(name, {})
        found.replicas[name] = {}
    elif kind == _PARTITION:
        partition, topic_id, replicas = fields.int32(), fields.uuid(), fields.varint() - 1
        for name in [name for name, known in found.topic_ids.items() if known == topic_id]:
            found.replicas[name][partition] = replicas
    elif kind == _CONFIG:
        is_topic = fields.take(1)[0] == _TOPIC_RESOURCE
        name, key, value = fields.string() or "", fields.string() or "", fields.string()
        if is_topic and value is None:
            found.settings.setdefault(name, {}).pop(key, None)
        elif is_topic and value is not None:
            found.settings.setdefault(name, {})[key] = value
    elif kind == _REMOVE_TOPIC:
        topic_id = fields.uuid()
        for name in [name for name, known in found.topic_ids.items() if known == topic_id]:
            del found.topic_ids[name]
            found.settings.pop(name, None)
            del found.replicas[name]


class _Fields:
    """The fields of a record, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        taken = self._data[self._position : self._position + count]
        if len(taken) != count:
            raise IndexError("the record is too short")
        self._position += count
        return taken

    def int32(self) -> int:
        """Return a signed integer of four bytes."""
        return int.from_bytes(self.take(4), signed=True)

    def varint(self) -> int:
        """Return an unsigned varint."""
        value = 0
        for number in range(_LONGEST_VARINT):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (_VARINT_BITS * number)
            if byte < 0x80:
                return value
        raise IndexError("a number is too long")

    def string(self) -> str | None:
        """Return a compact string; None for null."""
        size = self.varint()
        return self.take(size - 1).decode() if size else None

    def uuid(self) -> str:
        """Return an id as Kafka writes it."""
        return base64.urlsafe_b64encode(self.take(_ID_BYTES)).decode().rstrip("=")
