"""One round over one log: its dirty part is mapped, and every segment up to the end of the map is written anew.

    finish what an earlier round left -> survey -> map of the dirty part -> groups -> clean and swap each of them

A map that is full ends the round where it got to; the next round begins there. Whatever stops a round early, the log is
a whole one, and its first dirty offset stays where it was: only a round over all groups moves it. So a round that is
done again comes to the same end.

Source: Kafka Cleaner.doClean.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final

import pyarrow as pa

from storage_core.cleaner.build_map import BuiltMap, DirtyRange, build_map
from storage_core.cleaner.clean_segments import CleanCounts, CleanedSegment, CleanRequest, clean_segments
from storage_core.cleaner.cleaned_transactions import CleanedTransactions
from storage_core.cleaner.grouping import group_segments_by_size
from storage_core.cleaner.listed_segments import ListedSegment, list_cleanable_segments, with_index_sizes
from storage_core.cleaner.offset_map import KeySet, OffsetMap
from storage_core.cleaner.survey_log import SurveyedLog, survey_transactions
from storage_core.cleaner.swap import drop_cleaned, finish_swaps, swap_in
from storage_core.errors import InvalidConfigError
from storage_core.fault_points import reach
from storage_core.log.append_state import CommittedEnd
from storage_core.log.log_walk import SegmentList
from storage_core.log_config import INT32_MAX, LogConfig
from storage_core.storage.local import storage_errors

__all__ = ["CleanedLog", "LogToClean", "clean_log"]

_LARGEST_BYTES: Final = INT32_MAX
"""A position in an index entry has 31 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogToClean:
    """A log, and how to clean it.

    Attributes:
        end: where it ends; its active segment stays as it is.
        log_start_offset: where it starts.
        first_dirty_offset: where the round begins.
        first_uncleanable_offset: where the round ends at the latest: where a segment starts, the active one or before.
        config: of its topic.
        now_ms: time of the round.
        map_bytes: memory of the offset map.
        hash_key: of the map, drawn for the round.
        erased_keys: binary; keys whose records all go, from the clean part too.
    """

    directory: Path
    end: CommittedEnd
    log_start_offset: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    config: LogConfig
    now_ms: int
    map_bytes: int
    hash_key: bytes
    erased_keys: pa.Array | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedLog:
    """What a round did.

    Attributes:
        first_dirty_offset: where the next round begins.
        built: how far the map got; None where nothing was dirty.
        bytes_before, bytes_after: of the segments that were read, and of what they became.
        segments_before, segments_after: how many.
        counts: of all groups together.
        stopped: why the round ended before its range did; None if it did not.
    """

    first_dirty_offset: int
    built: BuiltMap | None = None
    bytes_before: int = 0
    bytes_after: int = 0
    segments_before: int = 0
    segments_after: int = 0
    counts: CleanCounts = field(default_factory=CleanCounts)
    stopped: str | None = None

    @property
    def records_before(self) -> int:
        """Records that were read."""
        return self.counts.records_read

    @property
    def records_after(self) -> int:
        """Records that were kept."""
        return self.counts.records_kept


def clean_log(log: LogToClean, check_owner: Callable[[], None]) -> CleanedLog:
    """Clean a log.

    Where the disk lacks room for a group the round ends: whether a marker in a later one may go depends on its batches.

    Args:
        log: what to clean, and how.
        check_owner: raises once somebody else owns the log; asked before each step that can't be undone.

    Raises:
        CorruptBatchError, CorruptFileError: the log is damaged; names file and position.
        InvalidRecordError: a record of format v2 has no key.
        InvalidConfigError: a segment would grow too large by `compression.type`.
        OffsetOutOfRangeError: a segment has offsets that no index can hold; it has to be split first.
        StorageError: the disk refused.

    Whatever is raised, the log is a whole one; groups that were done before stay done.
    """
    finish_swaps(log.directory, log.end.segment_base, check_owner)
    segments = list_cleanable_segments(log.directory, log.end, log.log_start_offset)
    closed = segments[:-1]
    every = SegmentList(log.directory, log.end.log_end_offset)
    surveyed = survey_transactions(every, log.log_start_offset, log.now_ms)
    end_offset = _range_end(log, segments, surveyed)
    first_dirty = min(log.first_dirty_offset, log.end.log_end_offset)
    if end_offset <= first_dirty and log.erased_keys is None:
        return CleanedLog(first_dirty_offset=first_dirty, stopped=_open_transaction(log, surveyed))
    offset_map, built = _map(log, closed, surveyed, (first_dirty, end_offset), check_owner)
    next_dirty = first_dirty if built is None else built.end_offset
    last = end_offset if log.erased_keys is not None else next_dirty
    wanted = [each for each in closed if each.base_offset < min(last, end_offset)]
    sized = with_index_sizes(log.directory, wanted)
    round_ = _Round(log, offset_map, CleanedTransactions(surveyed.aborted), _request(log, closed, surveyed, end_offset))
    written: list[tuple[Sequence[ListedSegment], CleanedSegment]] = []
    for group in group_segments_by_size(sized, log.config, end_offset):
        check_owner()  # whoever took the log may have replaced these, and a file that is gone would say less
        if problem := _lacks_room(log.directory, group):
            return _result(written, first_dirty, built, problem)
        written.append((group, round_.clean(group, check_owner)))
    reach("clean.checkpoint")
    stopped = f"the map was full at offset {next_dirty}" if built is not None and built.is_full else None
    return _result(written, next_dirty, built, stopped or _open_transaction(log, surveyed))


