"""Meaning of Kafka's property names for a topic: used, a broker's default of one, ignored, or unknown.

| name                               | outcome                                                                   |
|------------------------------------|---------------------------------------------------------------------------|
| a topic property that is used      | its value counts before broker-level ones                                 |
| a broker-level property of one     | its value, in the topic property's unit; of several the finest one        |
| legal in Kafka, no meaning here    | ignored: there are no replicas, no tiers and no threads of a broker       |
| any other                          | unknown; the nearest name is suggested                                    |

Source: Kafka 4.3 TopicConfig, ServerTopicConfigSynonyms, LogConfig, CleanerConfig, ServerLogConfigs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

__all__ = ["ResolvedProperties", "ignored_properties", "resolve_properties"]

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS

_SYNONYMS: Final[Mapping[str, Mapping[str, int]]] = {
    "cleanup.policy": {"log.cleanup.policy": 1},
    "delete.retention.ms": {"log.cleaner.delete.retention.ms": 1},
    "file.delete.delay.ms": {"log.segment.delete.delay.ms": 1},
    "flush.messages": {"log.flush.interval.messages": 1},
    "flush.ms": {"log.flush.interval.ms": 1, "log.flush.scheduler.interval.ms": 1},
    "index.interval.bytes": {"log.index.interval.bytes": 1},
    "max.compaction.lag.ms": {"log.cleaner.max.compaction.lag.ms": 1},
    "max.message.bytes": {"message.max.bytes": 1},
    "message.timestamp.after.max.ms": {"log.message.timestamp.after.max.ms": 1},
    "message.timestamp.before.max.ms": {"log.message.timestamp.before.max.ms": 1},
    "message.timestamp.type": {"log.message.timestamp.type": 1},
    "min.cleanable.dirty.ratio": {"log.cleaner.min.cleanable.ratio": 1},
    "min.compaction.lag.ms": {"log.cleaner.min.compaction.lag.ms": 1},
    "retention.bytes": {"log.retention.bytes": 1},
    "retention.ms": {"log.retention.ms": 1, "log.retention.minutes": _MINUTE_MS, "log.retention.hours": _HOUR_MS},
    "segment.bytes": {"log.segment.bytes": 1},
    "segment.index.bytes": {"log.index.size.max.bytes": 1},
    "segment.jitter.ms": {"log.roll.jitter.ms": 1, "log.roll.jitter.hours": _HOUR_MS},
    "segment.ms": {"log.roll.ms": 1, "log.roll.hours": _HOUR_MS},
}
"""Broker-level properties of each topic property, in a broker's order, and the factor between their units."""

_IGNORED: Final = frozenset(
    [
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "message.downconversion.enable",
        "min.insync.replicas",
        "preallocate",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "unclean.leader.election.enable",
        "auto.create.topics.enable",
        "default.replication.factor",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.enable",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.threads",
        "log.dir",
        "log.dir.failure.timeout.ms",
        "log.dirs",
        "log.flush.offset.checkpoint.interval.ms",
        "log.flush.start.offset.checkpoint.interval.ms",
        "log.initial.task.delay.ms",
        "log.local.retention.bytes",
        "log.local.retention.ms",
        "log.message.downconversion.enable",
        "log.preallocate",
        "log.retention.check.interval.ms",
        "num.partitions",
        "num.recovery.threads.per.data.dir",
    ]
)
"""First those of a topic, then those of a broker."""

_RETENTION_MS: Final = "retention.ms"


@dataclass(frozen=True, slots=True)
class ResolvedProperties:
    """Properties by topic-level names.

    Attributes:
        values: by topic property.
        given_as: the broker-level name of a value that was given under one.
        problems: one for each unknown name.
    """

    values: dict[str, object]
    given_as: dict[str, str]
    problems: list[str]


def resolve_properties(properties: Mapping[str, object], used: Iterable[str]) -> ResolvedProperties:
    """Return properties under a topic's own names.

    Args:
        used: the topic properties with a meaning here.
    """
    names = list(used)
    values = {name: properties[name] for name in names if name in properties}
    given_as = {}
    for name, synonyms in _SYNONYMS.items():
        given = [each for each in synonyms if each in properties]
        if given and name not in values:
            values[name] = _in_unit(properties[given[0]], synonyms[given[0]], is_retention=name == _RETENTION_MS)
            given_as[name] = given[0]
    broker_level = [each for synonyms in _SYNONYMS.values() for each in synonyms]
    known = {*names, *broker_level, *_IGNORED}
    unknown = [name for name in properties if name not in known]
    return ResolvedProperties(values, given_as, [_unknown(name, [*names, *broker_level]) for name in unknown])


def ignored_properties(properties: Iterable[str]) -> list[str]:
    """Return the names that are legal in Kafka and have no meaning here."""
    return [name for name in properties if name in _IGNORED]


def _in_unit(value: object, factor: int, *, is_retention: bool) -> object:
    """Return a broker-level value in the topic property's unit; a non-integer unchanged, to be refused later."""
    if factor == 1 and not is_retention:
        return value
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        return value
    if isinstance(number, bool) or not isinstance(number, int):
        return value
    return max(number * factor, -1) if is_retention else number * factor  # any negative retention keeps all


def _unknown(name: str, names: list[str]) -> str:
    nearest = get_close_matches(name, [*names, "partitions"], n=1)
    return f"unknown property {name!r}" + (f", did you mean {nearest[0]!r}?" if nearest else "")
