"""A source topic's settings: as a store records them, and as the mirror's sink writes by them.

The sink checks nothing again that the source let producers send: sizes, times, keys. It keeps the source's times, and
compresses by a codec of its own.

Source: Kafka DescribeConfigsResponse, TopicConfig.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from sparklog.sink.config import MirroredTopic, TopicConfig
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.log_config import CODECS, INT32_MAX, INT64_MAX, LogConfig

__all__ = ["SourceSettings", "mirrored_topic", "sink_topic"]

_OWN: Final = frozenset({"batch.size", "flush.messages", "flush.ms"})
"""Ours to decide: a source's flush policy counts on replicas."""

_FASTEST_LEVEL: Final = 1
_USUAL_CODEC: Final = "zstd"


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """Properties of a source's topic.

    Attributes:
        effective: values in force, with the broker's defaults.
        given: those that the topic itself was given.
    """

    effective: Mapping[str, str]
    given: Mapping[str, str]


def mirrored_topic(name: str, topic_id: str, settings: SourceSettings) -> MirroredTopic:
    """Return a topic as a store records it.

    Raises:
        InvalidConfigError: a property has a value that this release does not know.
    """
    used = LogConfig.property_names().keys() - _OWN
    try:
        config = LogConfig.from_properties(
            {each: settings.effective[each] for each in used & settings.effective.keys()}
        )
    except InvalidConfigError as error:
        raise InvalidConfigError(*(f"the source's topic {name}: {each}" for each in error.problems)) from error
    others = {each: value for each, value in sorted(settings.given.items()) if each not in used}
    return MirroredTopic(topic_id=topic_id, settings=config, others=others)


def sink_topic(name: str, partitions: int, source: LogConfig, codec: str | None) -> TopicConfig:
    """Return a topic as the sink writes it.

    Args:
        source: its settings at the source.
        codec: of new batches; None for the topic's own, or zstd.
    """
    own = source.compression_type if source.compression_type in CODECS else None
    level = source.compression_zstd_level if own == _USUAL_CODEC else _FASTEST_LEVEL
    log = replace(
        source,
        cleanup_policy="delete",  # records without a key may be older than the policy
        segment_ms=source.max_segment_ms,
        compression_type=(codec or own or _USUAL_CODEC).replace("none", "uncompressed"),
        compression_zstd_level=level,
        max_message_bytes=INT32_MAX,
        message_timestamp_type="CreateTime",
        message_timestamp_before_max_ms=INT64_MAX,
        message_timestamp_after_max_ms=INT64_MAX,
    )
    return TopicConfig(name=name, partitions=partitions, log=log)
