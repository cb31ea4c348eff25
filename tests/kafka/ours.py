"""What Sparklog's own reader finds, in the shape in which clients report it."""

from pathlib import Path

from sparklog.storage_core.log.read.log_reader import LogReader
from tests.kafka.consumed import Consumed

__all__ = ["read_log"]


def read_log(directory: Path) -> list[Consumed]:
    """Return every record of a log directory."""
    reader = LogReader(directory)
    return [
        Consumed(
            row["offset"],
            row["timestamp"],
            row["timestamp_type"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for batch in reader.read(reader.log_start_offset)
        for row in batch.to_pylist()
    ]
