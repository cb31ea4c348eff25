"""A producer snapshot in a log directory, as a broker leaves it."""

from collections.abc import Sequence
from pathlib import Path

from sparklog.storage_core.checkpoint.producer_snapshot import ProducerState, render_producer_snapshot
from sparklog.storage_core.log.files.names import SNAPSHOT, segment_file_name

__all__ = ["write_snapshot"]


def write_snapshot(directory: Path, offset: int, producers: Sequence[ProducerState]) -> None:
    """Write the snapshot of an offset, in the place of one that may be there."""
    (directory / segment_file_name(offset, SNAPSHOT)).write_bytes(render_producer_snapshot(producers))
