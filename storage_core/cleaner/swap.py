"""Swaps a cleaned segment in for its old ones, under readers and beside a running sink.

Each step is synced before the next one begins:

| crash after                        | left on the disk                          | the next load, or cleaning        |
|------------------------------------|-------------------------------------------|-----------------------------------|
| the new segment is written         | `.cleaned` files                          | drops them                        |
| some of its files are `.swap`      | `.cleaned` and `.swap` files              | drops both                        |
| all of its files are `.swap`       | a complete replacement                    | drops the old segments, continues |
| some of the old ones are `.deleted`| the same                                  | the same                          |
| some of its files have their names | its `.log`, so it is not a swap any more  | renames the others                |

The new segment counts from its `.swap` names on: readers use it if the old name is gone. Readers that have the old
files open, or listed them and open them within `file.delete.delay.ms`, still read the old records.

After a crash an old segment that lies above the last batch of the new one may stay: the names of a replacement do not
show its end. The cleaning kept no record of that segment, and the next one gives the same result, as it begins at the
same offset: the checkpoint is recorded only after the last step.

As for a broker, a log has one unfinished replacement at a time: all segments between two complete ones count as
replaced, and `.cleaned` files void each `.swap` at their offset or above. So several replacements are swapped in by
rising offsets, after all are written and no other such file is left.

Source: Kafka LocalLog.replaceSegments, UnifiedLog.replaceSegments.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sparklog.storage_core.cleaner.hold_log import held_alone
from sparklog.storage_core.cleaner.rewrite.clean_segments import CleanedSegment
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.log.files.deleted_files import drop_deleted, mark_replaced
from sparklog.storage_core.log.files.names import CLEANED, DELETED, LOG, SWAP, segment_file_name
from sparklog.storage_core.log.load.finish_leftovers import carry_out_leftovers, list_files, read_leftovers
from sparklog.storage_core.log.load.plan import LeftoverPlan, name_offset, plan_segments
from sparklog.storage_core.storage.local import storage_errors, sync_directory
from sparklog.storage_core.storage.owned_names import Owner, remove_file, remove_unique, rename

__all__ = ["drop_cleaned", "drop_others", "finish_own_swaps", "finish_swaps", "has_swaps", "swap_in"]


def swap_in(cleaned: CleanedSegment, base_offsets: Sequence[int], owner: Owner) -> None:
    """Replace segments by a cleaned one, durably.

    Args:
        cleaned: written and synced.
        base_offsets: of the old segments, rising; the first is its own.
        owner: checked before each rename.

    Raises:
        StorageError: the disk refused; loading the log, or the next cleaning, finishes or undoes it.
    """
    directory = cleaned.paths[0].parent
    log_last = sorted(cleaned.paths, key=lambda path: path.name.endswith(LOG + CLEANED))
    swaps = [path.with_suffix(SWAP) for path in log_last]
    with storage_errors(directory):
        for path, swap in zip(log_last, swaps, strict=True):
            rename(owner, path, swap)
        sync_directory(directory)
        reach("clean.swap")
        mark_replaced(directory, base_offsets, owner)
        reach("clean.deleted")
        for swap in reversed(swaps):
            rename(owner, swap, swap.with_suffix(""))
        sync_directory(directory)
    reach("clean.renamed")


def drop_others(directory: Path, cleaned: Sequence[CleanedSegment], active_base_offset: int) -> None:
    """Remove, durably, `.cleaned` files below the active segment that belong to none of these segments."""
    kept = {path.name for each in cleaned for path in each.paths}
    border = segment_file_name(active_base_offset, "")
    drop_deleted(
        directory,
        [name for name in list_files(directory) if name.endswith(CLEANED) and name < border and name not in kept],
    )


def drop_cleaned(cleaned: CleanedSegment) -> None:
    """Remove a cleaned segment that is not needed."""
    with storage_errors(cleaned.paths[0].parent):
        for path in cleaned.paths:
            remove_unique(path)


def has_swaps(directory: Path, active_base_offset: int) -> bool:
    """Whether a crashed cleaning left temporary files below the active segment."""
    with storage_errors(directory):
        on_their_way = [name for name in os.listdir(directory) if name.endswith((CLEANED, SWAP))]
    return any(name.partition(".")[0] < f"{active_base_offset:020d}" for name in on_their_way)


def finish_swaps(directory: Path, active_base_offset: int, owner: Owner) -> None:
    """Finish or undo the swaps of a crashed cleaning below the active segment.

    Indexes whose `.log` it has renamed are removed, too; another index without a `.log` shows a lost segment, and
    stays. `.deleted` files stay until their delay has passed.

    Raises:
        CorruptFileError: a replacement is damaged, or a temporary file has no offset; nothing was changed.
        StoreLockedError: the cleaning still runs.
        StorageError: the disk refused; the next call continues.
    """
    with held_alone(directory):
        finish_own_swaps(directory, active_base_offset, owner)


def finish_own_swaps(directory: Path, active_base_offset: int, owner: Owner) -> None:
    """As `finish_swaps`, for a caller that holds the log alone."""
    names = list_files(directory)
    plan = replace(read_leftovers(directory, names, active_base_offset), deleted=())
    left = _left_indexes(names, plan, active_base_offset)
    if left:  # first: after a crash here the unfinished replacement leads back to this step
        with storage_errors(directory):
            for name in left:
                remove_file(owner, directory / name)
        sync_directory(directory)
    if plan:
        carry_out_leftovers(directory, plan, owner)


def _left_indexes(names: Sequence[str], plan: LeftoverPlan, active_base_offset: int) -> list[str]:
    """Return the indexes without a `.log` that a replacement was about to rename.

    Their `.log` is `.deleted`, or they lie between the replacement and the next kept segment: a power cut may keep only
    some of the new names. Those of the active segment belong to the sink.
    """
    swaps = [name_offset(name) for name in plan.renamed if name.endswith(LOG + SWAP)]
    found = plan_segments(names)
    logs = [base for base in found.base_offsets if segment_file_name(base, LOG) not in plan.replaced]

    def is_left(base_offset: int) -> bool:
        if segment_file_name(base_offset, LOG + DELETED) in names:
            return True
        before = bisect_left(logs, base_offset)
        return any((logs[before - 1] if before else -1) < swap <= base_offset for swap in swaps)

    return [name for name in found.orphans if name_offset(name) < active_base_offset and is_left(name_offset(name))]
