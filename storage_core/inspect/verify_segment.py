"""Checks every byte of one segment's `.log`.

What covers which byte: the CRC everything from the attributes on; the walk from batch to batch the length; the check of
the magic number itself; `OffsetWalk` the base offset; `EpochCheck` the leader epoch. Behind damage the next sound batch
is searched, so that one changed byte is one finding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from storage_core.errors import CorruptBatchError, StorageError, UnsupportedFormatError
from storage_core.inspect.epoch_check import EpochCheck
from storage_core.inspect.findings import Finding, LogReport
from storage_core.inspect.offset_walk import OffsetWalk
from storage_core.inspect.resync import LARGEST_BATCH_BYTES, BatchSearch
from storage_core.inspect.verify_indexes import IndexCheck
from storage_core.log.segment_reader import SegmentReader, announced_size, scan_up_to_damage
from storage_core.log_config import INT32_MAX, INT64_MAX
from storage_core.record.attributes import LOG_APPEND_TIME_BIT
from storage_core.record.batch_decode import iter_decoded
from storage_core.record.batch_header import HEADER_BYTES, MAGIC_V2, unpack_header
from storage_core.record.batch_scan import BatchScan, check_crcs

__all__ = ["LogChecks", "SegmentCheck"]

_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class LogChecks:
    """What the checks of a log's segments share.

    Attributes:
        deep: whether every record is decoded too.
    """

    report: LogReport
    walk: OffsetWalk
    epochs: EpochCheck
    deep: bool


class SegmentCheck:
    """One pass over a segment.

    Args:
        reader: of the segment; its `size_bytes` are the bytes to check.
        limit: the offset that no batch may reach, or None.
    """

    def __init__(self, reader: SegmentReader, checks: LogChecks, indexes: IndexCheck, limit: int | None) -> None:
        self._reader, self._indexes, self._limit = reader, indexes, limit
        self._report, self._walk, self._epochs, self._deep = checks.report, checks.walk, checks.epochs, checks.deep
        self._file = reader.files.log_path.name
        base = reader.files.base_offset
        self._search = BatchSearch(reader, reader.size_bytes, base, min(base + INT32_MAX, INT64_MAX))
        self._previous: tuple[int, int, int] | None = None

    def run(self) -> None:
        """Check all bytes; findings go to the report, offsets to the walk, entries to the index check."""
        self._walk.start_segment(self._file, self._reader.files.base_offset)
        try:
            self._read_all()
        except StorageError as error:
            self._report.add("damage", self._file, f"can't be read: {error}")
        self._walk.end_segment(self._limit, self._reader.size_bytes)
        for fault in self._walk.faults:
            if fault.file == self._file:
                self._indexes.skip(fault.position, fault.position + 1)

    def _read_all(self) -> None:
        position, wanted, end = 0, _CHUNK_BYTES, self._reader.size_bytes
        while position < end:
            data = self._reader.read(position, min(wanted, end - position))
            scan, error = scan_up_to_damage(data)
            good = self._good_count(data, scan)
            self._follow(position, data, scan.take(slice(0, good)))
            wanted = _CHUNK_BYTES
            if good < len(scan):
                position = self._damaged(position + int(scan.position[good]))
            elif error is not None:
                position = self._damaged(position + error.position)
            elif scan.valid_bytes:
                position += scan.valid_bytes
            elif len(data) < announced_size(data) <= min(end - position, LARGEST_BATCH_BYTES):
                wanted = announced_size(data)
            else:
                position = self._damaged(position)

    def _good_count(self, data: bytes, scan: BatchScan) -> int:
        """Return how many batches there are before the first damaged one."""
        is_bad = scan.magic != MAGIC_V2
        is_bad[check_crcs(data, scan)] = True
        return int(np.argmax(is_bad)) if is_bad.any() else len(scan)

    def _follow(self, position: int, data: bytes, scan: BatchScan) -> None:
        if not len(scan):
            return
        self._report.batches += len(scan)
        self._report.bytes_checked += int(scan.size.sum())
        self._walk.follow(scan.position + position, scan.base_offset, scan.last_offset, scan.records_count)
        self._indexes.follow(position, scan)
        self._check_epochs(position, scan)
        self._check_counts(position, scan)
        if self._deep:
            self._check_records(position, data, scan)

    def _check_epochs(self, position: int, scan: BatchScan) -> None:
        for first, last, what in self._epochs.wrong(scan.base_offset, scan.leader_epoch):
            if last < 0 and self._previous is not None:
                place, first_offset, last_offset = self._previous
            else:
                start = max(first, 0)
                place = position + int(scan.position[start])
                first_offset, last_offset = int(scan.base_offset[start]), int(scan.last_offset[last])
            self._add(what, place, first_offset, last_offset)
        self._previous = position + int(scan.position[-1]), int(scan.base_offset[-1]), int(scan.last_offset[-1])

    def _check_counts(self, position: int, scan: BatchScan) -> None:
        """A batch never holds more records than it has offsets; compaction leaves fewer."""
        bad = (scan.records_count < 0) | (scan.records_count > scan.last_offset - scan.base_offset + 1)
        for number in np.flatnonzero(bad).tolist():
            delta = int(scan.last_offset[number] - scan.base_offset[number])
            what = f"records_count={scan.records_count[number]} does not fit last_offset_delta={delta}"
            self._add_batch(what, position, scan, number)

    def _check_records(self, position: int, data: bytes, scan: BatchScan) -> None:
        number = 0
        while number < len(scan):
            rest = scan.take(slice(number, None))
            try:
                for records in iter_decoded(data, rest, include_control=True):
                    offsets, times = records.column("offset").to_numpy(), records.column("timestamp").to_numpy()
                    while len(offsets) or (number < len(scan) and not scan.records_count[number]):
                        count = int(scan.records_count[number])
                        self._check_batch_records(position, scan, number, offsets[:count], times[:count])
                        offsets, times, number = offsets[count:], times[count:], number + 1
                number = len(scan)
            except (CorruptBatchError, UnsupportedFormatError) as error:
                at = getattr(error, "position", int(scan.position[number]))
                number = int(np.searchsorted(scan.position, at))
                self._add_batch(f"records contradict the batch: {error.args[0]}", position, scan, number)
                number += 1

    def _check_batch_records(
        self,
        position: int,
        scan: BatchScan,
        number: int,
        offsets: npt.NDArray[np.int64],
        times: npt.NDArray[np.int64],
    ) -> None:
        if not len(offsets):
            return
        is_inside = scan.base_offset[number] <= offsets[0] and offsets[-1] <= scan.last_offset[number]
        if not is_inside or (np.diff(offsets) <= 0).any():
            self._add_batch("offsets of its records do not increase inside the batch", position, scan, number)
        is_append_time = scan.attributes[number] & LOG_APPEND_TIME_BIT
        largest = int(times.max())
        # Below -1 a cleaner writes -1 and an encoder the number itself.
        if not is_append_time and scan.max_timestamp[number] not in (largest, max(largest, -1)):
            what = f"max_timestamp={scan.max_timestamp[number]} is not the largest of its records, {largest}"
            self._add_batch(what, position, scan, number)

    def _damaged(self, position: int) -> int:
        """Note a damaged batch and return where to go on."""
        end = self._reader.size_bytes
        head = self._reader.read(position, HEADER_BYTES)
        size = announced_size(head)
        found = self._search.next_batch(position, size)
        following = end if found is None else found
        self._indexes.skip(position, following)
        claim = unpack_header(head) if len(head) == HEADER_BYTES else None
        is_due = (
            claim is not None
            and claim.magic == MAGIC_V2
            and claim.base_offset == self._walk.next_offset
            and claim.last_offset_delta >= 0
        )
        what = self._describe(position, size, claim.magic if claim else None, following)
        self._walk.lose(position, what, claim.last_offset if claim and is_due else None)
        return following

    def _describe(self, position: int, size: int, magic: int | None, following: int) -> str:
        end = self._reader.size_bytes
        count = following - position
        if following == end and self._reader.ends_in_zeros(position):
            return f"the last {count} bytes are zeros"
        if magic is not None and magic != MAGIC_V2:
            return f"magic is {magic}, not {MAGIC_V2}; {count} bytes"
        if size < HEADER_BYTES or position + size > end:
            return f"batch size {size} is impossible or passes the end; {count} bytes"
        return f"wrong CRC; {count} bytes"

    def _add_batch(self, what: str, position: int, scan: BatchScan, number: int) -> None:
        place = position + int(scan.position[number])
        self._add(what, place, int(scan.base_offset[number]), int(scan.last_offset[number]))

    def _add(self, what: str, position: int, first_offset: int, last_offset: int) -> None:
        self._report.findings.append(
            Finding(
                log=self._report.log,
                file=self._file,
                kind="damage",
                what=what,
                position=position,
                first_offset=first_offset,
                last_offset=last_offset,
            )
        )
