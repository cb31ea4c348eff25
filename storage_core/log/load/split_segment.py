"""Splits a segment whose offsets reach further above its base than an index entry can hold.

Old brokers could write such segments, mostly by merging compacted ones. The parts hold the same batches byte for byte,
as many each as fit. The first keeps the segment's own base, even where no batch fits it: so its name, and with it the
range that the parts stand for, covers the whole segment, and a start that finishes the replacement leaves nothing of
it. A broker names the first part after its first batch.

The parts replace the segment as cleaned segments do, and are then recovered like any other:

| killed | left on the disk | the next load |
|---|---|---|
| while parts are written | `.cleaned` files | drops them, splits again |
| while they become `.swap`, the last part first | both kinds | drops both, splits again |
| after that | `.swap` files, and the segment | drops the segment, gives the parts their names |

Source: Kafka LocalLog.splitOverflowedSegment, replaceSegments; KAFKA-6264.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparklog.storage_core.errors import CorruptBatchError, CorruptFileError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.log.files.names import CLEANED, LOG, SWAP, segment_file_name
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.load.finish_leftovers import finish_leftovers
from sparklog.storage_core.log.scan.segment_reader import BatchChunk, SegmentReader
from sparklog.storage_core.log_config import INT32_MAX
from sparklog.storage_core.record.batch_decode import decode_batches
from sparklog.storage_core.record.batch_probe import MAGIC_V2
from sparklog.storage_core.storage.copy_range import copy_range
from sparklog.storage_core.storage.local import storage_errors, sync_directory
from sparklog.storage_core.storage.open_regular import open_reader
from sparklog.storage_core.storage.owned_names import Owner, make_file, rename

__all__ = ["SplitPart", "plan_split", "split_segment"]


@dataclass(frozen=True, slots=True)
class SplitPart:
    """One of the segments that an overflowed one becomes.

    Attributes:
        base_offset: of the new segment.
        position: of its first batch in the old one.
        size_bytes: of its `.log`.
        next_offset: after its last batch; its base if it has none.
    """

    base_offset: int
    position: int
    size_bytes: int
    next_offset: int


def plan_split(files: SegmentFiles) -> list[SplitPart]:
    """Return the parts of a segment, in order; every byte of it is in one of them.

    Raises:
        CorruptFileError: the segment is damaged or torn, so that its parts are not known; or nothing of it overflows.
        StorageError: the disk refused.
    """
    starts, ends = [(files.base_offset, 0)], [files.base_offset]
    with SegmentReader(files) as reader:
        try:
            for chunk in reader.chunks():
                reader.check_crcs(chunk, chunk.scan)
                _add(starts, ends, chunk)
        except CorruptBatchError as error:
            raise CorruptFileError(f"an overflowed segment is damaged, and can't be split: {error}") from error
        if reader.valid_bytes != reader.size_bytes:
            what = f"file={files.log_path} position={reader.valid_bytes}"
            raise CorruptFileError(f"an overflowed segment is torn, and can't be split: {what}")
    if len(starts) == 1:
        raise CorruptFileError(f"a segment to split has no offset that its index can't hold: file={files.log_path}")
    positions = [*(position for _, position in starts), reader.size_bytes]
    return [
        SplitPart(base, position, following - position, end)
        for (base, position), following, end in zip(starts, positions[1:], ends, strict=True)
    ]


def split_segment(files: SegmentFiles, parts: Sequence[SplitPart], owner: Owner) -> None:
    """Replace a segment by its parts, durably. They have no indexes: the next loading of the log recovers them.

    Args:
        files: of the segment.
        parts: of `plan_split`.
        owner: its check raises once another one owns the log.

    Raises:
        StorageError: the disk refused; the next load finishes or undoes what was done.
    """
    directory = files.log_path.parent
    with storage_errors(files.log_path):
        paths = [directory / segment_file_name(part.base_offset, LOG + CLEANED) for part in parts]
        for path, part in zip(paths, parts, strict=True):
            _write(owner, files.log_path, path, part)
        sync_directory(directory)
        reach("split.written")
        for path in reversed(paths):
            rename(owner, path, path.with_suffix(SWAP))
        sync_directory(directory)
        reach("split.swapped")
    finish_leftovers(directory, owner)


def _add(starts: list[tuple[int, int]], ends: list[int], chunk: BatchChunk) -> None:
    """Go on with a chunk's batches: a new part starts with the first one that does not fit the last part."""
    scan, number = chunk.scan, 0
    while number < len(scan):
        overflows = scan.last_offset[number:] - starts[-1][0] > INT32_MAX
        fitting = int(np.argmax(overflows)) if overflows.any() else len(overflows)
        number += fitting
        if fitting:
            ends[-1] = int(scan.last_offset[number - 1]) + 1
        if number < len(scan):
            first = _first_offset(chunk, number)
            starts.append((first, chunk.start_of(number)))
            ends.append(first)


def _first_offset(chunk: BatchChunk, number: int) -> int:
    """Return the offset of a batch's first record; a wrapper of v0 or v1 must be opened for it."""
    if chunk.scan.magic[number] >= MAGIC_V2:
        return int(chunk.scan.base_offset[number])
    records = decode_batches(chunk.data, chunk.scan.take(slice(number, number + 1)))
    return int(records["offset"][0].as_py())


def _write(owner: Owner, source: Path, target: Path, part: SplitPart) -> None:
    """Write a part, durably; it is as old as the segment, whose age retention may need."""
    descriptor = make_file(owner, target)
    try:
        with open_reader(source) as reader:
            copy_range(reader.fileno(), part.position, descriptor, 0, part.size_bytes)
            times = os.fstat(reader.fileno())
        os.utime(descriptor, ns=(times.st_atime_ns, times.st_mtime_ns))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
