"""How a loading changes a log directory: on the disk, or in a plan alone.

A loading decides as it goes, from what it has read so far; each decision is carried out before the next is taken. So
one and the same code shows what would be done and does it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from sparklog.storage_core.checkpoint.leader_epochs import render_leader_epochs
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.log.files.deleted_files import mark_deleted
from sparklog.storage_core.log.files.names import LOG, SNAPSHOT, segment_file_name
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.load.finish_leftovers import carry_out_leftovers
from sparklog.storage_core.log.load.plan import LeftoverPlan
from sparklog.storage_core.log.load.recover_segment import SegmentRecovery, recover_segment
from sparklog.storage_core.log.load.split_segment import SplitPart, split_segment
from sparklog.storage_core.log.load.survey import EPOCH_FILE
from sparklog.storage_core.storage.local import storage_errors, sync_directory
from sparklog.storage_core.storage.open_regular import open_to_change
from sparklog.storage_core.storage.owned_names import UNSHARED, Owner, remove_file, replace_file

__all__ = ["DiskChanges", "LoadChanges", "NotedChanges", "PlannedChanges"]


class LoadChanges(Protocol):
    """What a loading asks for, in this order of time."""

    def finish_leftovers(self, plan: LeftoverPlan, files: Mapping[str, str]) -> Mapping[str, str]:
        """Finish or undo what is on its way; return under which name each file lies from now on.

        Args:
            plan: what is to be done.
            files: the names that are there afterwards, each with the one its file has now.
        """

    def drop(self, names: Collection[str]) -> None:
        """Remove files."""

    def add_empty(self, name: str) -> None:
        """Make an empty file."""

    def delete_segments(self, bases: Collection[int]) -> None:
        """Rename segments and their snapshots to `.deleted`."""

    def recover(self, recovery: SegmentRecovery) -> SegmentFiles | None:
        """Cut a segment and replace its indexes; return where it can be read from now on, None if nowhere."""

    def split(self, files: SegmentFiles, parts: Sequence[SplitPart]) -> list[SegmentFiles]:
        """Replace a segment by its parts; return the segments that take its place."""

    def write_epochs(self, entries: Sequence[tuple[int, int]]) -> None:
        """Write the file of leader epochs."""

    def write_snapshots(self, dropped: Collection[int], written: Mapping[int, bytes]) -> None:
        """Remove and write producer snapshots."""


class PlannedChanges:
    """Changes nothing: the steps that follow are planned as if it had been."""

    def finish_leftovers(self, plan: LeftoverPlan, files: Mapping[str, str]) -> Mapping[str, str]:  # noqa: ARG002
        """Do nothing: files are read where they are."""
        return files

    def drop(self, names: Collection[str]) -> None:
        """Do nothing."""

    def add_empty(self, name: str) -> None:
        """Do nothing."""

    def delete_segments(self, bases: Collection[int]) -> None:
        """Do nothing."""

    def recover(self, recovery: SegmentRecovery) -> SegmentFiles | None:
        """Return where the segment is; after a truncation that was only planned, the rest must not be read."""
        return None if recovery.cut_bytes else recovery.files

    def split(self, files: SegmentFiles, parts: Sequence[SplitPart]) -> list[SegmentFiles]:  # noqa: ARG002
        """Return the segment itself: it holds what its parts would."""
        return [files]

    def write_epochs(self, entries: Sequence[tuple[int, int]]) -> None:
        """Do nothing."""

    def write_snapshots(self, dropped: Collection[int], written: Mapping[int, bytes]) -> None:
        """Do nothing."""


class NotedChanges(PlannedChanges):
    """Changes nothing, and keeps what was asked for, so that a copy can be made of the log as it would be then.

    Attributes:
        recoveries: of segments that would be cut or get other indexes, by base offset.
        is_split: whether a segment would be split.
        snapshots: producer snapshots that would be written, by offset.
        dropped: offsets of those that would go.
    """

    def __init__(self) -> None:
        self.recoveries: dict[int, SegmentRecovery] = {}
        self.is_split = False
        self.snapshots: Mapping[int, bytes] = {}
        self.dropped: Collection[int] = ()

    def recover(self, recovery: SegmentRecovery) -> SegmentFiles | None:
        """Note the recovery."""
        self.recoveries[recovery.files.base_offset] = recovery
        return super().recover(recovery)

    def split(self, files: SegmentFiles, parts: Sequence[SplitPart]) -> list[SegmentFiles]:
        """Note that there is a split."""
        self.is_split = True
        return super().split(files, parts)

    def write_snapshots(self, dropped: Collection[int], written: Mapping[int, bytes]) -> None:
        """Note the snapshots."""
        self.dropped, self.snapshots = dropped, written


class DiskChanges:
    """Every change is made, durably, before the next is asked for.

    Args:
        directory: of the log.
        owner: its check raises once another one owns it.
    """

    def __init__(self, directory: Path, owner: Owner = UNSHARED) -> None:
        self._directory = directory
        self._owner = owner

    def finish_leftovers(self, plan: LeftoverPlan, files: Mapping[str, str]) -> Mapping[str, str]:
        """Finish or undo what is on its way."""
        if plan:
            carry_out_leftovers(self._directory, plan, self._owner)
        return {name: name for name in files}

    def drop(self, names: Collection[str]) -> None:
        """Remove files."""
        self._unlink(names, "load.dropped")

    def add_empty(self, name: str) -> None:
        """Make an empty file."""
        path = self._directory / name
        with storage_errors(path):
            self._owner.check()
            os.close(open_to_change(path, os.O_WRONLY | os.O_CREAT))
            sync_directory(self._directory)

    def delete_segments(self, bases: Collection[int]) -> None:
        """Rename segments and their snapshots to `.deleted`; the next loading of the log removes them."""
        gone = frozenset(bases)
        mark_deleted(self._directory, gone.__contains__, self._owner)
        reach("recover.deleted")

    def recover(self, recovery: SegmentRecovery) -> SegmentFiles | None:
        """Cut a segment and replace its indexes."""
        recover_segment(recovery, self._owner)
        return recovery.files

    def split(self, files: SegmentFiles, parts: Sequence[SplitPart]) -> list[SegmentFiles]:
        """Replace a segment by its parts."""
        split_segment(files, parts, self._owner)
        return [
            SegmentFiles(part.base_offset, self._directory / segment_file_name(part.base_offset, LOG)) for part in parts
        ]

    def write_epochs(self, entries: Sequence[tuple[int, int]]) -> None:
        """Write the file of leader epochs."""
        path = self._directory / EPOCH_FILE
        with storage_errors(path):
            replace_file(self._owner, path, render_leader_epochs(entries))

    def write_snapshots(self, dropped: Collection[int], written: Mapping[int, bytes]) -> None:
        """Remove producer snapshots, then write others: the newest one that is there is believed."""
        self._unlink([segment_file_name(offset, SNAPSHOT) for offset in dropped], "recover.snapshot")
        for offset, content in written.items():
            path = self._directory / segment_file_name(offset, SNAPSHOT)
            with storage_errors(path):
                replace_file(self._owner, path, content)
            reach("recover.snapshot")

    def _unlink(self, names: Collection[str], point: str) -> None:
        if not names:
            return
        with storage_errors(self._directory):
            for name in names:
                remove_file(self._owner, self._directory / name)
                reach(point)
            sync_directory(self._directory)
