"""The `leader-epoch-checkpoint` of a log: the start offset of each leader epoch.

Entries are (epoch, start offset), both strictly increasing.

Source: Kafka LeaderEpochCheckpointFile, LeaderEpochFileCache.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.checkpoint.checkpoint_lines import (
    parse_checkpoint_lines,
    parse_integer,
    render_checkpoint_lines,
)
from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.log_config import INT32_MAX, INT64_MAX

__all__ = [
    "EPOCHS_NAME",
    "assign_batch_epochs",
    "assign_leader_epoch",
    "end_offset_for",
    "parse_leader_epochs",
    "render_leader_epochs",
    "truncate_epochs_from_end",
    "truncate_epochs_from_start",
]

EPOCHS_NAME: Final = "leader-epoch-checkpoint"
"""The file's name."""


def render_leader_epochs(entries: Sequence[tuple[int, int]]) -> bytes:
    """Return the file's bytes."""
    return render_checkpoint_lines(f"{epoch} {start_offset}" for epoch, start_offset in entries)


def parse_leader_epochs(data: bytes) -> list[tuple[int, int]]:
    """Return the (epoch, start offset) entries.

    Raises:
        CorruptFileError: not an epoch file, or epochs or start offsets do not increase.
    """
    entries = [
        (
            parse_integer(epoch, "epoch", 0, INT32_MAX),
            parse_integer(offset, f"start offset of epoch {epoch}", 0, INT64_MAX),
        )
        for epoch, offset in parse_checkpoint_lines(data, 2)
    ]
    for before, after in pairwise(entries):
        if after[0] <= before[0] or after[1] <= before[1]:
            raise CorruptFileError(
                f"leader epochs do not increase: {before[0]} {before[1]} is followed by {after[0]} {after[1]}"
            )
    return entries


def assign_leader_epoch(entries: Sequence[tuple[int, int]], epoch: int, start_offset: int) -> list[tuple[int, int]]:
    """Return the entries after `epoch` took over at `start_offset`.

    The latest epoch again, not starting lower, changes nothing. Otherwise entries that contradict the new one are
    dropped: those with its epoch or a later one, and those that start at its offset or above.

    Raises:
        ValueError: epoch or start offset is negative.
    """
    if epoch < 0 or start_offset < 0:
        raise ValueError(f"leader epoch can't be assigned: epoch={epoch} start_offset={start_offset}")
    kept = list(entries)
    if kept and epoch == kept[-1][0] and start_offset >= kept[-1][1]:
        return kept
    while kept and (kept[-1][0] >= epoch or kept[-1][1] >= start_offset):
        kept.pop()
    return [*kept, (epoch, start_offset)]


def assign_batch_epochs(
    entries: Sequence[tuple[int, int]], leader_epoch: npt.NDArray[np.int32], base_offset: npt.NDArray[np.int64]
) -> list[tuple[int, int]]:
    """Return the entries after batches of format v2 that a recovery scans, (b,) each.

    A batch counts if its epoch is not negative and later than the latest known one. So entries without a batch stay: a
    leader records its epoch before it appends. Batches of v0 and v1 have no epoch and are skipped; an append of such a
    batch clears the file, as in Kafka.

    Source: Kafka LogSegment.recover.
    """
    kept = list(entries)
    if not len(leader_epoch) or leader_epoch.max() <= (kept[-1][0] if kept else -1):
        return kept
    latest = np.maximum.accumulate(np.maximum(leader_epoch, -1).astype(np.int64))
    rises = np.flatnonzero(np.diff(latest, prepend=-1) > 0)
    for epoch, start_offset in zip(latest[rises].tolist(), base_offset[rises].tolist(), strict=True):
        if not kept or epoch > kept[-1][0]:
            kept = assign_leader_epoch(kept, epoch, start_offset)
    return kept


def end_offset_for(entries: Sequence[tuple[int, int]], epoch: int, log_end_offset: int) -> int | None:
    """Return where the offsets of an epoch and of those before it end; None for an epoch above all that are known.

    An offset at or below this end, of a record of that epoch, is still the same record.

    Source: Kafka LeaderEpochFileCache.endOffsetFor.
    """
    if entries and epoch == entries[-1][0]:
        return log_end_offset
    return next((start_offset for each, start_offset in entries if each > epoch), None)


def truncate_epochs_from_end(entries: Sequence[tuple[int, int]], end_offset: int) -> list[tuple[int, int]]:
    """Return the entries of a log that ends at an offset: those that start at or above it are dropped; below 0 none."""
    return [entry for entry in entries if entry[1] < end_offset or end_offset < 0]


def truncate_epochs_from_start(entries: Sequence[tuple[int, int]], start_offset: int) -> list[tuple[int, int]]:
    """Return the entries of a log that starts at an offset: the epoch at that offset starts there."""
    before = [entry for entry in entries if entry[1] <= start_offset]
    after = [entry for entry in entries if entry[1] > start_offset]
    return [(before[-1][0], start_offset), *after] if before else after
