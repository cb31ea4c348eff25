"""Finishes or undoes what a crash interrupted in a log directory: replacements of segments, and removals.

Every step may be the last one before the process is killed; the same passes, run again, come to the same end:
- swaps that are void go before the `.cleaned` files that show it, and those names are durable first;
- originals go before a replacement takes its name, durably: names that outlived a power cut while removals did not
  would leave records twice;
- a segment's `.log` takes its name first: as long as it is a swap, originals in its range go, and an index that had
  taken its name before would be one of them.

Source: Kafka LogLoader.load; spec of the replacement: LocalLog.replaceSegments.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.log.files.names import SWAP
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.load.plan import LeftoverPlan, complete_swap_logs, name_offset, plan_leftovers
from sparklog.storage_core.log.scan.segment_order import SegmentOrder
from sparklog.storage_core.log.scan.segment_reader import SegmentReader
from sparklog.storage_core.storage.local import storage_errors, sync_directory
from sparklog.storage_core.storage.owned_names import Owner, remove_file, rename

__all__ = ["carry_out_leftovers", "finish_leftovers", "list_files", "read_leftovers"]


def finish_leftovers(
    directory: Path,
    owner: Owner,
    below: int | None = None,
    reached: Callable[[str], None] = reach,
) -> LeftoverPlan:
    """Bring a directory to what a broker makes of it: nothing is left on its way.

    Args:
        directory: of a log.
        owner: its check raises once another one owns the log.
        below: leave `.cleaned` and `.swap` files at this base offset or above alone. A sink's own unpublished segments
            start at its active one or above it, and are undone by it.
        reached: called with the fault point after each step.

    Returns:
        what was done.

    Raises:
        CorruptFileError: a replacement is damaged, or a file on its way has no offset; nothing was changed.
        StorageError: the disk refused; what was done is done, and the next call continues.
    """
    plan = read_leftovers(directory, list_files(directory), below)
    carry_out_leftovers(directory, plan, owner, reached)
    return plan


def list_files(directory: Path) -> list[str]:
    """Return the names of the regular files in a directory.

    Raises:
        StorageError: it can't be read.
    """
    with storage_errors(directory), os.scandir(directory) as entries:
        return [each.name for each in entries if each.is_file()]


def read_leftovers(directory: Path, names: Collection[str], below: int | None = None) -> LeftoverPlan:
    """Return what `finish_leftovers` would do; of files only complete replacements are read, all of each.

    Raises:
        CorruptFileError: as there.
    """
    ends = {name: _next_offset(directory / name) for name in complete_swap_logs(names, below)}
    return plan_leftovers(names, ends, below)


def carry_out_leftovers(
    directory: Path,
    plan: LeftoverPlan,
    owner: Owner,
    reached: Callable[[str], None] = reach,
) -> None:
    """Carry out a plan, durably.

    Raises:
        StorageError: the disk refused; what was done is done.
    """
    with storage_errors(directory):
        _remove(owner, directory, (*plan.deleted, *plan.void_swaps), lambda: reached("load.dropped"))
        _remove(owner, directory, plan.cleaned, lambda: reached("load.dropped"))
        _remove(owner, directory, plan.replaced, lambda: reached("load.replaced"))
        for name in plan.renamed:
            rename(owner, directory / name, directory / name.removesuffix(SWAP))
            reached("load.renamed")
        if plan.renamed:
            sync_directory(directory)


def _remove(owner: Owner, directory: Path, names: Sequence[str], reached: Callable[[], None]) -> None:
    for name in names:
        remove_file(owner, directory / name)
        reached()
    if names:
        sync_directory(directory)


def _next_offset(path: Path) -> int:
    """Return the offset after a replacement's last batch.

    A broker takes it from the last headers. Here every CRC and offset is checked before anything goes for it: originals
    that are still there are the only sound copy of what a damaged replacement stands for.
    """
    with SegmentReader(SegmentFiles(name_offset(path.name), path)) as reader:
        order = SegmentOrder(reader)
        error = order.follow(reader.chunks())
        if error is not None:
            raise CorruptFileError(f"a replacement of segments is damaged: {error}") from error
        if reader.valid_bytes != reader.size_bytes:
            raise CorruptFileError(f"a replacement of segments is torn: path={path} position={reader.valid_bytes}")
    return order.previous + 1