@dataclass(frozen=True, slots=True)
class _Round:
    """What all groups of a round share; the state of transactions goes on from one to the next."""

    log: LogToClean
    offset_map: OffsetMap
    transactions: CleanedTransactions
    request: CleanRequest

    def clean(self, group: Sequence[ListedSegment], check_owner: Callable[[], None]) -> CleanedSegment:
        """Clean a group, and let the new segment take its place unless nothing changed."""
        directory = self.log.directory
        files = [each.files(directory) for each in group]
        cleaned = clean_segments(files, self.offset_map, self.transactions, self.request, check_owner)
        reach("clean.cleaned")
        if cleaned.size_bytes > _LARGEST_BYTES:
            drop_cleaned(cleaned)
            raise InvalidConfigError(
                f"a segment of {cleaned.size_bytes} bytes is too large for an index: file={files[0].log_path}"
                f" compression.type={self.log.config.compression_type}; batches that are built again grow with it"
            )
        if cleaned.is_unchanged:
            drop_cleaned(cleaned)
        else:
            swap_in(cleaned, [each.base_offset for each in group], check_owner)
        return cleaned


def _range_end(log: LogToClean, segments: Sequence[ListedSegment], surveyed: SurveyedLog) -> int:
    """Return the base of the first segment that is not cleaned: a transaction may be open that was not known of."""
    limit = min(log.first_uncleanable_offset, surveyed.last_stable_offset)
    bases = [each.base_offset for each in segments if each.base_offset <= limit]
    return bases[-1] if bases else segments[0].base_offset


def _open_transaction(log: LogToClean, surveyed: SurveyedLog) -> str | None:
    stable = surveyed.last_stable_offset
    return f"a transaction is open since offset {stable}" if stable < log.first_uncleanable_offset else None


def _map(
    log: LogToClean,
    closed: Sequence[ListedSegment],
    surveyed: SurveyedLog,
    dirty: tuple[int, int],
    check_owner: Callable[[], None],
) -> tuple[OffsetMap, BuiltMap | None]:
    """Return the map of the dirty part; where there is none, one that speaks for all that is clean and knows no key."""
    offset_map = OffsetMap(log.map_bytes, log.hash_key)
    if dirty[0] >= dirty[1]:
        offset_map.latest_offset = dirty[1] - 1
        return offset_map, None
    what = DirtyRange(
        segments=[each.files(log.directory) for each in closed],
        first_dirty_offset=dirty[0],
        first_uncleanable_offset=dirty[1],
        aborted=surveyed.aborted,
    )
    return offset_map, build_map(what, offset_map, check_owner)


def _request(log: LogToClean, closed: Sequence[ListedSegment], surveyed: SurveyedLog, end_offset: int) -> CleanRequest:
    config = log.config
    clean = [each.modified_ms for each in closed if each.base_offset < log.first_dirty_offset]
    is_kept = config.compression_type == "producer"
    return CleanRequest(
        now_ms=log.now_ms,
        delete_retention_ms=config.delete_retention_ms,
        legacy_delete_horizon_ms=clean[-1] - config.delete_retention_ms if clean else 0,
        cleaning_end_offset=end_offset,
        producers=surveyed.producers,
        codec=None if is_kept else config.codec,
        level=0 if is_kept else config.compression_level,
        index_interval_bytes=config.index_interval_bytes,
        erased=None if log.erased_keys is None else KeySet(log.erased_keys, log.hash_key),
    )


def _lacks_room(directory: Path, group: Sequence[ListedSegment]) -> str | None:
    """Return why a group can't be written anew: the new segment lies beside the old ones until they are removed."""
    needed = sum(each.size_bytes + each.index_bytes + each.time_index_bytes for each in group)
    with storage_errors(directory):
        found = os.statvfs(directory)
    free = found.f_bavail * found.f_frsize
    if needed <= free:
        return None
    first, last = group[0].base_offset, group[-1].next_offset - 1
    return f"not enough disk for offsets {first}..{last}: needed_bytes={needed} free_bytes={free}"


def _result(
    written: Sequence[tuple[Sequence[ListedSegment], CleanedSegment]],
    first_dirty_offset: int,
    built: BuiltMap | None,
    stopped: str | None,
) -> CleanedLog:
    counts = CleanCounts()
    for each in fields(CleanCounts):
        setattr(counts, each.name, sum(getattr(cleaned.counts, each.name) for _, cleaned in written))
    return CleanedLog(
        first_dirty_offset=first_dirty_offset,
        built=built,
        bytes_before=sum(each.size_bytes for group, _ in written for each in group),
        bytes_after=sum(cleaned.size_bytes for _, cleaned in written),
        segments_before=sum(len(group) for group, _ in written),
        segments_after=len(written),
        counts=counts,
        stopped=stopped,
    )
