"""A topic's settings in the forms that staging and placing need."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from sparklog.sink.config import SinkConfig, TopicConfig
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import CommittedLogs
from sparklog.sink.place.flush_policy import LogLimits, flush_limits
from sparklog.sink.stage.partitioner import StageTopic
from sparklog.storage_core.index.index_entries import max_entries
from sparklog.storage_core.log.append.roll import ROLL_LIMITS
from sparklog.storage_core.log_config import INT64_MAX, LogConfig
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["log_limits", "number_logs", "roll_limits", "with_append_time"]


def number_logs(config: SinkConfig, ledger: CommittedLogs) -> tuple[tuple[StageTopic, ...], npt.NDArray[np.int64]]:
    """Give each log of a sink an id without gaps: topic by topic, partition by partition.

    Returns:
        every topic; (logs,) ledger row of each log.
    """
    topics: list[StageTopic] = []
    rows: list[int] = []
    for topic in config.topics.values():
        topics.append(_stage_topic(topic, len(rows)))
        rows.extend(ledger.rows[TopicPartition(topic.name, number)] for number in range(topic.partitions))
    return tuple(topics), np.array(rows, np.int64)


def log_limits(config: SinkConfig, ledger: Ledger) -> LogLimits:
    """Return the limits of every row of the ledger; defaults for topics not in the settings."""
    default = LogConfig()
    configs = {name: topic.log for name, topic in config.topics.items()}
    topics = [state.topic for state in ledger.all_states()]
    by_topic = {name: roll_limits(configs.get(name, default)) for name in set(topics)}
    roll = np.array([by_topic[name] for name in topics], ROLL_LIMITS)
    return LogLimits(roll, flush_limits(configs, topics))


def with_append_time(topic: StageTopic, log: LogConfig, now_ms: int) -> StageTopic:
    """Add to a topic the settings that depend on the time of the micro-batch."""
    if log.message_timestamp_type == "LogAppendTime":
        return replace(topic, options=replace(topic.options, log_append_time_ms=now_ms))
    newest = now_ms + log.message_timestamp_after_max_ms
    return replace(
        topic, oldest_ms=max(0, now_ms - log.message_timestamp_before_max_ms), newest_ms=min(newest, INT64_MAX)
    )


def roll_limits(config: LogConfig) -> tuple[int, ...]:
    """Return the values of one row of `ROLL_LIMITS`."""
    return (
        config.segment_bytes,
        config.max_segment_ms,
        config.index_interval_bytes,
        max_entries(config.segment_index_bytes, 8),
        max_entries(config.segment_index_bytes, 12),
        min(config.segment_jitter_ms, config.segment_ms),
    )


def _stage_topic(topic: TopicConfig, first_log: int) -> StageTopic:
    log = topic.log
    options = EncodeOptions(
        codec=log.codec,
        level=log.compression_level,
        batch_size_bytes=log.batch_size,
        max_message_bytes=min(log.max_message_bytes, log.segment_bytes),
    )
    return StageTopic(
        name=topic.name, first_log=first_log, partitions=topic.partitions, options=options, needs_key=log.is_compacted
    )
