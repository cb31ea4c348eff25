"""Compares a segment's indexes with the batches of its log.

An entry of the offset index leads to the start of an append and names that append's last offset: normally one batch,
but cleaned segments and followers append several at once, so the named batch may lie past the position. An entry of
the time index names the batch that carries the largest timestamp so far. Entries that lead into damaged bytes say
nothing.

Source: Kafka OffsetIndex, TimeIndex, LogSegment.append.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.errors import CorruptBatchError, StorageError
from sparklog.storage_core.index.offset_index import OFFSET_ENTRY_BYTES, OffsetIndex
from sparklog.storage_core.index.time_index import TIME_ENTRY_BYTES, TimeIndex
from sparklog.storage_core.inspect.verify.findings import FindingKind, LogReport, Rule
from sparklog.storage_core.log.scan.segment_reader import SegmentReader
from sparklog.storage_core.record.batch_scan import BatchScan
from sparklog.storage_core.storage.open_regular import read_if_there

__all__ = ["IndexCheck"]

_UNSEEN: Final = -2
_KEPT_FINDINGS: Final = 20
_RULES: Final[tuple[Rule, Rule]] = ("offset-index", "time-index")
_SPARSE_BYTES: Final = 4 << 20
_SPARSE_BYTES_OF_OURS: Final = 64 << 10
"""So far apart entries of the default `index.interval.bytes` never are; a larger setting, or a writer that starts anew
for each batch, may do that. A follower writes one entry for all that it fetched at once."""


class IndexCheck:
    """Collects, while a segment's batches are read, what its index entries lead to.

    Args:
        reader: of the segment; its `size_bytes` are the bytes to compare with.
        report: where findings go.
        is_active: whether more may be appended: a zero tail is no finding, and the last time entry may be missing.
        is_ours: whether a ledger names the log: then both files must be there.
    """

    def __init__(self, reader: SegmentReader, report: LogReport, is_active: bool, is_ours: bool) -> None:
        self._reader, self._report, self._is_active = reader, report, is_active
        self._sparse_bytes = _SPARSE_BYTES_OF_OURS if is_ours else _SPARSE_BYTES
        self._beyond: FindingKind = "uncommitted" if is_active and is_ours else "index"
        base = reader.files.base_offset
        offset_data, time_data = self._read_both(is_ours)
        self._offsets = OffsetIndex(offset_data or b"", base)
        self._times = TimeIndex(time_data or b"", base)
        self._has_offset_index, self._has_time_index = offset_data is not None, time_data is not None
        self._ends_at_position: npt.NDArray[np.int64] = np.full(len(self._offsets), _UNSEEN, np.int64)
        self._start_before: npt.NDArray[np.int64] = np.zeros(len(self._offsets), np.int64)
        self._time_of_batch: npt.NDArray[np.int64] = np.full(len(self._times), _UNSEEN, np.int64)
        self._largest_before: npt.NDArray[np.int64] = np.full(len(self._times), _UNSEEN, np.int64)
        self._largest = -1
        self._last_offset = -1
        self._last_start = 0
        self._damaged: list[tuple[int, int]] = []
        self._trusts_entries = self._check_shapes()

    def follow(self, position: int, scan: BatchScan) -> None:
        """Note where entries lead among sound batches; `scan` counts positions from `position`."""
        if not len(scan):
            return
        if self._trusts_entries:
            starts = scan.position + position
            first, stop = np.searchsorted(self._offsets.positions, [starts[0], starts[-1] + scan.size[-1]])
            entries = self._offsets.positions[first:stop]
            slots = np.searchsorted(starts, entries, side="right") - 1
            self._ends_at_position[first:stop] = np.where(starts[slots] == entries, scan.last_offset[slots], -1)
            self._start_before[first:stop] = np.where(slots > 0, starts[slots - 1], self._last_start)
            self._follow_times(scan)
        self._largest = max(self._largest, int(scan.max_timestamp.max()))
        self._last_offset = int(scan.last_offset[-1])
        self._last_start = position + int(scan.position[-1])

    def skip(self, start: int, end: int) -> None:
        """Record bytes that hold no sound batch, or one whose offsets are wrong."""
        self._damaged.append((start, end))

    def offset_named_at(self, position: int) -> int | None:
        """Return the offset that an entry for a position names, or None."""
        if not self._trusts_entries:
            return None
        slot = int(np.searchsorted(self._offsets.positions, position))
        is_there = slot < len(self._offsets) and int(self._offsets.positions[slot]) == position
        return int(self._offsets.offsets[slot]) if is_there else None

    def is_timed(self, offset: int) -> bool:
        """Whether an entry of the time index names an offset."""
        slot = int(np.searchsorted(self._times.offsets, offset)) if self._trusts_entries else len(self._times)
        return slot < len(self._times) and int(self._times.offsets[slot]) == offset

    def finish(self) -> None:
        """Report every contradiction."""
        if self._trusts_entries:
            known = len(self._report.findings)
            self._finish_offsets()
            self._finish_times()
            if len(self._report.findings) == known and self._has_offset_index and not self._damaged:
                self._finish_spacing()

    def _follow_times(self, scan: BatchScan) -> None:
        ends = scan.last_offset
        first = int(np.searchsorted(self._times.offsets, ends.min()))
        stop = int(np.searchsorted(self._times.offsets, ends.max(), side="right"))
        if first == stop:
            return
        largest = np.maximum.accumulate(np.concatenate([[self._largest], scan.max_timestamp]))
        order = np.argsort(ends, kind="stable")
        slots = order[np.minimum(np.searchsorted(ends, self._times.offsets[first:stop], sorter=order), len(ends) - 1)]
        is_there = ends[slots] == self._times.offsets[first:stop]
        self._time_of_batch[first:stop] = np.where(is_there, scan.max_timestamp[slots], -1)
        self._largest_before[first:stop] = np.where(is_there, largest[slots], -1)

    def _read_both(self, is_ours: bool) -> tuple[bytes | None, bytes | None]:
        paths = (self._reader.files.index_path, self._reader.files.time_index_path)
        contents: list[bytes | None] = []
        for path, rule in zip(paths, _RULES, strict=True):
            try:
                contents.append(read_if_there(path))
            except OSError as error:
                self._report.add("index", rule, path.name, f"can't be read: {error.strerror}")
                contents.append(b"")
        for path, rule, content in zip(paths, _RULES, contents, strict=True):
            if content is None and (is_ours or any(each is not None for each in contents)):
                self._report.add("index", rule, path.name, "is missing; half an index is worse than none")
        if contents == [None, None] and not is_ours and self._reader.size_bytes:
            what = "is missing, and so is the time index: a broker builds both by a recovery of the segment"
            self._report.add("sparse", "offset-index", paths[0].name, what)
        return contents[0], contents[1]

    def _check_shapes(self) -> bool:
        """Check sizes and order; return whether the entries can be looked up."""
        names = (self._reader.files.index_path.name, self._reader.files.time_index_path.name)
        sizes = (
            (self._offsets.size_bytes, OFFSET_ENTRY_BYTES, len(self._offsets)),
            (self._times.size_bytes, TIME_ENTRY_BYTES, len(self._times)),
        )
        for name, rule, (size, entry, count) in zip(names, _RULES, sizes, strict=True):
            if size % entry:
                self._report.add("index", rule, name, f"has {size} bytes, not a multiple of {entry}")
            elif size > count * entry and not self._is_active:
                self._report.add("index", rule, name, "has a zero tail, though its segment is closed", count * entry)
        base = self._reader.files.base_offset
        back = _not_increasing(self._offsets.offsets, base) | _not_increasing(self._offsets.positions, 0)
        later = _not_increasing(self._times.timestamps, 0)
        later[:1] |= self._times.offsets[:1] < base
        later[1:] |= self._times.offsets[1:] < self._times.offsets[:-1]
        for name, rule, bad, (_, entry, _) in zip(names, _RULES, (back, later), sizes, strict=True):
            if bad.any():
                at = int(np.argmax(bad))
                self._report.add("index", rule, name, f"entry {at} does not increase", at * entry)
        return not back.any() and not later.any()

    def _finish_offsets(self) -> None:
        name, end = self._reader.files.index_path.name, self._reader.size_bytes
        found = self._ends_at_position
        positions, offsets = self._offsets.positions, self._offsets.offsets
        wrong = np.flatnonzero(found != offsets)
        for entry in wrong.tolist():
            position, offset = int(positions[entry]), int(offsets[entry])
            if self._is_damaged(position):
                continue
            kind: FindingKind = self._beyond if position >= end else "index"
            stop = int(positions[entry + 1]) if entry + 1 < len(positions) else end
            if position >= end:
                what = f"entry {entry} leads to position {position}, but the log ends at {end}"
            elif found[entry] < 0:
                what = f"entry {entry} leads to position {position}, where no batch starts"
            elif found[entry] < offset and self._has_batch_ending_at(offset, position, min(stop, end)):
                continue
            else:
                what = f"entry {entry} says offset {offset}, the batch at position {position} ends at {found[entry]}"
            if not self._add(kind, "offset-index", name, what, entry * OFFSET_ENTRY_BYTES):
                return

    def _finish_times(self) -> None:
        name = self._reader.files.time_index_path.name
        times, offsets = self._times.timestamps, self._times.offsets
        is_wrong = (self._time_of_batch != times) | (self._largest_before >= times)
        for entry in np.flatnonzero(is_wrong).tolist() if not self._damaged else ():
            time, offset = int(times[entry]), int(offsets[entry])
            found = int(self._time_of_batch[entry])
            if found < 0:
                what = f"entry {entry} says offset {offset}, where no batch ends"
            elif found != time:
                what = f"entry {entry} says timestamp {time} at offset {offset}, that batch has {found}"
            else:
                what = f"entry {entry} says timestamp {time}, but an earlier batch has {self._largest_before[entry]}"
            kind: FindingKind = self._beyond if offset > self._last_offset else "index"
            if not self._add(kind, "time-index", name, what, entry * TIME_ENTRY_BYTES):
                return
        last = int(times[-1]) if len(times) else -1
        if self._has_time_index and not self._is_active and not self._damaged and last < self._largest:
            what = f"ends at timestamp {last}, but the closed segment's largest is {self._largest}"
            self._report.add("index", "time-index", name, what)

    def _finish_spacing(self) -> None:
        """Note stretches without an entry: entries that were lost leave an index right, but slow.

        What `index.interval.bytes` was is not known, and the count starts anew with each start of a writer.
        """
        marks = np.concatenate([[0], self._offsets.positions])
        unmarked = np.concatenate([self._start_before, [self._last_start]])
        widest = int(np.argmax(unmarked - marks))
        width = int(unmarked[widest] - marks[widest])
        if not self._is_active and width > self._sparse_bytes:
            name = self._reader.files.index_path.name
            what = f"has no entry for {width} bytes from position {marks[widest]} on"
            self._report.add("sparse", "offset-index", name, what, widest * OFFSET_ENTRY_BYTES)

    def _is_damaged(self, position: int) -> bool:
        return any(start <= position < end for start, end in self._damaged)

    def _has_batch_ending_at(self, offset: int, start: int, stop: int) -> bool:
        """Whether a batch of the append at `start` ends at an offset."""
        try:
            for chunk in self._reader.chunks(start):
                is_inside = chunk.scan.position + chunk.position < stop
                if (chunk.scan.last_offset[is_inside] == offset).any():
                    return True
                if not is_inside.all():
                    return False
        except (CorruptBatchError, StorageError):
            return False
        return False

    def _add(self, kind: FindingKind, rule: Rule, name: str, what: str, position: int) -> bool:
        """Add a finding; return whether there is room for more about this file."""
        self._report.add(kind, rule, name, what, position)
        return sum(each.file == name for each in self._report.findings) < _KEPT_FINDINGS


def _not_increasing(values: npt.NDArray[np.int64], least: int) -> npt.NDArray[np.bool_]:
    """Return which values are not above the one before, or for the first one below `least`.

    Compared, not subtracted: the difference of two timestamps of a file may not fit int64.
    """
    bad = np.zeros(len(values), np.bool_)
    bad[:1] = values[:1] < least
    bad[1:] = values[1:] <= values[:-1]
    return bad
