"""The offsets of a log, each with its place: the segment, and the position in that segment's `.log`.

| offset | meaning | when it moves |
|---|---|---|
| log start offset | first offset that may be read | up: records deleted, retention; down: truncation below it |
| last stable offset | first offset of the oldest open transaction, or the high watermark | with transactions' markers |
| high watermark | first offset that is not committed | with each commit; down: truncation |
| log end offset | next offset to write: here always the high watermark, as only what is committed counts | |
| recovery point | every offset below it is fsynced | with each flush; up with the log start; down: truncation |

log start <= last stable <= high watermark = log end, and log start <= recovery point <= log end. A roll moves none of
them; the log end is then the first position of the new segment.

Source: Kafka UnifiedLog, LogOffsetMetadata, LogSegment.translateOffset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.log.files.segments import SegmentFiles, floor_segment, list_readable_segments
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.log.scan.segment_reader import SEEK_BYTES, SegmentReader

__all__ = ["LogOffsetMetadata", "LogOffsets", "find_log_offsets", "find_place"]


@dataclass(frozen=True, slots=True)
class LogOffsetMetadata:
    """An offset and where it is.

    Attributes:
        offset: the offset.
        segment_base_offset: of the segment that holds it, or will; -1 in a log without segments.
        position: bytes of that segment's `.log` before its batch; the batch may begin below the offset. -1 where
            damage hides it.
    """

    offset: int
    segment_base_offset: int
    position: int

    @property
    def is_message_offset_only(self) -> bool:
        """Whether its place is not known."""
        return self.segment_base_offset < 0 and self.position < 0

    def message_offset_diff(self, that: LogOffsetMetadata) -> int:
        """Return how many offsets this one lies above another one."""
        return self.offset - that.offset

    def on_older_segment(self, that: LogOffsetMetadata) -> bool:
        """Whether this offset is in a segment below that of another one.

        Raises:
            ValueError: the place of this one is not known.
        """
        if self.is_message_offset_only:
            raise ValueError(f"the segment of this offset is not known, to be compared with {that}: {self}")
        return self.segment_base_offset < that.segment_base_offset

    def on_same_segment(self, that: LogOffsetMetadata) -> bool:
        """Whether both offsets are in one segment."""
        return self.segment_base_offset == that.segment_base_offset

    def position_diff(self, that: LogOffsetMetadata) -> int:
        """Return how many bytes this offset lies above another one of its segment.

        Raises:
            ValueError: a position is not known, or they are in different segments.
        """
        if min(self.position, that.position) < 0:
            raise ValueError(f"a position is not known: {self} {that}")
        if not self.on_same_segment(that):
            raise ValueError(f"the offsets are in different segments: {self} {that}")
        return self.position - that.position


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOffsets:
    """The offsets of one log at one moment."""

    log_start_offset: LogOffsetMetadata
    last_stable_offset: LogOffsetMetadata
    high_watermark: LogOffsetMetadata
    log_end_offset: LogOffsetMetadata
    recovery_point: LogOffsetMetadata


def find_log_offsets(log: LogReader, recovery_point: int | None) -> LogOffsets:
    """Return the offsets of a log with their places.

    Reads an index entry and the headers after it for each; in a folder without a ledger also what the last stable
    offset depends on.

    Args:
        log: a reader of its committed range.
        recovery_point: as recorded; None where it is not. What lies outside the log is taken for its nearer end,
            as a broker does.

    Raises:
        StorageError: the directory can't be read.
        CorruptBatchError: the last stable offset depends on a damaged batch.
    """
    segments = [each for each in list_readable_segments(log.directory) if each.base_offset <= log.log_end_offset]
    start, end = log.log_start_offset, log.log_end_offset
    recovered = start if recovery_point is None else min(max(recovery_point, start), end)
    wanted = {start, log.last_stable_offset, end, recovered}
    found = {offset: find_place(segments, offset) for offset in wanted}
    return LogOffsets(
        log_start_offset=found[start],
        last_stable_offset=found[log.last_stable_offset],
        high_watermark=found[end],
        log_end_offset=found[end],
        recovery_point=found[recovered],
    )


def find_place(segments: Sequence[SegmentFiles], offset: int) -> LogOffsetMetadata:
    """Return the place of the first batch that reaches an offset; it may be in a later segment than one would think."""
    first = floor_segment(segments, offset)
    for number in range(first or 0, len(segments)):
        position, is_found = _position(segments[number], offset)
        if is_found or number == len(segments) - 1:
            return LogOffsetMetadata(offset, segments[number].base_offset, position)
    return LogOffsetMetadata(offset, -1, -1)


def _position(segment: SegmentFiles, offset: int) -> tuple[int, bool]:
    """Return where the first batch that reaches an offset starts, or else where the batches end."""
    with SegmentReader(segment) as reader:
        try:
            for chunk in reader.chunks_from(offset, first_bytes=SEEK_BYTES):
                if (reaching := chunk.first_reaching(offset)) is not None:
                    return chunk.start_of(reaching), True
        except CorruptBatchError:
            return -1, True
        return reader.valid_bytes, False
