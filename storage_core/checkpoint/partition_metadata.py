r"""The `partition.metadata` of a log: the id of its topic.

Two lines with one newline between them and none at the end, 43 bytes: `version: 0\ntopic_id: <22 characters>`. The id
is 16 bytes in URL-safe base64 without padding; 16 zero bytes stand for no id and are refused.

Source: Kafka PartitionMetadataFile, Uuid.
"""

import re

from sparklog.storage_core.errors import CorruptFileError

__all__ = ["parse_partition_metadata", "render_partition_metadata"]

_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{21}[AQgw]")
_FILE = re.compile(r"version:\s+(\S+)\r?\ntopic_id:\s+(\S+)\s*")


def render_partition_metadata(topic_id: str) -> bytes:
    """Return the file's bytes.

    Raises:
        CorruptFileError: not an id.
    """
    return f"version: 0\ntopic_id: {_check_topic_id(topic_id)}".encode()


def parse_partition_metadata(data: bytes) -> str:
    """Return the topic id.

    Raises:
        CorruptFileError: the bytes do not have the two lines, or the id is none.
    """
    match = _FILE.fullmatch(data.decode(errors="replace"))
    if not match:
        raise CorruptFileError(
            "partition.metadata does not have the lines 'version: 0' and 'topic_id: <22 characters>'"
        )
    if not re.fullmatch(r"[0-9]+", match[1]):
        raise CorruptFileError(f"partition.metadata has version {match[1][:40]!r}")
    return _check_topic_id(match[2])


def _check_topic_id(topic_id: str) -> str:
    if not _TOPIC_ID.fullmatch(topic_id) or topic_id == "A" * 22:
        raise CorruptFileError(f"topic id {topic_id[:40]!r} is not 16 bytes in URL-safe base64, or all zeros")
    return topic_id
