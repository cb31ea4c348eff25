"""Walks over one segment's batches, a chunk at a time, up to the first bytes that are none.

`SegmentReader.walk` is the one walk: recovery, verify, readers, cleaner and serving take from it. It
checks lengths; CRCs, order and records are for its callers. Two loops over headers stay apart, each with its reason:
`PartitionLog` for the few of one fetch, `append/state` for timestamps.

Bytes come by positioned reads, not through a mapping: the writer may cut uncommitted bytes from the active segment
while it is read, and a disk may fail. A mapping would kill the process where a read is short or raises.

Source: Kafka FileLogInputStream.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.index.index_search import ReadAt
from sparklog.storage_core.index.offset_index import OffsetIndex, find_offset_entry
from sparklog.storage_core.index.time_index import TimeIndex, find_time_entry
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log_config import INT32_MAX, INT64_MAX
from sparklog.storage_core.record.batch_probe import LOG_OVERHEAD_BYTES, UP_TO_MAGIC_BYTES, FirstFields, first_fields
from sparklog.storage_core.record.batch_scan import BatchScan, check_crcs, scan_batches
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, ByteSource
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.mapped_bytes import map_bytes
from sparklog.storage_core.storage.open_regular import open_to_read, read_if_there

__all__ = [
    "CHUNK_BYTES",
    "SEEK_BYTES",
    "BatchChunk",
    "SegmentReader",
    "WalkFault",
    "find_time",
]

CHUNK_BYTES: Final = 1 << 20
SEEK_BYTES: Final = 1 << 16
"""How much to read first where one record is looked for: what lies between two index entries is mostly less."""

_GROWTH: Final = 4
_FIRST: Final = slice(0, 1)
_LENGTH_BITS: Final = 31
_ZERO_CHUNK_BYTES: Final = 1 << 20

WalkFault: TypeAlias = Literal["torn", "zeros", "length", "crc"]
"""Why bytes are no batch: fewer than one announces; nothing but zeros; a length none has; the CRC of a large one."""


@dataclass(frozen=True, slots=True)
class BatchChunk:
    """Some batches of a segment, back to back.

    Attributes:
        data: their bytes, and possibly the start of a further one.
        position: of the first in the file.
        scan: their headers; positions count from the start of `data`.
        fault: why the bytes after them are no batch, if a walk ends there.
    """

    data: bytes | memoryview
    position: int
    scan: BatchScan
    fault: WalkFault | None = None

    def take(self, chosen: slice | npt.NDArray[np.bool_]) -> BatchChunk:
        """Return some of the batches."""
        return BatchChunk(self.data, self.position, self.scan.take(chosen))

    def start_of(self, number: int) -> int:
        """Return where a batch starts in the file."""
        return self.position + int(self.scan.position[number])

    def end_of(self, number: int) -> int:
        """Return where a batch ends in the file."""
        return self.start_of(number) + int(self.scan.size[number])

    def first_reaching(self, offset: int) -> int | None:
        """Return the number of the first batch whose header reaches an offset."""
        reaching = np.flatnonzero(self.scan.last_offset >= offset)
        return int(reaching[0]) if len(reaching) else None


class SegmentReader:
    """One open segment; a context manager.

    Attributes:
        files: of the segment.
        size_bytes: of its `.log` when it was opened.
        valid_bytes: where the batches met so far end.
        next_offset: after the last of them, by its header; the segment's base if there is none.

    Raises:
        StorageError: the file can't be opened; `__cause__` is a `FileNotFoundError` if it is gone.
    """

    def __init__(self, files: SegmentFiles) -> None:
        self.files = files
        with storage_errors(files.log_path):
            self._descriptor = open_to_read(files.log_path)
            self.size_bytes = os.fstat(self._descriptor).st_size
        self.valid_bytes, self.next_offset = 0, files.base_offset

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the descriptor of the `.log`; -1 once it is closed."""
        return self._descriptor

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def chunks(
        self, position: int = 0, chunk_bytes: int = CHUNK_BYTES, first_bytes: int = INT32_MAX
    ) -> Iterator[BatchChunk]:
        """Yield the batches from `position` on; `valid_bytes` and `next_offset` are afterwards where they end.

        A chunk is as large as `chunk_bytes`, or as its only batch.

        Args:
            position: of a batch.
            chunk_bytes: most that is read at once, unless a batch is larger.
            first_bytes: what to read first; then more and more up to `chunk_bytes`.

        Raises:
            CorruptBatchError: what follows the chunks yielded so far can't be a batch.
            StorageError: the disk refused.
        """
        self.valid_bytes, self.next_offset = position, self.files.base_offset
        for chunk in self.walk(position, chunk_bytes, first_bytes):
            if len(chunk.scan):
                self.next_offset = int(chunk.scan.last_offset[-1]) + 1
                yield chunk
            self.valid_bytes = chunk.position + chunk.scan.valid_bytes
            if chunk.fault == "length":
                raise self.corrupt_batch("batch length is below what any batch has", self.valid_bytes)

    def walk(
        self,
        position: int,
        chunk_bytes: int,
        first_bytes: int = INT32_MAX,
        *,
        read: Callable[[int, int], bytes | memoryview] | None = None,
        fault_of_large: Callable[[int, FirstFields], WalkFault | None] = lambda _position, _first: None,
    ) -> Iterator[BatchChunk]:
        """Yield what the bytes from `position` on are; the last chunk has a fault unless the file ends with it.

        Args:
            position, chunk_bytes, first_bytes: see `chunks`.
            read: how bytes are read; `self.read` if None.
            fault_of_large: why a batch that is larger than what was read must not be read as a whole, or None.

        Raises:
            StorageError: the disk refused.
        """
        largest = max(chunk_bytes, HEADER_BYTES)
        limit = wanted = min(max(first_bytes, HEADER_BYTES), largest)
        while (rest := self.size_bytes - position) > 0:
            data = (read or self.read)(position, min(wanted, rest))
            scan, fault = _scan(data)
            if fault is None and not scan.valid_bytes:
                first = first_fields(data)
                is_torn = first is None or not wanted < first.size <= rest  # or the file was cut meanwhile
                fault = "torn" if first is None or is_torn else fault_of_large(position, first)
                if fault is None and first is not None:
                    wanted = first.size
                    continue
            yield BatchChunk(data, position, scan, fault)
            if fault is not None:
                return
            position += scan.valid_bytes
            wanted = limit = min(limit * _GROWTH, largest)

    def chunks_from(
        self, offset: int, chunk_bytes: int = CHUNK_BYTES, first_bytes: int = INT32_MAX
    ) -> Iterator[BatchChunk]:
        """Yield the batches from one at or before that of `offset` on, as the offset index knows it.

        The index is only a hint: where it is missing, or does not lead to a sound batch at or before the offset, the
        segment's first batch is the first one.

        Raises:
            As `chunks`.
        """
        position = self._index_entry(offset)[1]
        if 0 < position < self.size_bytes:
            chunks = self.chunks(position, chunk_bytes, first_bytes)
            try:
                first = next(chunks, None)
            except CorruptBatchError:
                first = None
            if (
                first is not None
                and self._is_before(first, offset)
                and not len(check_crcs(first.data, first.scan.take(_FIRST)))
            ):
                yield first
                yield from chunks
                return
        yield from self.chunks(0, chunk_bytes, first_bytes)

    def last_chunks(self) -> Iterator[BatchChunk]:
        """Yield the batches at the end, from the last but one index entry on: so that the last one has one before it.

        Raises:
            As `chunks`.
        """
        return self.chunks_from(self._index_entry(INT64_MAX)[0] - 1)

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return bytes of the `.log`; fewer where it ends.

        Raises:
            StorageError: the disk refused.
        """
        parts = []
        with storage_errors(self.files.log_path):
            while size_bytes > 0 and (part := os.pread(self._descriptor, size_bytes, position)):
                parts.append(part)
                position, size_bytes = position + len(part), size_bytes - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def map(self, position: int, size_bytes: int) -> memoryview | None:
        """Return bytes of the `.log` without a copy, for a caller that no writer disturbs; see `map_bytes`."""
        return map_bytes(self._descriptor, position, size_bytes)

    def base_offset_at(self, position: int) -> int | None:
        """Return the base offset of the batch at a position; None where not even its first fields are left."""
        first = first_fields(self.read(position, UP_TO_MAGIC_BYTES)) if position < self.size_bytes else None
        return None if first is None else first.offset

    def sound_batch_at(self, position: int) -> BatchChunk | None:
        """Return the batch at a position, None where no batch with the right CRC lies.

        Raises:
            StorageError: the disk refused.
        """
        first = first_fields(self.read(position, UP_TO_MAGIC_BYTES)) if 0 <= position < self.size_bytes else None
        if first is None or not UP_TO_MAGIC_BYTES < first.size <= self.size_bytes - position:
            return None
        data = self.read(position, first.size)
        scan, fault = _scan(data)
        is_sound = fault is None and len(scan) and not len(check_crcs(data, scan))
        return BatchChunk(data, position, scan) if is_sound else None

    def is_batch_before(self, position: int, offset: int) -> bool:
        """Return whether a sound batch lies at a position, of an offset from the segment's base to the one given."""
        chunk = self.sound_batch_at(position)
        return chunk is not None and self._is_before(chunk, offset)

    def offset_index(self) -> OffsetIndex:
        """Return the offset index; one without entries if the file is missing."""
        return OffsetIndex(_read_index(self.files.index_path), self.files.base_offset)

    def time_index(self) -> TimeIndex:
        """Return the time index; one without entries if the file is missing."""
        return TimeIndex(_read_index(self.files.time_index_path), self.files.base_offset)

    def ends_in_zeros(self, position: int) -> bool:
        """Whether every byte from `position` on is zero: preallocated, or lost in a power cut."""
        while data := self.read(position, _ZERO_CHUNK_BYTES):
            if data.count(0) != len(data):
                return False
            position += len(data)
        return True

    def is_length_damaged(self, position: int) -> bool:
        """Whether a batch that announces more bytes than are left is sound with one other bit in its length.

        Then it is no torn tail: what follows that batch would be passed over. Every byte is read at most once.
        """
        head, rest = self.read(position, HEADER_BYTES), self.size_bytes - position
        first = first_fields(head)
        if first is None or rest <= UP_TO_MAGIC_BYTES:
            return False
        crc_at, at, update = first.crc
        stored, crc = int.from_bytes(head[crc_at : crc_at + 4], "big"), 0
        length = first.size - LOG_OVERHEAD_BYTES
        for size in sorted((length ^ (1 << bit)) + LOG_OVERHEAD_BYTES for bit in range(_LENGTH_BITS)):
            if not at < size <= rest:
                continue
            while at < size and (part := self.read(position + at, min(size - at, CHUNK_BYTES))):
                crc, at = update(part, crc), at + len(part)
            if crc == stored:
                return True
        return False

    def check_end(self) -> None:
        """Refuse a closed segment whose last bytes are no whole batch.

        Raises:
            CorruptBatchError: they are not.
        """
        if self.valid_bytes < self.size_bytes:
            raise self.corrupt_batch("closed segment ends inside a batch", self.valid_bytes)

    @contextmanager
    def errors_in(self, chunk: BatchChunk) -> Iterator[None]:
        """Name the file, and the position there, in an error about a chunk's bytes."""
        try:
            yield
        except CorruptBatchError as error:
            raise self.corrupt_batch(str(error.args[0]), chunk.position + error.position) from error

    def check_crcs(self, chunk: BatchChunk, scan: BatchScan) -> None:
        """Refuse damaged batches of a chunk.

        Raises:
            CorruptBatchError: the first of `scan` whose CRC is wrong.
        """
        bad = check_crcs(chunk.data, scan)
        if len(bad):
            raise self.wrong_crc(replace(chunk, scan=scan), int(bad[0]))

    def wrong_crc(self, chunk: BatchChunk, number: int) -> CorruptBatchError:
        """Return the error that names a batch of a chunk."""
        offsets = f"offsets={chunk.scan.base_offset[number]}..{chunk.scan.last_offset[number]}"
        return self.corrupt_batch(f"batch has a wrong CRC: {offsets}", chunk.start_of(number))

    def corrupt_batch(self, what: str, position: int) -> CorruptBatchError:
        """Return the error that names this file."""
        return CorruptBatchError(f"{what} file={self.files.log_path}", position)

    def _is_before(self, chunk: BatchChunk, offset: int) -> bool:
        """Whether the first batch of a chunk can be where an index entry leads to."""
        return self.files.base_offset <= int(chunk.scan.base_offset[0]) <= offset

    def _index_entry(self, offset: int) -> tuple[int, int]:
        """Return (offset, position) of the last index entry not above an offset, or (base offset, 0)."""
        base_offset = self.files.base_offset
        return _search(self.files.index_path, lambda read, size: find_offset_entry(read, size, base_offset, offset))


def find_time(files: SegmentFiles, timestamp: int) -> tuple[int, int]:
    """Return (timestamp, offset) of a segment's last time entry not above `timestamp`, or (-1, base offset)."""
    return _search(files.time_index_path, lambda read, size: find_time_entry(read, size, files.base_offset, timestamp))


def _scan(data: ByteSource) -> tuple[BatchScan, WalkFault | None]:
    """Return the batches before the first impossible length, and whether there is one."""
    try:
        return scan_batches(data), None
    except CorruptBatchError as error:
        return scan_batches(data, 0, error.position), "length"


def _read_index(path: Path) -> bytes:
    with storage_errors(path):
        return read_if_there(path) or b""


def _search(path: Path, find: Callable[[ReadAt, int], tuple[int, int]]) -> tuple[int, int]:
    """Look something up in an index file; a missing one has no entries."""
    with storage_errors(path):
        try:
            descriptor = open_to_read(path)
        except FileNotFoundError:
            return find(lambda _position, _size: b"", 0)
        try:
            size_bytes = os.fstat(descriptor).st_size
            return find(lambda position, size: os.pread(descriptor, size, position), size_bytes)
        finally:
            os.close(descriptor)
