"""Crash recovery of one segment: truncates its `.log` at the first torn or invalid batch, and rebuilds its indexes.

`scan_segment` reads and decides, `recover_segment` carries out; in between nothing is kept on the disk, so a recovery
that was interrupted is simply run again. Every batch's length, CRC, offsets and markers are looked at; its records are
not decoded. The scan ends at the first batch that can't be right, and everything past it is truncated, as in Kafka.

A batch larger than a piece is read as a whole only after its CRC was found to be right, in pieces: a length that one
changed bit made huge costs no memory. No other process changes the segment meanwhile, so large pieces are mapped.

| what ends a scan                    | `kind`     | what goes                                |
|-------------------------------------|------------|------------------------------------------|
| fewer bytes than a batch announces  | `torn`     | these bytes                              |
| nothing but zeros                   | `zeros`    | the zeros                                |
| a length that no batch has          | `length`   | that batch and what follows              |
| a wrong CRC                         | `crc`      | that batch and what follows              |
| a marker that can't be read         | `marker`   | that batch and what follows              |
| an offset that an index can't hold  | `overflow` | nothing: the segment has to be split     |

No CRC covers base offsets. Where they go back, either of two batches may be the wrong one, and cutting would be a
guess: that is an error, and a repair's business. A broker does not notice, or empties the segment, or does not start.

Source: Kafka LogSegment.recover, LogLoader.recoverSegment.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.checkpoint.leader_epochs import assign_batch_epochs
from sparklog.storage_core.errors import CorruptBatchError, CorruptFileError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.index.index_builder import IndexBuilder
from sparklog.storage_core.index.transaction_index import AbortedTransaction, pack_transaction_entries
from sparklog.storage_core.log.files.names import CLEANED
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.producers.states import ProducerStates
from sparklog.storage_core.log.scan.segment_order import SegmentOrder
from sparklog.storage_core.log.scan.segment_reader import BatchChunk, SegmentReader, WalkFault
from sparklog.storage_core.log_config import INT32_MAX
from sparklog.storage_core.record.attributes import CONTROL_BIT
from sparklog.storage_core.record.batch_probe import FirstFields
from sparklog.storage_core.record.batch_scan import BatchScan, check_crcs
from sparklog.storage_core.record.control_records import NO_CONTROL_TYPE, control_types, coordinator_epochs
from sparklog.storage_core.storage.local import storage_errors, sync_directory, sync_files, write_all
from sparklog.storage_core.storage.open_regular import open_to_change, read_file
from sparklog.storage_core.storage.owned_names import Owner, make_file, rename
from sparklog.storage_core.storage.renew_files import unshare_file

__all__ = ["PIECE_BYTES", "ScanStop", "SegmentRecovery", "StopKind", "recover_segment", "scan_segment"]

PIECE_BYTES: Final = 2 << 20
"""Measured: smaller pieces cost calls, larger ones have left the processor's cache when their headers are unpacked."""

_MAPPED_BYTES: Final = 256 << 10
"""From so many bytes on a mapping costs less than a copy."""

StopKind: TypeAlias = Literal["torn", "zeros", "length", "crc", "marker", "overflow"]
"""What ended a scan; see the table above."""

_TEXTS: Final[dict[StopKind, str]] = {
    "torn": "fewer bytes than a batch announces",
    "zeros": "nothing but zeros",
    "length": "a length that no batch has",
    "crc": "wrong CRC",
    "marker": "a marker that can't be read",
    "overflow": "an offset that an index can't hold",
}


@dataclass(frozen=True, slots=True)
class ScanStop:
    """Why a scan ended before its file did.

    Attributes:
        kind: see the table of this module.
        position: in the `.log`, of the batch that can't be right.
        offset: the offset due there: the first one that is lost, unless nothing is.
        what: for people.
    """

    kind: StopKind
    position: int
    offset: int
    what: str

    @property
    def is_damage(self) -> bool:
        """Whether bytes were changed, not just cut off or never written."""
        return self.kind not in ("torn", "zeros", "overflow")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRecovery:
    """What a scan found, and what a recovery writes.

    Attributes:
        files: of the segment.
        size_bytes: of its `.log` when it was scanned.
        valid_bytes: of its `.log` that stay.
        next_offset: after the last batch that stays; the segment's base if none does.
        batch_count: batches that stay.
        max_timestamp: largest of them, ms; -1 none.
        offset_index, time_index, txn_index: whole content of these files.
        leader_epochs: of the log, those of this segment's batches included.
        stop: why the scan ended before the file did; None if all of it is sound.
    """

    files: SegmentFiles
    size_bytes: int
    valid_bytes: int
    next_offset: int
    batch_count: int
    max_timestamp: int
    offset_index: bytes
    time_index: bytes
    txn_index: bytes
    leader_epochs: tuple[tuple[int, int], ...]
    stop: ScanStop | None

    @property
    def cut_bytes(self) -> int:
        """How many bytes of the `.log` go."""
        return self.size_bytes - self.valid_bytes

    @property
    def is_overflowed(self) -> bool:
        """Whether the segment has to be split; then nothing of this may be written."""
        return self.stop is not None and self.stop.kind == "overflow"


