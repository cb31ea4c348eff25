"""A root's checkpoint files: one offset per log, e.g. `recovery-point-offset-checkpoint`.

Source: Kafka OffsetCheckpointFile.
"""

from collections.abc import Mapping

from sparklog.storage_core.checkpoint.checkpoint_lines import (
    parse_checkpoint_lines,
    parse_integer,
    render_checkpoint_lines,
)
from sparklog.storage_core.log_config import INT32_MAX, INT64_MAX
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["parse_offset_checkpoint", "render_offset_checkpoint"]


def render_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return the file's bytes, logs in order of topic and partition."""
    return render_checkpoint_lines(f"{log.topic} {log.partition} {offsets[log]}" for log in sorted(offsets))


def parse_offset_checkpoint(data: bytes) -> dict[TopicPartition, int]:
    """Return the offset of each log; of two lines for one log the later one counts, as in Kafka.

    Raises:
        CorruptFileError: not a checkpoint.
    """
    return {
        TopicPartition(topic, parse_integer(partition, "partition", 0, INT32_MAX)): parse_integer(
            offset, f"offset of {topic}-{partition}", 0, INT64_MAX
        )
        for topic, partition, offset in parse_checkpoint_lines(data, 3)
    }
