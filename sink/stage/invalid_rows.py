"""Reasons why a row can't become a record, and their texts."""

from dataclasses import dataclass
from enum import IntEnum

__all__ = ["InvalidReason", "InvalidRow"]

_LONGEST_NAME = 249


class InvalidReason(IntEnum):
    """Why a row can't become a record; 0 stands for a valid row."""

    TOPIC_NULL = 1
    TOPIC_UNKNOWN = 2
    TOPIC_ILLEGAL = 3
    PARTITION_RANGE = 4
    KEY_NULL = 5
    TIMESTAMP_NULL = 6
    TIMESTAMP_RANGE = 7
    OFFSET_RANGE = 8
    OFFSET_BACKWARD = 9
    RECORD_TOO_LARGE = 10
    HEADER_KEY_NULL = 11

    @property
    def column(self) -> str:
        """Name of the wrong column."""
        return _WORDS[self][0]

    @property
    def problem(self) -> str:
        """The column's problem."""
        return _WORDS[self][1]


_WORDS = {
    InvalidReason.TOPIC_NULL: ("topic", "is null"),
    InvalidReason.TOPIC_UNKNOWN: ("topic", "names an unknown topic"),
    InvalidReason.TOPIC_ILLEGAL: ("topic", "is an illegal topic name"),
    InvalidReason.PARTITION_RANGE: ("partition", "is out of range"),
    InvalidReason.KEY_NULL: ("key", "is null, and the topic is compacted"),
    InvalidReason.TIMESTAMP_NULL: ("timestamp", "is null or could not be parsed"),
    InvalidReason.TIMESTAMP_RANGE: ("timestamp", "is out of range"),
    InvalidReason.OFFSET_RANGE: ("offset", "is null or out of range"),
    InvalidReason.OFFSET_BACKWARD: ("offset", "goes back or repeats"),
    InvalidReason.RECORD_TOO_LARGE: ("value", "makes the record larger than max.message.bytes"),
    InvalidReason.HEADER_KEY_NULL: ("headers", "hold a null key"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidRow:
    """A row that can't become a record.

    Attributes:
        row: its number in its input split.
        topic: its topic, legal or not; None without one.
        partition: its partition; None if any is allowed.
    """

    row: int
    reason: InvalidReason
    topic: str | None
    partition: int | None

    def describe(self, split: int) -> str:
        """Describe its problem, for people."""
        topic = "" if self.topic is None else f" topic={_readable(self.topic)}"
        partition = "" if self.partition is None else f" partition={self.partition}"
        where = f"{topic}{partition} row={self.row} of input split {split}"
        return f"invalid row: column '{self.reason.column}' {self.reason.problem}:{where}"


def _readable(topic: str) -> str:
    """Return a topic name, escaped and shortened if it would break or flood the message."""
    is_plain = topic.isascii() and topic.isprintable() and len(topic) <= _LONGEST_NAME
    return topic if is_plain else ascii(topic)[:_LONGEST_NAME]