def scan_segment(
    files: SegmentFiles,
    index_interval_bytes: int,
    producers: ProducerStates,
    leader_epochs: Sequence[tuple[int, int]] = (),
    piece_bytes: int = PIECE_BYTES,
) -> SegmentRecovery:
    """Return what a recovery makes of a segment; nothing is changed but `producers`.

    Args:
        files: of the segment.
        index_interval_bytes: Kafka's `index.interval.bytes`.
        producers: of the log as of the segment's base offset; afterwards, as of `next_offset`.
        leader_epochs: (epoch, start offset) entries of the log.
        piece_bytes: most that is read at once.

    Raises:
        CorruptBatchError: offsets go back, or lie below the segment's base; run a repair.
        CorruptFileError: the file is larger than any segment.
        StorageError: the disk refused.
    """
    with SegmentReader(files) as reader:
        known = _SegmentScan(reader, index_interval_bytes, producers, leader_epochs)
        if reader.size_bytes > INT32_MAX:
            raise CorruptFileError(f"segment is larger than any: file={files.log_path} size={reader.size_bytes}")
        return known.result(_scan(reader, known, piece_bytes))


def recover_segment(recovery: SegmentRecovery, owner: Owner) -> None:
    """Cut a segment's `.log` and replace its indexes, durably; files that are right already stay.

    The `.log` comes first: an index that is durable before its log can point into nothing. `.index` takes its name
    last: where it is missing a loader builds the indexes again, but it would believe one without its `.timeindex`.

    Args:
        recovery: of `scan_segment`, of the file as it still is.
        owner: its check raises once another one owns the log.

    Raises:
        CorruptFileError: the segment must be split, or its `.log` is no longer as it was scanned.
        StorageError: the disk refused; run it again.
    """
    path = recovery.files.log_path
    if recovery.is_overflowed:
        raise CorruptFileError(f"segment holds offsets that its index can't, it has to be split: file={path}")
    with storage_errors(path):
        _cut_log(recovery, owner)
        reach("recover.cut")
        _replace_indexes(recovery, owner)
        reach("recover.indexed")


class _SegmentScan:
    """What is known of the batches so far."""

    def __init__(
        self,
        reader: SegmentReader,
        index_interval_bytes: int,
        producers: ProducerStates,
        leader_epochs: Sequence[tuple[int, int]],
    ) -> None:
        self._reader = reader
        self._order = SegmentOrder(reader)
        self.valid_bytes = self.batch_count = 0
        self._max_timestamp = -1
        self._builder = IndexBuilder(reader.files.base_offset, index_interval_bytes)
        self._producers = producers
        self._epochs = list(leader_epochs)
        self._aborted: list[AbortedTransaction] = []

    def add(self, piece: BatchChunk) -> ScanStop | None:
        """Go on with the batches of a piece; return what ends the scan among them.

        Raises:
            CorruptBatchError: offsets go back.
        """
        good, kind = self._first_bad(piece)
        scan = piece.scan if kind is None else piece.scan.take(slice(0, good))
        unread = self._follow_producers(piece.data, scan)
        if unread is not None:
            scan, kind = scan.take(slice(0, unread)), "marker"
        if len(scan):
            self._builder.add(scan.position + piece.position, scan.last_offset, scan.max_timestamp)
            self._epochs = assign_batch_epochs(self._epochs, scan.leader_epoch, scan.base_offset)
            self._max_timestamp = max(self._max_timestamp, int(scan.max_timestamp.max()))
            self._order.previous = int(scan.last_offset[-1])
            self.valid_bytes = piece.end_of(len(scan) - 1)
            self.batch_count += len(scan)
        return None if kind is None else self.stop_here(kind)

    def stop_here(self, kind: StopKind) -> ScanStop:
        """Return a stop after the batches so far."""
        return ScanStop(kind, self.valid_bytes, self._order.previous + 1, _TEXTS[kind])

    def result(self, stop: ScanStop | None) -> SegmentRecovery:
        """Return the outcome."""
        built = self._builder.finish()
        return SegmentRecovery(
            files=self._reader.files,
            size_bytes=self._reader.size_bytes,
            valid_bytes=self.valid_bytes,
            next_offset=self._order.previous + 1,
            batch_count=self.batch_count,
            max_timestamp=self._max_timestamp,
            offset_index=built.offset_index,
            time_index=built.time_index,
            txn_index=pack_transaction_entries(self._aborted),
            leader_epochs=tuple(self._epochs),
            stop=stop,
        )

    def _first_bad(self, piece: BatchChunk) -> tuple[int, StopKind | None]:
        """Return how many batches come before the first that can't be right, and what is wrong with that."""
        scan, wrong = piece.scan, check_crcs(piece.data, piece.scan)
        count = int(wrong[0]) if len(wrong) else len(scan)
        going_back, overflowing = self._order.judge(scan, count)
        if going_back < count:
            what = f"offsets of a batch go back, run a repair: {self._order.describe(scan, going_back)}"
            raise self._reader.corrupt_batch(what, piece.start_of(going_back))
        if overflowing < count:
            return overflowing, "overflow"
        return count, "crc" if len(wrong) else None

    def _follow_producers(self, data: bytes | memoryview, scan: BatchScan) -> int | None:
        """Follow the batches up to a marker that can't be read; return its number."""
        unread = None
        try:
            types, epochs = _markers(data, scan)
        except CorruptBatchError as error:
            unread = int(np.searchsorted(scan.position, error.position))
            scan = scan.take(slice(0, unread))
            types, epochs = _markers(data, scan)
        self._aborted += self._producers.follow(scan, types, epochs)
        return unread


