"""One round of compaction over one log: maps its dirty part, and rewrites every segment up to the end of the map.

    finish an earlier round -> survey -> map of the dirty part -> groups -> clean and swap each of them

A full map ends the round at its latest offset; the next round begins there. After an early stop or a crash the log is
complete, and its first dirty offset is unchanged: only a round over all groups moves it. So a repeated round has the
same result.

Source: Kafka Cleaner.doClean.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparklog.storage_core.cleaner.cleaning_round import (
    CleanedLog,
    CleaningRound,
    EarlyEnd,
    LogToClean,
    lacks_room,
    prepare_round,
    result_of_round,
)
from sparklog.storage_core.cleaner.hold_log import held_alone
from sparklog.storage_core.cleaner.keys.build_map import BuiltMap, build_map
from sparklog.storage_core.cleaner.keys.offset_map import OffsetMap
from sparklog.storage_core.cleaner.rewrite.clean_segments import CleanedSegment
from sparklog.storage_core.cleaner.survey.cleaned_transactions import CleanedTransactions
from sparklog.storage_core.cleaner.survey.listed_segments import ListedSegment
from sparklog.storage_core.errors import CorruptBatchError, CorruptFileError, InvalidRecordError, OffsetOutOfRangeError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.storage.owned_names import Owner

__all__ = ["UNCLEANABLE", "CleanedLog", "LogToClean", "clean_log"]

UNCLEANABLE = (CorruptBatchError, CorruptFileError, InvalidRecordError, OffsetOutOfRangeError)
"""Errors that make a log uncleanable until a repair."""

_TOO_MANY_KEYS = EarlyEnd("its keys exceed the memory of a map")


def clean_log(log: LogToClean, owner: Owner) -> CleanedLog:
    """Clean a log.

    If the disk lacks room for a group the round ends: markers in later groups depend on its batches.

    Args:
        owner: checked before each step that can't be undone.

    Raises:
        CorruptBatchError, CorruptFileError: the log is damaged; names file and position.
        InvalidRecordError: a record of format v2 has no key.
        InvalidConfigError: a segment would grow too large by `compression.type`.
        OffsetOutOfRangeError: a segment has offsets outside of an index's range; it must be split first.
        StoreLockedError: another task still holds the log.

    After any error the log is complete; finished groups stay.
    """
    with held_alone(log.directory):
        return _clean(log, owner)


def _clean(log: LogToClean, owner: Owner) -> CleanedLog:
    round_ = prepare_round(log, owner)
    first_dirty, end_offset = round_.first_dirty_offset, round_.end_offset
    if end_offset <= first_dirty and log.erased_keys is None:
        return CleanedLog(first_dirty_offset=first_dirty, stopped=round_.open_transaction)
    offset_map, built = _map(round_, owner)
    if built is not None and built.is_full and log.leaves_large:
        return CleanedLog(first_dirty_offset=first_dirty, built=built, stopped=_TOO_MANY_KEYS)
    next_dirty = first_dirty if built is None else built.end_offset
    last = end_offset if log.erased_keys is not None else next_dirty
    shared = CleanedTransactions(round_.surveyed.aborted), round_.request()
    written: list[tuple[Sequence[ListedSegment], CleanedSegment]] = []
    for group in round_.groups(last):
        owner.check()  # a new owner may have replaced the files; its error is clearer than a missing file
        if problem := lacks_room(log.directory, group):
            return result_of_round(written, first_dirty, built, problem)
        written.append((group, round_.clean(group, offset_map, shared, owner)))
    reach("clean.checkpoint")
    is_full = built is not None and built.is_full
    full = EarlyEnd(f"the map was full at offset {next_dirty}") if is_full else None
    return result_of_round(written, next_dirty, built, full or round_.open_transaction)


def _map(round_: CleaningRound, owner: Owner) -> tuple[OffsetMap, BuiltMap | None]:
    """Return the map of the dirty part; without one an empty map that covers the clean part."""
    offset_map = OffsetMap(round_.log.map_bytes, round_.log.hash_key)
    if round_.first_dirty_offset >= round_.end_offset:
        offset_map.latest_offset = round_.end_offset - 1
        return offset_map, None
    return offset_map, build_map(round_.dirty, offset_map, owner.check)
