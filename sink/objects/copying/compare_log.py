"""Compares a log of a store of a machine with its copy in a store of objects: what has to be copied, and what can stay.

An extent stays if its checksum is that of the log's batches of the same offsets. Sizes, CRCs and offsets are in it, and
leader epochs are compared, so a log that was compacted since has other extents where records went, and only there.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from sparklog.sink.ledger.rows import LogState
from sparklog.sink.objects.extents import Extent, checksum_of, hash_batches
from sparklog.storage_core.errors import UnsupportedFormatError
from sparklog.storage_core.log.scan.log_walk import LogWalk, SegmentList
from sparklog.storage_core.log.scan.segment_reader import BatchChunk
from sparklog.storage_core.log_config import INT32_MAX
from sparklog.storage_core.record.batch_probe import MAGIC_V2
from sparklog.storage_core.record.batch_scan import BatchScan, scan_batches
from sparklog.storage_core.record.v2.empty_batch import pack_empty_batch

__all__ = ["PART_BYTES", "LogDifference", "LogPart", "LogToCopy", "SourceBatches", "compare_log", "read_part"]

PART_BYTES: Final = 256 << 20
"""About the most bytes of an object of a copy."""


@dataclass(frozen=True, slots=True)
class LogToCopy:
    """A log of a store of a machine.

    Attributes:
        state: its ledger row; what lies above its end is not committed.
    """

    directory: Path
    state: LogState


@dataclass(frozen=True, slots=True)
class SourceBatches:
    """Some batches of a log, back to back.

    Attributes:
        data: their bytes.
        scan: (b,) their headers.
        begins_segment: whether they are the first ones of a segment.
    """

    data: npt.NDArray[np.uint8]
    scan: BatchScan
    begins_segment: bool


@dataclass(frozen=True, slots=True)
class LogPart:
    """Batches of a log that its copy lacks: those of [start, end)."""

    start_offset: int
    end_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LogDifference:
    """What a copy of a log lacks.

    Attributes:
        held: extents of the copy, by offset.
        gaps: parts in order, and the extents whose place they take, for each run between extents that stay.
    """

    source: LogToCopy
    held: tuple[Extent, ...]
    gaps: tuple[tuple[tuple[LogPart, ...], tuple[Extent, ...]], ...]

    @property
    def missing_bytes(self) -> int:
        """Of batches to copy."""
        return sum(part.size_bytes for parts, _ in self.gaps for part in parts)

    @property
    def kept_bytes(self) -> int:
        """Of extents that stay."""
        return sum(each.size_bytes for each in self.held) - sum(each.size_bytes for _, old in self.gaps for each in old)


def compare_log(
    source: LogToCopy, held: Sequence[Extent], is_there: Callable[[Extent], bool] = lambda _extent: True
) -> LogDifference:
    """Read a log's headers, and return what its copy lacks.

    Args:
        held: extents of the copy, by offset.
        is_there: whether the copy still has the object of an extent.

    Raises:
        UnsupportedFormatError: a batch is of format v0 or v1.
        CorruptBatchError, CorruptFileError, OffsetOutOfRangeError, StorageError: the log can't be read.
    """
    start_offset, end_offset = source.state.log_start_offset, source.state.log_end_offset
    bases = np.array([each.base_offset for each in held], np.int64)
    ends = np.array([*(each.end_offset for each in held), -1], np.int64)  # the last one: before all extents
    hashed, is_other = [blake2b(digest_size=8) for _ in held], np.zeros(len(held), np.bool_)
    pieces: list[tuple[int, LogPart]] = []
    for each in read_part(source, start_offset, end_offset, check_crcs=False):
        scan = each.scan
        extent = np.searchsorted(bases, scan.base_offset, side="right") - 1
        extent[scan.base_offset >= ends[extent]] = -1
        cuts = [0, *(np.flatnonzero(np.diff(extent)) + 1).tolist(), len(scan)]
        for first, last in pairwise(cuts):
            number, mine = int(extent[first]), scan.take(slice(first, last))
            if number >= 0:
                hash_batches(hashed[number], mine.base_offset, mine)
                is_other[number] |= bool((mine.leader_epoch != held[number].leader_epoch).any())
                is_other[number] |= bool(mine.last_offset[-1] >= ends[number])
            part = LogPart(int(mine.base_offset[0]), int(mine.last_offset[-1]) + 1, int(mine.size.sum()))
            if pieces and pieces[-1][0] == number and pieces[-1][1].size_bytes < PART_BYTES:
                part = _joined(pieces.pop()[1], part)
            pieces.append((number, part))
    stays = [
        not other and each.checksum != 0 and each.checksum == checksum_of(digest) and is_there(each)
        for each, digest, other in zip(held, hashed, is_other, strict=True)
    ]
    return LogDifference(source, tuple(held), tuple(_gaps(held, stays, pieces)))


def read_part(
    source: LogToCopy, start_offset: int, end_offset: int, *, check_crcs: bool = True
) -> Iterator[SourceBatches]:
    """Yield the batches of a log that hold offsets of [start, end).

    If the log ends above its last batch, as after a repair, an empty batch stands for the offsets between.

    Raises:
        As `compare_log`.
    """
    log_end_offset, reached = source.state.log_end_offset, start_offset
    segment: Path | None = None
    walk = LogWalk(SegmentList(source.directory, log_end_offset), start_offset, end_offset)
    for reader, chunk in walk.chunks():
        if (chunk.scan.magic != MAGIC_V2).any():
            raise UnsupportedFormatError(
                f"a store of objects takes format v2 alone: convert the log first: file={reader.files.log_path}"
            )
        if check_crcs:
            reader.check_crcs(chunk, chunk.scan)
        reached = int(chunk.scan.last_offset[-1]) + 1
        yield SourceBatches(_bytes_of(chunk), chunk.scan, reader.files.log_path != segment)
        segment = reader.files.log_path
    if end_offset == log_end_offset and reached < end_offset:
        first = max(reached, end_offset - 1 - INT32_MAX)
        data = pack_empty_batch(first, end_offset - 1, source.state.leader_epoch)
        yield SourceBatches(np.frombuffer(data, np.uint8), scan_batches(data), begins_segment=True)


def _bytes_of(chunk: BatchChunk) -> npt.NDArray[np.uint8]:
    first, last = int(chunk.scan.position[0]), int(chunk.scan.position[-1] + chunk.scan.size[-1])
    return np.frombuffer(chunk.data, np.uint8)[first:last]


def _joined(first: LogPart, second: LogPart) -> LogPart:
    return LogPart(first.start_offset, second.end_offset, first.size_bytes + second.size_bytes)


def _gaps(
    held: Sequence[Extent], stays: Sequence[bool], pieces: Sequence[tuple[int, LogPart]]
) -> Iterator[tuple[tuple[LogPart, ...], tuple[Extent, ...]]]:
    """Yield what lies between extents that stay: parts to copy, and extents that go."""
    kept = [number for number, stay in enumerate(stays) if stay]
    are_kept, position = set(kept), 0
    for before, after in zip([-1, *kept], [*kept, len(held)], strict=True):
        parts: list[LogPart] = []
        while position < len(pieces) and pieces[position][0] not in are_kept:
            piece = pieces[position][1]
            position += 1
            if parts and parts[-1].size_bytes < PART_BYTES:
                piece = _joined(parts.pop(), piece)
            parts.append(piece)
        while position < len(pieces) and pieces[position][0] == after:
            position += 1
        old = held[before + 1 : after]
        if parts or old:
            yield tuple(parts), tuple(old)