def _markers(data: bytes | memoryview, scan: BatchScan) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int32]]:
    """Return control types and coordinator epochs; cheap where there are no control batches."""
    if not ((scan.attributes & CONTROL_BIT) != 0).any():
        return np.full(len(scan), NO_CONTROL_TYPE, np.int16), np.full(len(scan), -1, np.int32)
    types = control_types(data, scan)
    return types, coordinator_epochs(data, scan, types)


def _scan(reader: SegmentReader, known: _SegmentScan, piece_bytes: int) -> ScanStop | None:
    """Follow a segment's batches to the first that can't be right, and return why the scan ended there."""
    read, fault_of_large = partial(_bytes_at, reader), partial(_fault_of_large, reader)
    for piece in reader.walk(0, piece_bytes, read=read, fault_of_large=fault_of_large):
        if (stop := known.add(piece)) is not None:
            return stop
        if piece.fault is not None:
            return known.stop_here(_exact_fault(reader, piece.fault, piece.position + piece.scan.valid_bytes))
    return None


def _bytes_at(reader: SegmentReader, position: int, size_bytes: int) -> bytes | memoryview:
    mapped = reader.map(position, size_bytes) if size_bytes >= _MAPPED_BYTES else None
    return reader.read(position, size_bytes) if mapped is None else mapped


def _fault_of_large(reader: SegmentReader, position: int, first: FirstFields) -> WalkFault | None:
    crc_at, at, update = first.crc
    stored, crc = int.from_bytes(reader.read(position + crc_at, 4), "big"), 0
    while at < first.size and (part := reader.read(position + at, min(first.size - at, PIECE_BYTES))):
        crc, at = update(part, crc), at + len(part)
    return None if crc == stored else "crc"


def _exact_fault(reader: SegmentReader, fault: WalkFault, position: int) -> WalkFault:
    if reader.ends_in_zeros(position):
        return "zeros"
    return "length" if fault == "torn" and reader.is_length_damaged(position) else fault


def _cut_log(recovery: SegmentRecovery, owner: Owner) -> None:
    """Cut the `.log` and fsync it: an unsynced cut can come undone under what is appended next.

    It is synced where nothing is cut too, because the indexes that follow are.
    """
    descriptor = open_to_change(recovery.files.log_path, os.O_RDWR)
    try:
        owner.check()
        size = os.fstat(descriptor).st_size
        if size not in (recovery.size_bytes, recovery.valid_bytes):
            raise CorruptFileError(
                f"segment changed since it was scanned: file={recovery.files.log_path} "
                f"size={size} scanned={recovery.size_bytes}"
            )
        if size != recovery.valid_bytes and not unshare_file(recovery.files.log_path, recovery.valid_bytes, owner):
            os.ftruncate(descriptor, recovery.valid_bytes)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace_indexes(recovery: SegmentRecovery, owner: Owner) -> None:
    files = recovery.files
    wanted = {
        files.time_index_path: recovery.time_index,
        files.txn_index_path: recovery.txn_index,
        files.index_path: recovery.offset_index,
    }
    if not recovery.txn_index and not files.txn_index_path.exists():
        del wanted[files.txn_index_path]
    changed = [path for path, content in wanted.items() if not path.exists() or read_file(path) != content]
    unchanged = [path for path in wanted if path not in changed]
    for path in changed:
        _write_unpublished(owner, path, wanted[path])
    if changed:
        for path in changed:
            rename(owner, path.with_name(path.name + CLEANED), path)
        sync_directory(files.log_path.parent)
    if unchanged:
        sync_files(unchanged)


def _write_unpublished(owner: Owner, path: Path, content: bytes) -> None:
    descriptor = make_file(owner, path.with_name(path.name + CLEANED))
    try:
        write_all(descriptor, content, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
