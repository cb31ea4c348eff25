"""Which imported logs reach above the high watermark that their broker recorded last.

Records above it may be those of one replica alone: if another broker led the partition, it may have others at these
offsets. A running broker records high watermarks every few seconds, so a copy of its folders is often a little above.

Source: Kafka ReplicaManager.checkpointHighWatermarks, replica.high.watermark.checkpoint.interval.ms.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from sparklog.storage_core.checkpoint.offset_checkpoint import parse_offset_checkpoint
from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import read_if_there
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["notes_above_high_watermarks"]

_FILE: Final = "replication-offset-checkpoint"


def notes_above_high_watermarks(root: Path, ends: Mapping[TopicPartition, int]) -> Iterator[str]:
    """Yield a line for each log that reaches above, or one if the root's file is damaged.

    Args:
        root: of the broker.
        ends: of its imported logs; one that the file does not name is passed over.

    Raises:
        StorageError: the file can't be read.
    """
    path = root / _FILE
    with storage_errors(path):
        data = read_if_there(path) or b""
    try:
        recorded = parse_offset_checkpoint(data)
    except CorruptFileError as error:
        yield f"high watermarks are not known: {error}: path={path}"
        return
    for log, end in sorted(ends.items()):
        if (offset := recorded.get(log, end)) < end:
            yield (
                f"{log}: offsets {offset}..{end - 1} are above the high watermark that the broker recorded last:"
                " other replicas may not have them"
            )
