"""Serves a log's batches to a socket without a byte of them passing through Python.

What a fetch gets is whole batches, as they lie on the disk: from the one that holds the offset asked for, up to so many
bytes, never past the log's committed end, and from one segment at a time. Where they start and end is found in the
offset index and the headers after its entry; the bytes go from the page cache to the socket inside the kernel. Batches
between are not looked at: a damaged one goes out as it lies, as in Kafka, and the consumer's check of its CRC finds it.
No verb calls it yet.

Source: Kafka UnifiedLog.read, LogSegment.read, FileRecords.writeTo.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypeAlias

import numpy as np

from sparklog.storage_core.errors import CorruptBatchError, CorruptFileError, OffsetOutOfRangeError, StorageError
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.log.scan.log_walk import RELISTINGS, SegmentList, is_gone
from sparklog.storage_core.log.scan.segment_reader import SegmentReader
from sparklog.storage_core.record.batch_probe import LOG_OVERHEAD_BYTES, MAGIC_V2
from sparklog.storage_core.record.scan_kernels import MIN_BATCH_BYTES
from sparklog.storage_core.record.v2.batch_header import OFFSETS_HEAD
from sparklog.storage_core.storage.local import storage_errors

__all__ = ["LogSlice", "PartitionLog", "SendResult"]

_SCAN_BYTES: Final = 64 << 10
_BLOCK_BYTES: Final = 4096
_SHORT_WAY_BYTES: Final = 256 << 10
_LONGEST_SEND_BYTES: Final = 1 << 30

_Placed: TypeAlias = tuple[int, int, int]
"""Position, next offset and size of a batch."""


@dataclass(frozen=True, slots=True)
class SendResult:
    """What went out.

    Attributes:
        bytes_sent: of whole batches.
        next_offset: to ask for next; after the last batch sent.
    """

    bytes_sent: int
    next_offset: int


class PartitionLog:
    """The batches of one log, up to the end that its reader has; a context manager.

    The segment served last stays open, so that one consumer's fetches, which follow each other, find it open. One
    thread at a time.

    Args:
        reader: has the log's directory, start and end.
    """

    def __init__(self, reader: LogReader) -> None:
        self.directory: Path = reader.directory
        self.log_start_offset = reader.log_start_offset
        self.log_end_offset = reader.log_end_offset
        self._segments = SegmentList(self.directory, self.log_end_offset)
        self._open: _OpenSegment | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the open segment."""
        if self._open is not None:
            self._open.reader.close()
            self._open = None

    def send_to(self, peer: socket.socket, offset: int, max_bytes: int) -> SendResult:
        """Send whole batches, beginning with the one that holds `offset`.

        At least one batch is sent, even if it is larger than `max_bytes`; nothing at the log's end. The first batch may
        begin below the offset, as in Kafka. A socket that takes no more is waited for, a non-blocking one too; an event
        loop calls `slice` and sends as the socket can.

        Args:
            peer: a connected stream socket; its timeout holds for each wait.
            offset: from log start to log end.
            max_bytes: most bytes to send.

        Raises:
            OffsetOutOfRangeError: the offset is outside the log, or retention removed it.
            CorruptBatchError: the batch can't be found, because one before it is damaged.
            CorruptFileError: the segment was cut while it was sent.
            StorageError: the disk refused.
            OSError: the peer is gone, or took nothing for longer than the socket's timeout.
        """
        chosen = self.slice(offset, max_bytes)
        while chosen.remaining_bytes:
            if chosen.send_some(peer) == 0:
                _wait_until_writable(peer)
        return SendResult(chosen.size_bytes, chosen.next_offset)

    def slice(self, offset: int, max_bytes: int) -> LogSlice:
        """Return what `send_to` would send; nothing is read but headers.

        To be sent before this log's next call: that may close the segment, and the rest can't be sent any more.

        Raises:
            As `send_to`, but for the peer's errors.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} is outside {self.log_start_offset}..{self.log_end_offset}: log={self.directory}"
            )
        for _ in range(RELISTINGS):
            try:
                return self._find(offset, max_bytes)
            except StorageError as error:
                if not is_gone(error):
                    raise
                self.close()  # the open segment may be the one that took the other's records
                self._segments.list_again()
        return self._find(offset, max_bytes)

    def _find(self, offset: int, max_bytes: int) -> LogSlice:
        following = self._segments.files[self._segments.number_of(offset) :] if offset < self.log_end_offset else []
        for files in following:
            segment = self._opened(files)
            found = segment.find(offset)
            if found is None or found[1] > self.log_end_offset:
                continue
            end, next_offset = segment.end_of_slice(found, max_bytes, self.log_end_offset)
            return LogSlice(segment, found[0], end - found[0], next_offset)
        return LogSlice(None, 0, 0, self.log_end_offset)

    def _opened(self, files: SegmentFiles) -> _OpenSegment:
        if self._open is None or self._open.reader.files != files:
            self.close()
            self._open = _OpenSegment(files)
        return self._open


class LogSlice:
    """Whole batches of one segment, on their way to a socket.

    Attributes:
        size_bytes: of all of them.
        next_offset: after the last batch.
    """

    def __init__(self, segment: _OpenSegment | None, position: int, size_bytes: int, next_offset: int) -> None:
        self._segment = segment
        self._position = position
        self._end = position + size_bytes
        self.size_bytes = size_bytes
        self.next_offset = next_offset

    @property
    def remaining_bytes(self) -> int:
        """What is still to be sent."""
        return self._end - self._position

    def send_some(self, peer: socket.socket) -> int:
        """Send what the socket takes at once, and return how much that was: 0 if it would block, or nothing is left.

        Raises:
            CorruptFileError: the file is shorter than it was.
            StorageError: the disk refused.
            ConnectionError: the peer is gone.
        """
        segment = self._segment
        if segment is None or not self.remaining_bytes:
            return 0
        path, size = segment.reader.files.log_path, min(self.remaining_bytes, _LONGEST_SEND_BYTES)
        if segment.reader.fileno() < 0:
            raise StorageError(f"segment was closed before all of a slice was sent: path={path}")
        try:
            sent = os.sendfile(peer.fileno(), segment.reader.fileno(), self._position, size)
        except BlockingIOError:
            return 0
        except ConnectionError:
            raise
        except OSError:
            with storage_errors(path):
                raise
        if sent == 0:
            raise CorruptFileError(f"segment was cut while it was sent: file={path} position={self._position}")
        self._position += sent
        return sent


class _OpenSegment:
    """One open segment, and its offset index."""

    def __init__(self, files: SegmentFiles) -> None:
        self._followed = (-1, 0)  # where the last slice ended: next offset and position
        self.reader = SegmentReader(files)
        try:
            self._index = self.reader.offset_index()
        except BaseException:
            self.reader.close()
            raise

    def find(self, offset: int) -> _Placed | None:
        """Return the batch that holds `offset`, or the first one above it."""
        if self._followed[0] == offset:
            following = next(self._near(self._followed[1]), None)
            if following is not None and following[1] > offset:
                return following
        position = self._index.lookup(offset)[1]
        if position and not self.reader.is_batch_before(position, offset):  # index and base offsets may be wrong
            position = 0
        return next((each for each in self._far(position) if each[1] > offset), None)

    def end_of_slice(self, first: _Placed, max_bytes: int, end_offset: int) -> tuple[int, int]:
        """Return where the last whole batch within `max_bytes` and below `end_offset` ends, and its next offset.

        The index leads there: of the entries within reach the last but one, whose batch ends before the last one's
        starts. It is only a hint: where the batches from the one do not lead to the other, they are followed from the
        first. The first batch is always in the slice.
        """
        limit = min(first[0] + max_bytes, self.reader.size_bytes)
        end, next_offset = first[0] + first[2], first[1]
        hint = self._last_indexed(first[0], limit, end_offset)
        is_met = False
        if hint is not None and limit - hint[0] <= _SHORT_WAY_BYTES:
            end, next_offset, is_met = self._follow(self._near(hint[0]), first, limit, end_offset, hint[1])
        if not is_met:
            end, next_offset, _ = self._follow(self._far(first[0]), first, limit, end_offset, first[0])
        self._followed = (next_offset, end)
        return end, next_offset

    def _follow(
        self, batches: Iterator[_Placed], first: _Placed, limit: int, end_offset: int, mark: int
    ) -> tuple[int, int, bool]:
        """Follow batches as far as they belong to a slice; return its end, and whether a batch starts at `mark`.

        Base offsets are outside the CRC: a slice ends before a batch that ends below the one before it, or the consumer
        would ask for the same again. This is laxer than `SegmentOrder`: bytes go out as they lie, as in Kafka, and a
        reader of their records checks more.
        """
        start, next_offset, size = first
        end, is_met = start + size, False
        try:
            for at, following, size in batches:
                is_met = is_met or at == mark
                if at + size > limit or following > end_offset or (at > start and following <= next_offset):
                    break
                end, next_offset = at + size, following
        except CorruptBatchError:
            pass  # batches before the damage are served; a fetch from there on raises
        return end, next_offset, is_met

    def _last_indexed(self, start: int, limit: int, end_offset: int) -> tuple[int, int] | None:
        """Return the positions of the last two entries between a slice's start and its limit."""
        index = self._index
        reachable = min(np.searchsorted(index.positions, limit, "right"), np.searchsorted(index.offsets, end_offset))
        if reachable < 2:
            return None
        position, mark = index.positions[reachable - 2 : reachable].tolist()
        return (position, mark) if start < position < mark <= limit else None

    def _near(self, position: int) -> Iterator[_Placed]:
        """Yield batches from `position` on, by their headers alone, a few at a time: for short ways.

        Apart from `SegmentReader.walk`: with columns for a handful of headers a fetch takes five times as long.
        """
        while position < self.reader.size_bytes:
            block = self.reader.read(position, _BLOCK_BYTES)
            if position + len(block) >= self.reader.size_bytes:
                block += bytes(1)  # the smallest entry of v0 is one byte shorter than what is looked at
            at = 0
            while len(block) - at >= OFFSETS_HEAD.size:
                offset, length, magic, last_offset_delta = OFFSETS_HEAD.unpack_from(block, at)
                size = LOG_OVERHEAD_BYTES + length
                if size < MIN_BATCH_BYTES or position + at + size > self.reader.size_bytes:
                    return
                yield position + at, offset + 1 + (last_offset_delta if magic >= MAGIC_V2 else 0), size
                at += size
            if at == 0:
                return
            position += at

    def _far(self, position: int) -> Iterator[_Placed]:
        """Yield batches from `position` on, scanned many at a time: for long ways.

        Raises:
            CorruptBatchError: what follows those yielded can't be a batch.
        """
        for chunk in self.reader.chunks(position, _SCAN_BYTES):
            scan = chunk.scan
            nexts = [last + 1 for last in scan.last_offset.tolist()]  # as `_near`: may be above the largest number
            yield from zip((chunk.position + scan.position).tolist(), nexts, scan.size.tolist(), strict=True)


def _wait_until_writable(peer: socket.socket) -> None:
    """Wait for room in the socket, not longer than its own timeout.

    Raises:
        TimeoutError: there is none.
    """
    poll = select.poll()
    poll.register(peer, select.POLLOUT)
    timeout = peer.gettimeout()
    if not poll.poll(timeout * 1000 if timeout else None):
        raise TimeoutError("the peer took no more bytes")
