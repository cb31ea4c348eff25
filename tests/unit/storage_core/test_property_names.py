"""Which of Kafka's names a topic's settings take."""

import pytest

from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.property_names import ignored_properties

_HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("properties", "field", "value"),
    [
        ({"log.roll.hours": 2}, "segment_ms", 2 * _HOUR_MS),
        ({"log.roll.hours": "2", "log.roll.ms": 5}, "segment_ms", 5),
        ({"log.roll.jitter.hours": 1}, "segment_jitter_ms", _HOUR_MS),
        ({"log.retention.hours": 168}, "retention_ms", 168 * _HOUR_MS),
        ({"log.retention.hours": 1, "log.retention.minutes": "3"}, "retention_ms", 180_000),
        ({"log.retention.hours": 1, "log.retention.minutes": 3, "log.retention.ms": 7}, "retention_ms", 7),
        ({"log.retention.hours": -1}, "retention_ms", -1),
        ({"log.retention.minutes": -5}, "retention_ms", -1),
        ({"log.retention.ms": 7, "retention.ms": 9}, "retention_ms", 9),
        ({"log.retention.bytes": 11}, "retention_bytes", 11),
        ({"log.segment.bytes": 5000}, "segment_bytes", 5000),
        ({"log.index.size.max.bytes": 1200}, "segment_index_bytes", 1200),
        ({"log.index.interval.bytes": 12}, "index_interval_bytes", 12),
        ({"log.cleanup.policy": ["compact", "delete"]}, "cleanup_policy", "compact,delete"),
        ({"log.cleaner.delete.retention.ms": 13}, "delete_retention_ms", 13),
        ({"log.cleaner.min.cleanable.ratio": "0.3"}, "min_cleanable_dirty_ratio", 0.3),
        ({"log.cleaner.min.compaction.lag.ms": 14}, "min_compaction_lag_ms", 14),
        ({"log.cleaner.max.compaction.lag.ms": 15}, "max_compaction_lag_ms", 15),
        ({"log.segment.delete.delay.ms": 16}, "file_delete_delay_ms", 16),
        ({"log.flush.interval.messages": 17}, "flush_messages", 17),
        ({"log.flush.interval.ms": 18}, "flush_ms", 18),
        ({"log.message.timestamp.type": "LogAppendTime"}, "message_timestamp_type", "LogAppendTime"),
        ({"message.max.bytes": 19}, "max_message_bytes", 19),
    ],
)
def test_broker_level_property_is_the_topics_where_that_is_not_given(
    properties: dict[str, object], field: str, value: object
) -> None:
    """In the topic property's unit; ms come before minutes, and those before hours."""
    assert getattr(LogConfig.from_properties(properties), field) == value


def test_flush_property_of_a_broker_when_it_is_the_only_one_then_the_whole_policy() -> None:
    """As the topic's own: the other one is `never`."""
    assert LogConfig.from_properties({"log.flush.interval.ms": 5}) == LogConfig.from_properties({"flush.ms": 5})


@pytest.mark.parametrize(
    "name",
    [
        "preallocate",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "remote.storage.enable",
        "remote.log.copy.disable",
        "local.retention.ms",
        "message.downconversion.enable",
        "log.cleaner.threads",
        "log.retention.check.interval.ms",
    ],
)
def test_property_of_kafka_without_a_meaning_here_is_passed_over(name: str) -> None:
    """A topic's settings can be taken over from a broker as they are."""
    assert LogConfig.from_properties({name: "true", "segment.bytes": 100}) == LogConfig(segment_bytes=100)
    assert ignored_properties([name, "segment.bytes"]) == [name]


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("segment.byte", "segment.bytes"),
        ("retention.mss", "retention.ms"),
        ("log.retention.hour", "log.retention.hours"),
        ("cleanup-policy", "cleanup.policy"),
        ("partition", "partitions"),
    ],
)
def test_unknown_property_names_the_nearest_one(wrong: str, nearest: str) -> None:
    """A typo is found at once."""
    with pytest.raises(InvalidConfigError, match=f"^unknown property '{wrong}', did you mean '{nearest}'\\?$"):
        LogConfig.from_properties({wrong: 1})


def test_unknown_property_like_no_other_is_only_named() -> None:
    """No name is better than a wrong one."""
    with pytest.raises(InvalidConfigError, match=r"^unknown property 'colour'$"):
        LogConfig.from_properties({"colour": 1})


@pytest.mark.parametrize("value", ["soon", 0, True, 1.5])
def test_broker_level_property_when_its_value_is_wrong_then_named_as_it_was_given(value: object) -> None:
    """Who has written `log.roll.hours` looks for that."""
    with pytest.raises(InvalidConfigError, match=r"^log\.roll\.hours=.*: segment\.ms="):
        LogConfig.from_properties({"log.roll.hours": value})
