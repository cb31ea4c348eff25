"""Names of topics and of the directories that hold their partitions.

| name | what |
|---|---|
| `<topic>-<partition>` | a log |
| `<topic>-<partition>.<32 hex>-delete` | a deleted log with files to remove; the topic is cut for 255 characters |
| `<topic>-<partition>.<32 hex>-future` | an incomplete copy of a log that moves to another disk; never cut |
| `<topic>-<partition>.<32 hex>-stray` | a log that a broker found not to be its own; cut as `-delete` |

Source: Kafka Topic, LocalLog.parseTopicPartitionName, LocalLog.logDeleteDirName.
"""

import re
from dataclasses import dataclass
from typing import Final, Literal, get_args

from sparklog.storage_core.errors import InvalidConfigError

__all__ = [
    "DirectoryKind",
    "SetAsideDirectory",
    "TopicPartition",
    "check_topic_name",
    "parse_directory_name",
    "parse_set_aside_name",
    "set_aside_name",
    "topic_names_collide",
]

DirectoryKind = Literal["delete", "future", "stray"]
"""Why a directory is set aside."""

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_SET_ASIDE: Final = re.compile(rf"(\S+)\.([^\s.]+)-({'|'.join(get_args(DirectoryKind))})")
_LONGEST_NAME = 255
_LARGEST_PARTITION = 2**31 - 1


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One log's name."""

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
    """Return the log of a directory name, None if it is not a log directory, as with `-delete`, `-future`, `-stray`.

    The name is split at its last `-`: topics may contain one.
    """
    topic, dash, partition = name.rpartition("-")
    if not dash or not partition.isascii() or not partition.isdigit() or int(partition[:20]) > _LARGEST_PARTITION:
        return None
    return TopicPartition(topic, int(partition)) if _LEGAL_NAME.fullmatch(topic) else None


@dataclass(frozen=True, slots=True)
class SetAsideDirectory:
    """Parts of the name of a `-delete`, `-future` or `-stray` directory.

    Attributes:
        log: of the directory; `-delete` and `-stray` names have only the start of a long topic.
        unique_id: differs between directories of a log.
        kind: why it is set aside.
    """

    log: TopicPartition
    unique_id: str
    kind: DirectoryKind


def parse_set_aside_name(name: str) -> SetAsideDirectory | None:
    """Return the parts of a `-delete`, `-future` or `-stray` name, None for another name.

    The log's name ends at the last `.`. As in Kafka the unique id may have any characters.
    """
    match = _SET_ASIDE.fullmatch(name)
    log = parse_directory_name(match[1]) if match else None
    if match is None or log is None:
        return None
    kind: DirectoryKind = "delete" if match[3] == "delete" else "future" if match[3] == "future" else "stray"
    return SetAsideDirectory(log, match[2], kind)


def set_aside_name(log: TopicPartition, unique_id: str, kind: DirectoryKind) -> str:
    """Return the name of a set-aside directory.

    Args:
        log: of the directory.
        unique_id: 32 lower-case hex digits, new for each directory.
        kind: why; only `-future` names are never cut, as they must name their log.
    """
    ending = f"-{log.partition}.{unique_id}-{kind}"
    return (log.topic if kind == "future" else log.topic[: _LONGEST_NAME - len(ending)]) + ending
