"""Writes one segment anew: damaged bytes left out, header fields set, an empty batch at its end, indexes rebuilt.

Everything is written under `.cleaned` names first, which are no part of a log: a crash before the first rename leaves
the segment as it was. Then `.log` takes its name, and its indexes theirs, `.index` last. A crash in between leaves
indexes that contradict their log, which the next check finds and the next repair builds again; a broker must not be
started before that.

Source: Kafka LogSegment.recover; DefaultRecordBatch.writeEmptyHeader.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.index.index_builder import IndexBuilder
from sparklog.storage_core.index.transaction_index import AbortedTransaction, pack_transaction_entries
from sparklog.storage_core.inspect.repair.plan import HeaderPatch, SegmentRewrite
from sparklog.storage_core.log.append.begin_epoch import epoch_below
from sparklog.storage_core.log.files.names import CLEANED, INDEX, LOG, TIMEINDEX, TXNINDEX, segment_file_name
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.scan.segment_reader import SegmentReader
from sparklog.storage_core.record.batch_probe import MAGIC_V2
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, place_of
from sparklog.storage_core.record.v2.empty_batch import pack_empty_batch
from sparklog.storage_core.storage.copy_range import copy_range
from sparklog.storage_core.storage.local import storage_errors, sync_directory, write_all
from sparklog.storage_core.storage.open_regular import open_to_change, open_to_read
from sparklog.storage_core.storage.owned_names import Owner

__all__ = ["SegmentRepairer"]

_EPOCH_AT: Final = place_of("partition_leader_epoch")
_INDEXES: Final = (TIMEINDEX, TXNINDEX, INDEX)
"""In the order in which they take their names: an `.index` without its `.timeindex` would be believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRepairer:
    """Repairs segments of one log.

    Attributes:
        directory: of the log.
        index_interval_bytes: Kafka's `index.interval.bytes`, for the indexes that are built.
        leader_epoch: of an empty batch whose offsets have none in `leader-epoch-checkpoint`.
        owner: its check raises once another one owns the log.
    """

    directory: Path
    index_interval_bytes: int
    leader_epoch: int
    owner: Owner

    def rewrite(self, plan: SegmentRewrite, aborted: Sequence[AbortedTransaction]) -> int:
        """Write a segment anew, durably; return the size of its `.log`.

        Args:
            plan: what changes.
            aborted: what its index of aborted transactions holds.
        """
        log = self.directory / segment_file_name(plan.base_offset, LOG)
        unpublished = log.with_name(log.name + CLEANED)
        with storage_errors(log):
            with _created(unpublished) as target:
                size = _copy_kept(log, target, plan)
                for patch in plan.patches:
                    self._apply(patch, plan, unpublished, target)
                if plan.fill is not None:
                    epoch = epoch_below(self.directory, plan.fill[0] + 1)
                    batch = pack_empty_batch(*plan.fill, self.leader_epoch if epoch is None else epoch)
                    write_all(target, batch, size)
                    size += HEADER_BYTES
                os.fsync(target)
            if log.exists():
                status = log.stat()
                os.utime(unpublished, ns=(status.st_atime_ns, status.st_mtime_ns))  # retention may go by it
            self._write_indexes(plan.base_offset, unpublished, size, aborted)
            reach("repair.written")
            self.owner.check()
            unpublished.replace(log)
            reach("repair.replaced")
            self._publish_indexes(plan.base_offset)
        return size

    def rebuild(self, base_offset: int, used_bytes: int, aborted: Sequence[AbortedTransaction]) -> None:
        """Build a segment's indexes anew, durably, from the first bytes of its `.log`."""
        log = self.directory / segment_file_name(base_offset, LOG)
        with storage_errors(log):
            self._write_indexes(base_offset, log, used_bytes, aborted)
            reach("repair.written")
            self.owner.check()
            self._publish_indexes(base_offset)

    def _apply(self, patch: HeaderPatch, plan: SegmentRewrite, path: Path, target: int) -> None:
        start, end = _moved(patch.start, plan), _moved(patch.end, plan)
        if patch.field == "base_offset":
            write_all(target, patch.value.to_bytes(8, "big", signed=True), start)
            return
        with SegmentReader(SegmentFiles(plan.base_offset, path)) as reader:
            for chunk in reader.chunks(start):
                positions = chunk.scan.position[chunk.scan.magic == MAGIC_V2] + chunk.position
                for position in positions[positions < end].tolist():
                    write_all(target, patch.value.to_bytes(4, "big"), position + _EPOCH_AT)
                if chunk.position + chunk.scan.valid_bytes >= end:
                    return

    def _write_indexes(
        self, base_offset: int, log: Path, used_bytes: int, aborted: Sequence[AbortedTransaction]
    ) -> None:
        builder = IndexBuilder(base_offset, self.index_interval_bytes)
        with SegmentReader(SegmentFiles(base_offset, log)) as reader:
            reader.size_bytes = min(reader.size_bytes, used_bytes)
            for chunk in reader.chunks():
                scan = chunk.scan
                builder.add(scan.position + chunk.position, scan.last_offset, scan.max_timestamp)
        built = builder.finish()
        contents = {INDEX: built.offset_index, TIMEINDEX: built.time_index}
        if aborted:
            contents[TXNINDEX] = pack_transaction_entries(aborted)
        for suffix, data in contents.items():
            with _created(self._unpublished(base_offset, suffix)) as target:
                write_all(target, data, 0)
                os.fsync(target)

    def _publish_indexes(self, base_offset: int) -> None:
        for suffix in _INDEXES:
            name = self.directory / segment_file_name(base_offset, suffix)
            unpublished = self._unpublished(base_offset, suffix)
            if unpublished.exists():
                unpublished.replace(name)
            else:
                name.unlink(missing_ok=True)
        reach("repair.indexed")
        sync_directory(self.directory)

    def _unpublished(self, base_offset: int, suffix: str) -> Path:
        return self.directory / (segment_file_name(base_offset, suffix) + CLEANED)


def _copy_kept(log: Path, target: int, plan: SegmentRewrite) -> int:
    """Copy what stays; return how many bytes that are."""
    if plan.used_bytes == 0:
        return 0
    size = 0
    source = open_to_read(log)
    try:
        for start, end in _kept(plan):
            copy_range(source, start, target, size, end - start)
            size += end - start
    finally:
        os.close(source)
    return size


def _kept(plan: SegmentRewrite) -> Iterator[tuple[int, int]]:
    position = 0
    for start, end in plan.left_out:
        if start > position:
            yield position, start
        position = max(position, end)
    if position < plan.used_bytes:
        yield position, plan.used_bytes


def _moved(position: int, plan: SegmentRewrite) -> int:
    """Return where a position lies once the bytes before it are left out."""
    gone = sum(min(end, position) - start for start, end in plan.left_out if start < position)
    return position - gone


@contextlib.contextmanager
def _created(path: Path) -> Iterator[int]:
    descriptor = open_to_change(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
