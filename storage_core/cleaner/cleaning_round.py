"""One round over a log: the state that its groups share, and the cleaning of one group.

One process cleans the groups in order, or several tasks clean them as parts (`cleaning_part`).

Source: Kafka Cleaner.doClean.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final

import pyarrow as pa

from sparklog.storage_core.cleaner.keys.build_map import BuiltMap, DirtyRange
from sparklog.storage_core.cleaner.keys.offset_map import KeySet
from sparklog.storage_core.cleaner.keys.superseded import LaterRecords
from sparklog.storage_core.cleaner.rewrite.clean_segments import (
    CleanCounts,
    CleanedSegment,
    CleanRequest,
    clean_segments,
)
from sparklog.storage_core.cleaner.survey.cleaned_transactions import CleanedTransactions
from sparklog.storage_core.cleaner.survey.grouping import group_segments_by_size
from sparklog.storage_core.cleaner.survey.listed_segments import (
    ListedSegment,
    list_cleanable_segments,
    with_index_sizes,
)
from sparklog.storage_core.cleaner.survey.survey_log import SurveyedLog, survey_transactions
from sparklog.storage_core.cleaner.swap import drop_cleaned, finish_own_swaps, swap_in
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.log.files.committed_end import CommittedEnd
from sparklog.storage_core.log.scan.log_walk import SegmentList
from sparklog.storage_core.log_config import INT32_MAX, LogConfig
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.owned_names import Owner

__all__ = [
    "CleanedLog",
    "CleaningRound",
    "EarlyEnd",
    "LogToClean",
    "lacks_room",
    "prepare_round",
    "result_of_round",
    "survey_round",
]

_LARGEST_BYTES: Final = INT32_MAX
"""A position in an index entry has 31 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogToClean:
    """A log and the settings of its cleaning.

    Attributes:
        end: its committed end; the active segment is not cleaned.
        first_dirty_offset: start of the round.
        first_uncleanable_offset: upper bound of the round's end: the start of the active segment or of an earlier one.
        map_bytes: memory of the offset map.
        hash_key: of the map, random for the round.
        erased_keys: binary; keys to erase, from the clean part too.
        leaves_large: whether to skip the log if the map gets full: several tasks can clean all of it.
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
    leaves_large: bool = False


@dataclass(frozen=True, slots=True)
class EarlyEnd:
    """Why a round ended early.

    Attributes:
        is_short_of_disk: whether a later round needs free disk space to get further.
    """

    reason: str
    is_short_of_disk: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedLog:
    """Result of a round.

    Attributes:
        first_dirty_offset: start of the next round.
        built: extent of the map; None without a dirty part.
        bytes_before, bytes_after: of the old segments and of the new ones.
        segments_before, segments_after: their numbers.
        erased: number of erased records, by base offset of the old segment.
        counts: of all groups together.
        stopped: why the round ended early; None if it did not.
    """

    first_dirty_offset: int
    built: BuiltMap | None = None
    bytes_before: int = 0
    bytes_after: int = 0
    segments_before: int = 0
    segments_after: int = 0
    erased: Mapping[int, int] = field(default_factory=dict)
    counts: CleanCounts = field(default_factory=CleanCounts)
    stopped: EarlyEnd | None = None

    @property
    def records_before(self) -> int:
        """Records that were read."""
        return self.counts.records_read

    @property
    def records_after(self) -> int:
        """Records that were kept."""
        return self.counts.records_kept


@dataclass(frozen=True, slots=True)
class CleaningRound:
    """A prepared round; can be sent to other processes.

    Attributes:
        closed: its closed segments, in order.
        surveyed: its transactions and producers.
        first_dirty_offset: start of the round.
        end_offset: its end: the base of the first segment that is not cleaned.
    """

    log: LogToClean
    closed: Sequence[ListedSegment]
    surveyed: SurveyedLog
    first_dirty_offset: int
    end_offset: int

    @property
    def open_transaction(self) -> EarlyEnd | None:
        """The open transaction that ends the round early; None without one."""
        stable = self.surveyed.last_stable_offset
        if stable >= self.log.first_uncleanable_offset:
            return None
        return EarlyEnd(f"a transaction is open since offset {stable}")

    @property
    def dirty(self) -> DirtyRange:
        """The range to map."""
        return DirtyRange(
            segments=[each.files(self.log.directory) for each in self.closed],
            first_dirty_offset=self.first_dirty_offset,
            first_uncleanable_offset=self.end_offset,
            aborted=self.surveyed.aborted,
        )

    def groups(self, before_offset: int) -> list[Sequence[ListedSegment]]:
        """Return the groups of the segments that begin before an offset, in order."""
        wanted = [each for each in self.closed if each.base_offset < min(before_offset, self.end_offset)]
        sized = with_index_sizes(self.log.directory, wanted)
        return list(group_segments_by_size(sized, self.log.config, self.end_offset))

    def request(self) -> CleanRequest:
        """Return the settings of all groups."""
        log = self.log
        config = log.config
        clean = [each.modified_ms for each in self.closed if each.base_offset < log.first_dirty_offset]
        is_kept = config.compression_type == "producer"
        return CleanRequest(
            now_ms=log.now_ms,
            delete_retention_ms=config.delete_retention_ms,
            legacy_delete_horizon_ms=clean[-1] - config.delete_retention_ms if clean else 0,
            cleaning_end_offset=self.end_offset,
            producers=self.surveyed.producers,
            codec=None if is_kept else config.codec,
            level=0 if is_kept else config.compression_level,
            index_interval_bytes=config.index_interval_bytes,
            erased=None if log.erased_keys is None else KeySet(log.erased_keys, log.hash_key),
        )

    def clean(
        self,
        group: Sequence[ListedSegment],
        later: LaterRecords,
        shared: tuple[CleanedTransactions, CleanRequest],
        owner: Owner,
    ) -> CleanedSegment:
        """Clean a group, and swap the new segment in if it differs.

        Args and errors are those of `write`.
        """
        cleaned = self.write(group, later, shared, owner)
        if not cleaned.is_unchanged:
            swap_in(cleaned, [each.base_offset for each in group], owner)
        return cleaned

    def write(
        self,
        group: Sequence[ListedSegment],
        later: LaterRecords,
        shared: tuple[CleanedTransactions, CleanRequest],
        owner: Owner,
    ) -> CleanedSegment:
        """Clean a group; the new segment, if it differs, lies beside it, durable.

        Args:
            later: later records of the group's keys.
            shared: by all groups that one process cleans, in their order.
            owner: checked before each step that can't be undone.

        Raises:
            CorruptBatchError: a batch is damaged.
            InvalidConfigError: the new segment would be too large.
        """
        files = [each.files(self.log.directory) for each in group]
        cleaned = clean_segments(files, later, *shared, owner)
        reach("clean.cleaned")
        if cleaned.size_bytes > _LARGEST_BYTES:
            drop_cleaned(cleaned)
            raise InvalidConfigError(
                f"a segment of {cleaned.size_bytes} bytes is too large for an index: file={files[0].log_path}"
                f" compression.type={self.log.config.compression_type}; batches that are built again grow with it"
            )
        if cleaned.is_unchanged:
            drop_cleaned(cleaned)
        return cleaned


def prepare_round(log: LogToClean, owner: Owner) -> CleaningRound:
    """Finish an earlier round, survey the log, and return a new round; the caller holds the log alone."""
    finish_own_swaps(log.directory, log.end.segment_base, owner)
    return survey_round(log)


def survey_round(log: LogToClean) -> CleaningRound:
    """Return a round over a log without unfinished swaps; the caller holds it.

    Raises:
        CorruptBatchError, CorruptFileError: the log is damaged; names file and position.
    """
    segments = list_cleanable_segments(log.directory, log.end, log.log_start_offset)
    every = SegmentList(log.directory, log.end.log_end_offset)
    surveyed = survey_transactions(every, log.log_start_offset, log.now_ms)
    return CleaningRound(
        log=log,
        closed=segments[:-1],
        surveyed=surveyed,
        first_dirty_offset=min(log.first_dirty_offset, log.end.log_end_offset),
        end_offset=_range_end(log, segments, surveyed),
    )


def lacks_room(directory: Path, group: Sequence[ListedSegment]) -> EarlyEnd | None:
    """Return why the disk can't hold a group's new segment, which lies beside the old ones until their removal."""
    needed = sum(each.size_bytes + each.index_bytes + each.time_index_bytes for each in group)
    with storage_errors(directory):
        found = os.statvfs(directory)
    free = found.f_bavail * found.f_frsize
    if needed <= free:
        return None
    first, last = group[0].base_offset, group[-1].next_offset - 1
    reason = f"not enough disk for offsets {first}..{last}: needed_bytes={needed} free_bytes={free}"
    return EarlyEnd(reason, is_short_of_disk=True)


def result_of_round(
    written: Sequence[tuple[Sequence[ListedSegment], CleanedSegment]],
    first_dirty_offset: int,
    built: BuiltMap | None,
    stopped: EarlyEnd | None,
) -> CleanedLog:
    """Return a round's result.

    Args:
        written: groups and their new segments.
        first_dirty_offset: start of the next round.
        built: extent of the map; None without a dirty part.
    """
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
        erased={base: count for _, cleaned in written for base, count in cleaned.erased.items()},
        counts=counts,
        stopped=stopped,
    )


def _range_end(log: LogToClean, segments: Sequence[ListedSegment], surveyed: SurveyedLog) -> int:
    """Return the base of the first segment that is not cleaned; the survey may have found an open transaction."""
    limit = min(log.first_uncleanable_offset, surveyed.last_stable_offset)
    bases = [each.base_offset for each in segments if each.base_offset <= limit]
    return bases[-1] if bases else segments[0].base_offset
