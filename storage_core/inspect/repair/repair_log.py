"""Carries out what `repair_plan` decided for one log.

Order, and what a crash after each step leaves for the next repair to find:
1. leftovers go, an interrupted replacement is finished: fewer leftovers;
2. (the caller writes the lost offsets down: written down, and still there;)
3. what is to go is kept beside: kept, and still there, and kept under the same name again;
4. segments and indexes are replaced, one after the other: fewer findings;
5. small files are written: fewer findings.
"""

from __future__ import annotations

import filecmp
import itertools
import logging
import os
from dataclasses import dataclass
from pathlib import Path

from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.inspect.repair.plan import LogRepair, SegmentRewrite
from sparklog.storage_core.inspect.repair.repair_segment import SegmentRepairer
from sparklog.storage_core.inspect.repair.swaps import finish_swaps
from sparklog.storage_core.inspect.verify.findings import LogReport
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.storage.copy_range import copy_range
from sparklog.storage_core.storage.local import make_directory, storage_errors, sync_directory
from sparklog.storage_core.storage.open_regular import open_reader, open_to_change
from sparklog.storage_core.storage.owned_names import UNSHARED, Owner, replace_file

__all__ = ["RepairPlace", "drop_leftovers", "keep_bytes", "repair_log"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPlace:
    """Where a log is repaired.

    Attributes:
        directory: of the log.
        keep_in: folder that takes what goes; it gets a folder per log.
        index_interval_bytes: Kafka's `index.interval.bytes`, for the indexes that are built.
        leader_epoch: of an empty batch at the end whose offsets have none in `leader-epoch-checkpoint`.
        committed: (base offset, bytes) of the active segment that count; None where all bytes do.
        owner: its check raises once another one owns the log.
    """

    directory: Path
    keep_in: Path
    index_interval_bytes: int
    leader_epoch: int = 0
    committed: tuple[int, int] | None = None
    owner: Owner = UNSHARED

    @property
    def kept(self) -> Path:
        """Folder of what this log loses."""
        return self.keep_in / self.directory.name


def drop_leftovers(repair: LogRepair, place: RepairPlace) -> None:
    """Remove what no log has any use for, and finish an interrupted replacement of segments."""
    if repair.has_swaps:
        finish_swaps(place.directory, place.owner)
    with storage_errors(place.directory):
        for name in repair.leftovers:
            place.owner.check()
            (place.directory / name).unlink(missing_ok=True)
            reach("repair.dropped")
        if repair.leftovers:
            sync_directory(place.directory)


def repair_log(repair: LogRepair, report: LogReport, place: RepairPlace) -> None:
    """Carry out a plan on a log's files; its lost offsets are recorded by then.

    Args:
        repair: the plan.
        report: of the check that the plan was made from.
        place: where.

    Raises:
        StorageError: the disk refused; what was done is done, and the next repair continues.
    """
    if repair.makes_directory:
        with storage_errors(place.directory):
            place.owner.check()
            make_directory(place.directory)
    segments = SegmentRepairer(
        directory=place.directory,
        index_interval_bytes=place.index_interval_bytes,
        leader_epoch=place.leader_epoch,
        owner=place.owner,
    )
    for rewrite in repair.rewrites:
        _keep_left_out(rewrite, place)
        segments.rewrite(rewrite, report.aborted.get(rewrite.base_offset, ()))
        logger.info("Repaired a segment log=%s base_offset=%d", repair.log, rewrite.base_offset)
    for base in repair.rebuilds:
        segments.rebuild(base, _used_bytes(base, place), report.aborted.get(base, ()))
        logger.info("Rebuilt the indexes of a segment log=%s base_offset=%d", repair.log, base)
    for name in repair.dropped:
        _drop(name, place)
    with storage_errors(place.directory):
        for name, content in repair.written.items():
            replace_file(place.owner, place.directory / name, content)


def _used_bytes(base_offset: int, place: RepairPlace) -> int:
    if place.committed is not None and place.committed[0] == base_offset:
        return place.committed[1]
    with storage_errors(place.directory):
        return (place.directory / segment_file_name(base_offset, LOG)).stat().st_size


def _keep_left_out(rewrite: SegmentRewrite, place: RepairPlace) -> None:
    name = segment_file_name(rewrite.base_offset, LOG)
    for start, end in rewrite.left_out:
        keep_bytes(place.directory / name, start, end, place.kept / f"{name}.{start}-{end}")
    reach("repair.kept")


def _drop(name: str, place: RepairPlace) -> None:
    path = place.directory / name
    with storage_errors(path):
        keep_bytes(path, 0, path.stat().st_size, place.kept / name)
        place.owner.check()
        path.unlink()
        sync_directory(place.directory)
    reach("repair.dropped")


def keep_bytes(source: Path, start: int, end: int, target: Path) -> Path:
    """Copy bytes of a file to one of their own, durably; return its path.

    What is already kept under that name stays: the same bytes are not kept twice, others get a number.
    """
    with storage_errors(target):
        make_directory(target.parent)
        unfinished = target.with_name(target.name + ".tmp")
        descriptor = open_to_change(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            with open_reader(source) as reader:
                copy_range(reader.fileno(), start, descriptor, 0, end - start)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        for number in itertools.count(2):
            if not target.exists() or filecmp.cmp(unfinished, target, shallow=False):
                break
            target = target.with_name(f"{target.name.partition('~')[0]}~{number}")
        unfinished.replace(target)
        sync_directory(target.parent)
    return target
