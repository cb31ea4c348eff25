"""Parses start and end of a read, in the forms of Spark's Kafka connector.

| option                            | form                                                        |
|-----------------------------------|-------------------------------------------------------------|
| startingOffsets, endingOffsets    | `earliest`, `latest`, or `{"topic": {"0": 23, "1": -2}}`    |
| startingTimestamp, ...            | ms                                                          |
| startingOffsetsByTimestamp, ...   | `{"topic": {"0": ms}}`                                      |

An offset of -2 means earliest, -1 latest.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from sparklog.storage_core.topic_partition import TopicPartition

__all__ = [
    "EARLIEST",
    "LATEST",
    "LATEST_OFFSETS",
    "OffsetLimit",
    "parse_assignment",
    "parse_limit",
    "parse_time",
    "parse_times",
]

EARLIEST = -2
LATEST = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetLimit:
    """One value for all logs, or one for each log.

    Attributes:
        is_time: whether values are ms since the epoch; otherwise offsets, `EARLIEST` or `LATEST`.
        common: the value for all logs; None if each log has its own.
        by_log: values of the logs, if `common` is None.
    """

    is_time: bool = False
    common: int | None = None
    by_log: Mapping[TopicPartition, int] = field(default_factory=dict)

    def has(self, value: int) -> bool:
        """Whether some log gets this value."""
        return self.common == value or value in self.by_log.values()


LATEST_OFFSETS = OffsetLimit(common=LATEST)

_WORDS = {"earliest": OffsetLimit(common=EARLIEST), "latest": LATEST_OFFSETS}


def parse_limit(text: str) -> OffsetLimit:
    """Return the limit in `startingOffsets` or `endingOffsets`.

    Raises:
        ValueError: the text has another form; the message shows the right one.
    """
    word = _WORDS.get(text.strip().lower())
    return word or OffsetLimit(by_log=_parse_by_log(text, lowest=EARLIEST))


def parse_time(text: str) -> OffsetLimit:
    """Return the limit of one time for all logs, in ms.

    Raises:
        ValueError: the text is not a number of 0 or more.
    """
    if not text.strip().isdecimal():
        raise ValueError(f"{text!r} is not ms since 1970")
    return OffsetLimit(is_time=True, common=int(text))


def parse_times(text: str) -> OffsetLimit:
    """Return the limit of times by partition.

    Raises:
        ValueError: the text has another form.
    """
    return OffsetLimit(is_time=True, by_log=_parse_by_log(text, lowest=0))


def parse_assignment(text: str) -> tuple[TopicPartition, ...]:
    """Return the logs in `assign`, in order.

    Raises:
        ValueError: the text is not of the form `{"topic": [0, 1]}`, or names no partition.
    """
    topics = _parse_object(text, '{"topic": [0, 1]}')
    logs = []
    for topic, partitions in topics.items():
        if not isinstance(partitions, list) or not all(type(each) is int and each >= 0 for each in partitions):
            raise ValueError(f'{topic!r} has no list of partition numbers; the form is {{"topic": [0, 1]}}')
        logs += [TopicPartition(topic, partition) for partition in partitions]
    if not logs:
        raise ValueError("names no partition")
    return tuple(sorted(set(logs)))


def _parse_by_log(text: str, lowest: int) -> dict[TopicPartition, int]:
    form = '{"topic": {"0": 23}}'
    found = {}
    for topic, partitions in _parse_object(text, form).items():
        if not isinstance(partitions, dict):
            raise ValueError(f"{topic!r} has no object of partitions; the form is {form}")
        for partition, value in partitions.items():
            if not (partition.isascii() and partition.isdecimal()):
                raise ValueError(f"{topic!r} has {partition!r} for a partition number; the form is {form}")
            if type(value) is not int or not lowest <= value < 2**63:
                raise ValueError(f"{topic}:{partition} has {value!r}, which is not a number of {lowest} or more")
            found[TopicPartition(topic, int(partition))] = value
    if not found:
        raise ValueError("names no partition")
    return found


def _parse_object(text: str, form: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not of the form {form} ({error})") from error
    if not isinstance(value, dict):
        raise ValueError(f"{text!r} is not of the form {form}")
    return value
