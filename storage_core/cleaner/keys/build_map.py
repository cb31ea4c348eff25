"""Fills the offset map from a log's dirty range.

Control batches and aborted data are skipped. A full map ends the range, also in the middle of a batch: records above
stay until the next round. At a segment's end the map covers the offsets up to the next segment, although they have no
records.

Source: Kafka Cleaner.buildOffsetMap, buildOffsetMapForSegment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.cleaner.keys.keyed_records import KeyedRecords, iter_keyed
from sparklog.storage_core.cleaner.keys.offset_map import OffsetMap
from sparklog.storage_core.cleaner.survey.aborted_columns import NONE_ABORTED, AbortedColumns
from sparklog.storage_core.cleaner.survey.cleaned_transactions import is_control
from sparklog.storage_core.cleaner.survey.read_batches import checked_chunks
from sparklog.storage_core.errors import InvalidRecordError
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.scan.segment_reader import BatchChunk, SegmentReader
from sparklog.storage_core.record.batch_probe import MAGIC_V2

__all__ = ["BuiltMap", "DirtyRange", "build_map"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DirtyRange:
    """The range of a log to map.

    Attributes:
        segments: of the log, in order; those outside of the range are not read. If none starts at the range's end, the
            range ends with the last one.
        first_dirty_offset: its start.
        first_uncleanable_offset: its end: the base of a segment.
        aborted: the aborted transactions that overlap it.
    """

    segments: Sequence[SegmentFiles]
    first_dirty_offset: int
    first_uncleanable_offset: int
    aborted: AbortedColumns = NONE_ABORTED


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltMap:
    """Extent of a map.

    Attributes:
        end_offset: above the last covered offset: the first dirty offset after the round.
        is_full: whether it ends below the range's end, perhaps in the middle of a batch.
        bytes_read, records_read: of the batches that were read.
    """

    end_offset: int
    is_full: bool
    bytes_read: int
    records_read: int


def build_map(dirty: DirtyRange, offset_map: OffsetMap, check_owner: Callable[[], None]) -> BuiltMap:
    """Put the keys of a dirty range into an empty map.

    Args:
        offset_map: filled; its `latest_offset` is set.
        check_owner: called every few MiB; raises after a takeover.

    Raises:
        CorruptBatchError: a batch is damaged; names file and position.
        InvalidRecordError: a record of format v2 has no key; names offset and file. Those of v0 and v1 are skipped.
    """
    filling = _Filling(dirty, offset_map)
    ends = [*(each.base_offset for each in dirty.segments[1:]), dirty.first_uncleanable_offset]
    for files, end_offset in zip(dirty.segments, ends, strict=True):
        if end_offset <= dirty.first_dirty_offset or files.base_offset >= dirty.first_uncleanable_offset:
            continue
        with SegmentReader(files) as reader:
            for chunk in checked_chunks(reader, dirty.first_dirty_offset, end_offset, check_owner):
                if not filling.add(reader, chunk):
                    return filling.result(is_full=True)
        offset_map.latest_offset = end_offset - 1
    return filling.result(is_full=False)


class _Filling:
    """State of the filling of a map."""

    def __init__(self, dirty: DirtyRange, offset_map: OffsetMap) -> None:
        self._dirty = dirty
        self._map = offset_map
        self._bytes_read = 0
        self._records_read = 0

    def result(self, *, is_full: bool) -> BuiltMap:
        return BuiltMap(
            end_offset=max(self._map.latest_offset + 1, self._dirty.first_dirty_offset),
            is_full=is_full,
            bytes_read=self._bytes_read,
            records_read=self._records_read,
        )

    def add(self, reader: SegmentReader, chunk: BatchChunk) -> bool:
        """Put the keys of a chunk into the map; return False if it is full."""
        scan = chunk.scan
        self._bytes_read += int(scan.size.sum())
        is_left_out = is_control(scan) | self._dirty.aborted.mask(scan)
        wanted = scan.take(~is_left_out) if is_left_out.any() else scan
        self._records_read += int(np.maximum(scan.records_count[is_left_out], 0).sum())
        with reader.errors_in(chunk):
            for records in iter_keyed(chunk.data, wanted):
                self._records_read += len(records)
                stopped_at = self._put(records)
                self._refuse_keyless(reader, records, stopped_at)
                if stopped_at is not None:
                    whole = int(np.searchsorted(scan.last_offset, stopped_at))
                    last_whole = int(scan.last_offset[whole - 1]) if whole else -1
                    self._map.latest_offset = max(self._map.latest_offset, last_whole)
                    return False
        self._map.latest_offset = int(scan.last_offset[-1])
        return True

    def _put(self, records: KeyedRecords) -> int | None:
        """Put keys into the map; return the offset of the first one without room."""
        digests, offsets = records.digests(self._map.hash_key), records.offset
        is_wanted = records.has_key & (offsets >= self._dirty.first_dirty_offset)
        if not is_wanted.all():
            digests, offsets = digests[is_wanted], offsets[is_wanted]
        placed = self._map.put(digests, offsets)
        if placed:
            self._map.latest_offset = max(self._map.latest_offset, int(offsets[placed - 1]))
        return int(offsets[placed]) if placed < len(offsets) else None

    def _refuse_keyless(self, reader: SegmentReader, records: KeyedRecords, stopped_at: int | None) -> None:
        """Refuse records of v2 without a key below the map's end.

        A broker that writes v2 refuses them in a compacted topic. So another program wrote them, or the topic was not
        compacted then, and a cleaning must not drop them. Those of older formats are dropped, as by a broker.
        """
        if records.has_key.all() or records.scan.magic[0] < MAGIC_V2:
            return
        is_keyless: npt.NDArray[np.bool_] = ~records.has_key & (records.offset >= self._dirty.first_dirty_offset)
        if stopped_at is not None:
            is_keyless &= records.offset < stopped_at
        if is_keyless.any():
            offset = int(records.offset[int(np.argmax(is_keyless))])
            raise InvalidRecordError(
                f"a record of a compacted log has no key: offset={offset} file={reader.files.log_path}"
            )
