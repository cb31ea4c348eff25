"""Where reading can go on behind what can't be read.

A damaged batch costs its own records, as long as its header tells where it ends, or the offset index knows a sound
batch behind it. Otherwise the rest of its segment is lost.

Reading from an offset starts at the index entry in front of it, which is amid the damage. So the sound batch that the
index leads to is handed out as it is, and reading goes on behind it.

An outage is no damage: where the disk refuses, nothing is skipped, for what is there now may be whole.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparklog.storage_core.errors import CorruptBatchError, LogStorageError, StorageError
from sparklog.storage_core.log.files.segments import floor_segment, list_readable_segments
from sparklog.storage_core.log.scan.log_walk import is_gone
from sparklog.storage_core.log.scan.segment_reader import BatchChunk, SegmentReader
from sparklog.storage_core.record.batch_probe import LOG_OVERHEAD_BYTES, MAGIC_V2, UP_TO_MAGIC_BYTES, first_fields

__all__ = ["Resumption", "check_place", "is_outage", "skip_batch", "skip_to_index"]


@dataclass(frozen=True, slots=True)
class Resumption:
    """Where reading goes on.

    Attributes:
        next_offset: what lies in front of it is skipped.
        batch: but for this sound one, if there is one.
    """

    next_offset: int
    batch: BatchChunk | None = None


_Finder = Callable[[SegmentReader, int, int], Resumption | None]


def is_outage(error: LogStorageError) -> bool:
    """Whether the disk refused; a file that is gone is a loss, as long as the log's directory can be listed."""
    return isinstance(error, StorageError) and not is_gone(error)


def skip_batch(directory: Path, offset: int, end_offset: int) -> Resumption:
    """Return to go on behind the batch that holds `offset`, as far as its header can be believed.

    Otherwise the same as `skip_to_index`.

    Args:
        directory: of the log.
        offset: the first that could not be read.
        end_offset: behind the last that is wanted.

    Returns:
        an offset above `offset`, `end_offset` at most; a batch that ends in front of it, and above `offset`.

    Raises:
        StorageError: the log's directory can't be listed, or the disk refuses the segment.
    """
    return _find(directory, offset, end_offset, [_behind_batch, _behind_indexed_batch])


def skip_to_index(directory: Path, offset: int, end_offset: int) -> Resumption:
    """Return to go on behind the next sound batch that the offset index leads to, or with the next segment.

    A reader that starts there does not meet what lies in front. Arguments, result and errors as of `skip_batch`.
    """
    return _find(directory, offset, end_offset, [_behind_indexed_batch])


def check_place(directory: Path, offset: int, last_offset: int) -> None:
    """Refuse records whose last batch reaches into the one behind it.

    Base offsets are outside the CRC, so a wrong one shows only there. Which of the two is wrong nobody knows, unless
    the index names the first one's last offset, too.

    Args:
        directory: of the log.
        offset: from which on the records were read.
        last_offset: of the records.

    Raises:
        CorruptBatchError: the two contradict each other.
        StorageError: the disk refused.
    """
    segments = list_readable_segments(directory)
    last = floor_segment(segments, last_offset)
    if last is None:
        return
    following = [*(each.base_offset for each in segments[1:]), None]
    # A wrong offset may look like one of a later segment than the one that it was read from.
    for number in range(floor_segment(segments, offset) or 0, last + 1):
        with SegmentReader(segments[number]) as reader:
            _check_follower(reader, (offset, last_offset), following[number])


def _check_follower(reader: SegmentReader, offsets: tuple[int, int], next_segment: int | None) -> None:
    found = _holder(reader, *offsets)
    if found is None:
        return
    chunk, number = found
    last_offset, position = int(chunk.scan.last_offset[number]), chunk.position + int(chunk.scan.position[number])
    behind = _base_offset_behind(reader, chunk, number)
    following = next_segment if behind is None else behind
    if following is None or following > last_offset:
        return
    index = reader.offset_index()
    if not ((index.offsets == last_offset) & (index.positions == position)).any():
        what = f"batch does not end in front of the next one: last_offset={last_offset} next={following}"
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


def _behind_batch(reader: SegmentReader, offset: int, limit: int) -> Resumption | None:
    """Return to go on behind the batch that holds `offset`, if headers up to there, and its own, make sense.

    Its header is not trusted beyond the next one's base offset.
    """
    found = _holder(reader, offset, offset)
    if found is None:
        return None
    chunk, number = found
    behind = int(chunk.scan.last_offset[number]) + 1
    base_offset = _base_offset_behind(reader, chunk, number)
    following = behind if base_offset is None else min(behind, base_offset)
    return Resumption(following) if offset < following <= limit else None


def _holder(reader: SegmentReader, start: int, offset: int) -> tuple[BatchChunk, int] | None:
    """Return the first batch from that of `start` on that says it reaches `offset`: a chunk, and its number there."""
    with suppress(CorruptBatchError):
        for chunk in reader.chunks_from(start):
            holders = np.flatnonzero(chunk.scan.last_offset >= offset)
            if len(holders):
                return chunk, int(holders[0])
    return None


def _base_offset_behind(reader: SegmentReader, chunk: BatchChunk, number: int) -> int | None:
    """Return the base offset of the batch behind one of a chunk; None where nothing follows, or zeros."""
    position = chunk.position + int(chunk.scan.position[number] + chunk.scan.size[number])
    first = first_fields(reader.read(position, UP_TO_MAGIC_BYTES))
    return None if first is None or first.size <= LOG_OVERHEAD_BYTES else first.offset


def _behind_indexed_batch(reader: SegmentReader, offset: int, limit: int) -> Resumption | None:
    """Return to go on behind the first sound batch that ends above `offset` and that the offset index leads to.

    Base offsets are outside the CRC. So the batch itself counts only if the index knows its last offset, too; an entry
    may also stand for several batches that were appended at once.
    """
    index = reader.offset_index()
    above = (index.offsets > offset) & (index.offsets < limit)
    for last_offset, position in zip(index.offsets[above].tolist(), index.positions[above].tolist(), strict=True):
        batch = reader.sound_batch_at(position)
        if batch is not None:
            is_known = batch.scan.magic[0] >= MAGIC_V2 and batch.scan.last_offset[0] == last_offset
            return Resumption(int(last_offset) + 1, batch if is_known else None)
    return None
