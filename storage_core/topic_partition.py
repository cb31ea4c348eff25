"""Names of topics and of the directories that hold their partitions.

Source: Kafka Topic, LocalLog.parseTopicPartitionName.
"""

import re
from dataclasses import dataclass

from storage_core.errors import InvalidConfigError

__all__ = ["TopicPartition", "check_topic_name", "parse_directory_name", "topic_names_collide"]

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One log's name.

    Attributes:
        topic: legal topic name.
        partition: number from 0.
    """

    topic: str
    partition: int

    @property
    def directory_name(self) -> str:
        """Name of the log's directory, `<topic>-<partition>`."""
        return f"{self.topic}-{self.partition}"

    def __str__(self) -> str:
        return self.directory_name


def check_topic_name(topic: str) -> None:
    """Refuse a name Kafka refuses: 1..249 of `[a-zA-Z0-9._-]`, not `.` or `..`.

    Raises:
        InvalidConfigError: the name is illegal.
    """
    if not _LEGAL_NAME.fullmatch(topic) or topic in (".", ".."):
        raise InvalidConfigError(
            f"topic name {topic!r} is illegal: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', not '.' or '..'"
        )


def topic_names_collide(first: str, second: str) -> bool:
    """Whether two different topics would share Kafka's metric names, where `.` and `_` are one character."""
    return first != second and first.replace(".", "_") == second.replace(".", "_")


def parse_directory_name(name: str) -> TopicPartition | None:
    """Return the log that a directory name stands for, or None if it is no log directory.

    The name is split at its last `-`: topics may contain one. `-delete`, `-future` and `-stray` directories are
    not logs.
    """
    topic, dash, partition = name.rpartition("-")
    if not dash or not partition.isascii() or not partition.isdigit():
        return None
    return TopicPartition(topic, int(partition)) if _LEGAL_NAME.fullmatch(topic) else None
