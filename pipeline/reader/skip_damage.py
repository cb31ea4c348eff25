"""Skips damaged batches: finds the next offset where a read can continue (`failOnDataLoss=false`).

A damaged batch costs only its own records if its header shows its end, or if the offset index has an entry for a sound
batch after it. Otherwise the rest of its segment is lost.

A read starts at the index entry below its offset, which here lies in the damage. So the sound batch at the index entry
above is returned itself, and the read continues after it.

If the disk refuses, nothing is skipped: that is no damage, and the records may be whole.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sparklog.storage_core.errors import CorruptBatchError, LogStorageError, StorageError
from sparklog.storage_core.log.files.segments import floor_segment, list_readable_segments
from sparklog.storage_core.log.scan.log_walk import is_gone
from sparklog.storage_core.log.scan.segment_reader import BatchChunk, SegmentReader
from sparklog.storage_core.record.batch_probe import LOG_OVERHEAD_BYTES, MAGIC_V2, UP_TO_MAGIC_BYTES, first_fields

__all__ = ["Resumption", "check_place", "is_outage", "skip_batch", "skip_to_index"]


@dataclass(frozen=True, slots=True)
class Resumption:
    """The point where a read continues.

    Attributes:
        next_offset: all offsets below are skipped,
        batch: except those of this sound batch, if any.
    """

    next_offset: int
    batch: BatchChunk | None = None


_Finder = Callable[[SegmentReader, int, int], Resumption | None]


def is_outage(error: LogStorageError) -> bool:
    """Whether the disk refused. A missing file is a loss, as long as the log's directory can be listed."""
    return isinstance(error, StorageError) and not is_gone(error)


def skip_batch(directory: Path, offset: int, end_offset: int) -> Resumption:
    """Continue after the batch that holds `offset`, if its header is plausible.

    Otherwise as `skip_to_index`.

    Args:
        offset: the first unreadable one.
        end_offset: above the last wanted one.

    Returns:
        an offset above `offset`, at most `end_offset`; and maybe a batch that ends below it, and above `offset`.

    Raises:
        StorageError: the log's directory can't be listed, or the disk refuses the segment.
    """
    return _find(directory, offset, end_offset, [_after_batch, _after_indexed_batch])


def skip_to_index(directory: Path, offset: int, end_offset: int) -> Resumption:
    """Continue after the next sound batch that the offset index has an entry for, or at the next segment.

    A read from there does not touch the damage. Arguments, result and errors as of `skip_batch`.
    """
    return _find(directory, offset, end_offset, [_after_indexed_batch])


def check_place(directory: Path, offset: int, last_offset: int) -> None:
    """Refuse records whose last batch overlaps the next batch.

    The CRC does not cover base offsets, so a wrong one shows only there. Which of the two batches is wrong is unknown,
    unless the index also has the first one's last offset.

    Args:
        offset: start of the read.

    Raises:
        CorruptBatchError: the batches overlap.
        StorageError: the disk refused.
    """
    segments = list_readable_segments(directory)
    last = floor_segment(segments, last_offset)
    if last is None:
        return
    following = [*(each.base_offset for each in segments[1:]), None]
    # A wrong offset may belong to a later segment than the one that it was read from.
    for number in range(floor_segment(segments, offset) or 0, last + 1):
        with SegmentReader(segments[number]) as reader:
            _check_follower(reader, (offset, last_offset), following[number])


def _check_follower(reader: SegmentReader, offsets: tuple[int, int], next_segment: int | None) -> None:
    found = _holder(reader, *offsets)
    if found is None:
        return
    chunk, number = found
    last_offset, position = int(chunk.scan.last_offset[number]), chunk.start_of(number)
    following = _next_base_offset(reader, chunk, number)
    following = next_segment if following is None else following
    if following is None or following > last_offset:
        return
    index = reader.offset_index()
    if not ((index.offsets == last_offset) & (index.positions == position)).any():
        what = f"batch overlaps the next one: last_offset={last_offset} next={following}"
        raise reader.corrupt_batch(what, position)


def _find(directory: Path, offset: int, end_offset: int, finders: Sequence[_Finder]) -> Resumption:
    segments = list_readable_segments(directory)
    following = next((each.base_offset for each in segments if each.base_offset > offset), end_offset)
    limit = min(following, end_offset)
    number = floor_segment(segments, offset)
    if number is None:
        return Resumption(limit)
    try:
        with SegmentReader(segments[number]) as reader:
            found = (find(reader, offset, limit) for find in finders)
            return next((each for each in found if each is not None), Resumption(limit))
    except LogStorageError as error:
        if is_outage(error):
            raise
        return Resumption(limit)


def _after_batch(reader: SegmentReader, offset: int, limit: int) -> Resumption | None:
    """Continue after the batch that holds `offset`, if its header and those before are plausible.

    Its header is trusted only up to the next batch's base offset.
    """
    found = _holder(reader, offset, offset)
    if found is None:
        return None
    chunk, number = found
    end = int(chunk.scan.last_offset[number]) + 1
    base_offset = _next_base_offset(reader, chunk, number)
    following = end if base_offset is None else min(end, base_offset)
    return Resumption(following) if offset < following <= limit else None


def _holder(reader: SegmentReader, start: int, offset: int) -> tuple[BatchChunk, int] | None:
    """Return the first batch, from that of `start` on, that ends at `offset` or above: its chunk and number there."""
    with suppress(CorruptBatchError):
        for chunk in reader.chunks_from(start):
            if (holder := chunk.first_reaching(offset)) is not None:
                return chunk, holder
    return None


def _next_base_offset(reader: SegmentReader, chunk: BatchChunk, number: int) -> int | None:
    """Return the base offset of the batch after one of a chunk; None if nothing or zeros follow."""
    first = first_fields(reader.read(chunk.end_of(number), UP_TO_MAGIC_BYTES))
    return None if first is None or first.size <= LOG_OVERHEAD_BYTES else first.offset


def _after_indexed_batch(reader: SegmentReader, offset: int, limit: int) -> Resumption | None:
    """Continue after the first sound batch that ends above `offset` and that the offset index has an entry for.

    The CRC does not cover base offsets. So the batch itself is returned only if the index has its last offset; an entry
    may also be for several batches that were appended at once.
    """
    index = reader.offset_index()
    above = (index.offsets > offset) & (index.offsets < limit)
    for last_offset, position in zip(index.offsets[above].tolist(), index.positions[above].tolist(), strict=True):
        batch = reader.sound_batch_at(position)
        if batch is not None:
            is_known = batch.scan.magic[0] >= MAGIC_V2 and batch.scan.last_offset[0] == last_offset
            return Resumption(int(last_offset) + 1, batch if is_known else None)
    return None
