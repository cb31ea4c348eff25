"""A round over a log that exceeds one map, cut into parts that several tasks clean in any order.

    survey of the log -> a part for each group of segments
    keys of each part -> elsewhere: the latest dirty offset of each key, and the records below it
    each part is rewritten beside the log, without its superseded records
    all written parts are swapped in, one after the other

A part's task gets only this of the rest of the log: the aborted transactions that overlap its group, and the producers
whose open transactions have data below it. Both are of the log before the round. So the order of parts, and parts that
are never cleaned, do not matter:

| dropped                        | why no deleted record comes back, also without other parts                         |
|--------------------------------|------------------------------------------------------------------------------------|
| a superseded record            | the latest one of its key stays in its part: a value, or a tombstone that is held  |
| data of an aborted transaction | its marker stays: the transaction had data when the round began                    |
| a marker                       | only if its transaction had no data anywhere when the round began                  |
| a tombstone of the clean part  | the round before dropped all records below it that have its key                    |

A tombstone of the dirty part stays, old or to be erased: its deleted records may lie in a part that is not cleaned. The
next round finds it in its clean part and drops it by the usual rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.cleaner.cleaning_round import (
    CleanedLog,
    CleaningRound,
    EarlyEnd,
    lacks_room,
    result_of_round,
)
from sparklog.storage_core.cleaner.hold_log import held_alone, held_group
from sparklog.storage_core.cleaner.keys.build_map import BuiltMap, DirtyRange
from sparklog.storage_core.cleaner.keys.dirty_keys import Keys, iter_dirty_keys
from sparklog.storage_core.cleaner.keys.superseded import SupersededOffsets
from sparklog.storage_core.cleaner.rewrite.clean_segments import CleanedSegment
from sparklog.storage_core.cleaner.survey.aborted_columns import NONE_ABORTED
from sparklog.storage_core.cleaner.survey.cleaned_transactions import CleanedTransactions
from sparklog.storage_core.cleaner.survey.listed_segments import ListedSegment
from sparklog.storage_core.cleaner.swap import drop_others, swap_in
from sparklog.storage_core.storage.owned_names import Owner

__all__ = [
    "CleanedPart",
    "CleaningPart",
    "cut_into_parts",
    "part_keys",
    "result_of_parts",
    "swap_in_parts",
    "write_part",
]


@dataclass(frozen=True, slots=True)
class CleaningPart:
    """A group of segments for one task.

    Attributes:
        group: segments that become one.
        transactions: state at the group's first offset.
    """

    number: int
    group: Sequence[ListedSegment]
    transactions: CleanedTransactions


@dataclass(frozen=True, slots=True)
class CleanedPart:
    """Result of a part.

    Attributes:
        number: of the part, and `group`: its segments.
        cleaned: the new segment; None if the part was skipped.
        problem: why it was skipped.
    """

    number: int
    group: Sequence[ListedSegment]
    cleaned: CleanedSegment | None = None
    problem: EarlyEnd | None = None


def cut_into_parts(round_: CleaningRound) -> tuple[CleaningRound, Iterator[CleaningPart]]:
    """Return the shared part of a round, and its parts in offset order."""
    groups = round_.groups(round_.end_offset)
    shared = replace(round_, surveyed=replace(round_.surveyed, aborted=NONE_ABORTED, borders=()))
    parts = (
        CleaningPart(number, group, round_.surveyed.transactions_of(group[0].base_offset, group[-1].next_offset))
        for number, group in enumerate(groups)
    )
    return shared, parts


def part_keys(shared: CleaningRound, part: CleaningPart, check_owner: Callable[[], None]) -> Iterator[Keys]:
    """As `iter_dirty_keys`, for the records of a part.

    Args:
        check_owner: called every few MiB; raises after a takeover.

    Raises:
        CorruptBatchError: a batch is damaged; names file and position.
        InvalidRecordError: a dirty record of format v2 has no key; names offset and file.
    """
    for segment in part.group:
        one = DirtyRange(
            segments=[segment.files(shared.log.directory)],
            first_dirty_offset=shared.first_dirty_offset,
            first_uncleanable_offset=segment.next_offset,
            aborted=part.transactions.aborted,
        )
        yield from iter_dirty_keys(one, shared.log.hash_key, check_owner)


def write_part(
    shared: CleaningRound,
    part: CleaningPart,
    superseded: Iterable[npt.NDArray[np.int64]],
    owner: Owner,
) -> CleanedPart:
    """Write a part's remaining records beside the log, durably; skip it if the disk lacks room.

    Args:
        part: to clean, once.
        superseded: offsets of its superseded records, rising; read as needed.
        owner: checked every few MiB.

    Raises:
        CorruptBatchError: a batch is damaged.
        InvalidConfigError: the new segment would be too large.
        StoreLockedError: another task holds the group, or has replaced it.
    """
    log = shared.log
    owner.check()
    if problem := lacks_room(log.directory, part.group):
        return CleanedPart(part.number, part.group, problem=problem)
    request = replace(shared.request(), tombstones_stay_from=shared.first_dirty_offset)
    later = SupersededOffsets(superseded, shared.end_offset - 1, log.hash_key)
    with held_group(log.directory, part.group[0].base_offset):
        cleaned = shared.write(part.group, later, (part.transactions, request), owner)
    return CleanedPart(part.number, part.group, cleaned)


def swap_in_parts(shared: CleaningRound, written: Iterable[CleanedPart], owner: Owner) -> None:
    """Swap the written segments in, one by one, and remove orphans of dead tasks.

    Args:
        written: in any order; all tasks on the log have ended.
        owner: checked before each step that can't be undone.

    Raises:
        StoreLockedError: a task still holds the log.
        StorageError: the disk refused; loading the log, or the next cleaning, finishes or undoes the swap.
    """
    log = shared.log
    changed = [
        (each.cleaned, [one.base_offset for one in each.group])
        for each in sorted(written, key=lambda each: each.number)
        if each.cleaned is not None and not each.cleaned.is_unchanged
    ]
    with held_alone(log.directory):
        owner.check()
        drop_others(log.directory, [cleaned for cleaned, _ in changed], log.end.segment_base)
        for cleaned, base_offsets in changed:
            swap_in(cleaned, base_offsets, owner)


def result_of_parts(shared: CleaningRound, count: int, found: Sequence[CleanedPart]) -> CleanedLog:
    """Return a round's result; only a round over all its parts moves the first dirty offset.

    Args:
        found: of finished parts, in any order.
    """
    ordered = sorted(found, key=lambda each: each.number)
    written = [(each.group, each.cleaned) for each in ordered if each.cleaned is not None]
    problem = next((each.problem for each in ordered if each.problem), None)
    built = BuiltMap(end_offset=shared.end_offset, is_full=False, bytes_read=0, records_read=0)
    if problem is not None or len(written) < count:
        return result_of_round(
            written, shared.first_dirty_offset, built, problem or EarlyEnd("a group was not cleaned")
        )
    return result_of_round(written, shared.end_offset, built, shared.open_transaction)
