"""Writes a log again in another format: the same segments, offsets and records, as far as the format can hold them.

The source is only read, about 1 MiB at a time. A segment keeps its base offset, and where it would grow past what an
index can address, it continues in a second one. Indexes are built as an append of each batch would have built them.

Source: Kafka RecordsUtil.downConvert, LogSegment.append, LeaderEpochFileCache.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from sparklog.storage_core.checkpoint.leader_epochs import (
    assign_leader_epoch,
    parse_leader_epochs,
    render_leader_epochs,
)
from sparklog.storage_core.errors import CorruptBatchError, CorruptFileError, InvalidRecordError, UnsupportedFormatError
from sparklog.storage_core.index.index_builder import IndexBuilder
from sparklog.storage_core.log.files.names import INDEX, LOG, SNAPSHOT, TIMEINDEX, parse_base_offset, segment_file_name
from sparklog.storage_core.log.files.segments import SegmentFiles, list_readable_segments
from sparklog.storage_core.log.scan.segment_order import SegmentOrder
from sparklog.storage_core.log.scan.segment_reader import BatchChunk, SegmentReader
from sparklog.storage_core.log_config import INT32_MAX, INT64_MAX
from sparklog.storage_core.record.batch_convert import (
    ConversionCounts,
    ConvertedBatches,
    ConvertOptions,
    convert_batches,
)
from sparklog.storage_core.record.batch_probe import MAGIC_V2
from sparklog.storage_core.record.batch_scan import BatchScan
from sparklog.storage_core.storage.local import storage_errors, write_all, write_file
from sparklog.storage_core.storage.open_regular import open_to_change, read_file

__all__ = ["ConversionReport", "convert_log"]

_EPOCHS: Final = "leader-epoch-checkpoint"
_METADATA: Final = "partition.metadata"


@dataclass(slots=True, kw_only=True)
class ConversionReport:
    """What became of one log.

    Attributes:
        log: name of its directory.
        segments: written.
        bytes_before, bytes_after: of batches.
        log_end_offset: of the source, and `end_offset_after` that of the result, which is lower where the source ends
            in batches that the format does not know.
        counts: of batches and records.
    """

    log: str
    segments: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    log_end_offset: int = 0
    end_offset_after: int = 0
    counts: ConversionCounts = field(default_factory=ConversionCounts)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, the counts beside the rest."""
        values: dict[str, Any] = asdict(self)
        counts: dict[str, int] = values.pop("counts")
        return values | counts


def convert_log(
    source: Path,
    target: Path,
    options: ConvertOptions,
    *,
    log_end_offset: int | None = None,
    max_segment_bytes: int = INT32_MAX,
) -> ConversionReport:
    """Write the log in `source` into the new directory `target`.

    Args:
        source: a log directory.
        target: made here; the caller makes it durable.
        options: see there.
        log_end_offset: where the log ends, by its ledger; otherwise at its last whole batch.
        max_segment_bytes: size that no segment may pass.

    Raises:
        CorruptBatchError: a batch is damaged, or out of order.
        CorruptFileError: the files end before `log_end_offset`.
        UnsupportedFormatError: a batch's codec is unknown in the wanted format; the message names file and offset.
        InvalidRecordError: the same for a record's timestamp.
        StorageError: a file can't be read, or the disk refused.
    """
    with storage_errors(target):
        target.mkdir()
    conversion = _Conversion(source, target, options, INT64_MAX if log_end_offset is None else log_end_offset)
    listed = list_readable_segments(source)
    segments = [each for number, each in enumerate(listed) if number == 0 or each.base_offset < conversion.end_offset]
    next_bases = [*(each.base_offset for each in segments[1:]), None]
    for segment, next_base in zip(segments, next_bases, strict=False):
        conversion.convert_segment(segment, next_base, max_segment_bytes)
    report = conversion.report
    if log_end_offset and report.log_end_offset != log_end_offset:
        if len(segments) == len(listed):
            raise CorruptFileError(
                f"log ends at offset {report.log_end_offset}, its committed end is {log_end_offset}: log={source}"
            )
        report.log_end_offset = log_end_offset  # cleaning emptied the end of the segment before the active one
    conversion.write_small_files(segments)
    return report


class _Conversion:
    """One log on its way.

    Attributes:
        end_offset: no batch at or above it is taken.
        epochs: (leader epoch, start offset) of the batches written so far.
        output: the segment being written.
    """

    output: _SegmentOutput

    def __init__(self, source: Path, target: Path, options: ConvertOptions, end_offset: int) -> None:
        self.source = source
        self.target = target
        self.options = options
        self.end_offset = end_offset
        self.report = ConversionReport(log=source.name)
        self.epochs: list[tuple[int, int]] = []

    def convert_segment(self, segment: SegmentFiles, next_base: int | None, max_bytes: int) -> None:
        """Write one segment, into as many as `max_bytes` demands; it is the last one if no base follows."""
        report = self.report
        report.log_end_offset = max(report.log_end_offset, segment.base_offset)
        with storage_errors(segment.log_path):
            modified_ns = segment.log_path.stat().st_mtime_ns
        self.output = _SegmentOutput(self.target, segment.base_offset, modified_ns)
        try:
            with SegmentReader(segment) as reader:
                for converted in self._converted(reader, next_base):
                    self._write(converted, max_bytes)
            self.output.finish()
        finally:
            self.output.close()
        report.segments += 1
        report.end_offset_after = max(report.end_offset_after, self.output.next_offset)

    def write_small_files(self, segments: list[SegmentFiles]) -> None:
        """Write what lies beside the segments: the topic's id and, in format v2, leader epochs and producers' state."""
        names = [_METADATA]
        if self.options.magic == MAGIC_V2:
            names += [each.txn_index_path.name for each in segments]
            names += self._snapshot_names()
            if self.report.counts.rebuilt_batches == 0:
                names.append(_EPOCHS)
            elif self.epochs:
                with storage_errors(self.target):
                    write_file(self.target / _EPOCHS, render_leader_epochs(self._all_epochs()))
        for name in names:
            with storage_errors(self.source / name):
                if (self.source / name).exists():
                    shutil.copyfile(self.source / name, self.target / name)

    def _converted(self, reader: SegmentReader, next_base: int | None) -> Iterator[ConvertedBatches]:
        order = SegmentOrder(reader, self.report.log_end_offset - 1)
        for chunk in _whole_chunks(reader, is_last=next_base is None):
            scan = self._committed(chunk.scan) if next_base is None else chunk.scan
            if len(scan):
                order.check(replace(chunk, scan=scan), INT64_MAX if next_base is None else next_base)
                reader.check_crcs(chunk, scan)
                yield from self._convert(reader, chunk, scan)
                self.report.bytes_before += int(scan.size.sum())
                self.report.log_end_offset = int(scan.last_offset[-1]) + 1
            if len(scan) < len(chunk.scan) or self.report.log_end_offset >= self.end_offset:
                return

    def _committed(self, scan: BatchScan) -> BatchScan:
        """Return the batches below the end; past the one that reaches it, bytes may be anything."""
        at_end = scan.last_offset >= self.end_offset - 1
        if not at_end.any():
            return scan
        reaching = int(np.argmax(at_end))
        return scan.take(slice(0, reaching + int(scan.last_offset[reaching] < self.end_offset)))

    def _convert(self, reader: SegmentReader, chunk: BatchChunk, scan: BatchScan) -> Iterator[ConvertedBatches]:
        """Convert some batches; errors name the file."""
        epoch = self.epochs[-1][0] if self.epochs else 0
        next_offset = self.report.log_end_offset
        try:
            for converted in convert_batches(chunk.data, scan, self.options, epoch, self.report.counts):
                if converted.first_offset < next_offset:
                    what = f"records of a wrapper reach back: offset={converted.first_offset} after={next_offset - 1}"
                    raise CorruptBatchError(what, int(scan.position[0]))
                next_offset = int(converted.last_offset[-1]) + 1
                yield converted
        except CorruptBatchError as error:
            raise reader.corrupt_batch(str(error.args[0]), chunk.position + error.position) from error
        except UnsupportedFormatError as error:
            raise UnsupportedFormatError(f"{error} file={reader.files.log_path}") from error
        except InvalidRecordError as error:
            offsets = f"offsets={scan.base_offset[0]}..{scan.last_offset[-1]}"
            raise InvalidRecordError(f"{error} {offsets} file={reader.files.log_path}") from error

    def _write(self, converted: ConvertedBatches, max_bytes: int) -> None:
        """Append batches, to a new segment where they do not fit."""
        room = max_bytes - self.output.size_bytes
        fitting = int(np.searchsorted(np.cumsum(converted.size), room, side="right"))
        if fitting == 0 and self.output.size_bytes == 0:
            fitting = 1
        if fitting >= len(converted.size):
            self._append(converted)
            return
        data, cut = memoryview(b"".join(converted.parts)), int(converted.size[:fitting].sum())
        if fitting:
            self._append(_cut(converted, slice(0, fitting), data[:cut]))
        self.output.finish()
        self.output.close()
        self.report.segments += 1
        self.output = _SegmentOutput(self.target, self.output.next_offset, self.output.modified_ns)
        self._write(_cut(converted, slice(fitting, None), data[cut:]), max_bytes)

    def _append(self, converted: ConvertedBatches) -> None:
        """Append batches, and note where their leader epochs start."""
        self.report.bytes_after += int(converted.size.sum())
        newest = self.epochs[-1][0] if self.epochs else -1
        epochs = np.maximum.accumulate(np.concatenate([[newest], converted.leader_epoch]))
        for place in np.flatnonzero(np.diff(epochs)).tolist():
            start = int(converted.last_offset[place - 1]) + 1 if place else self.output.next_offset
            self.epochs = assign_leader_epoch(self.epochs, int(epochs[place + 1]), start)
        self.output.append(converted)

    def _snapshot_names(self) -> list[str]:
        """Return the producer snapshots that lie within the log."""
        with storage_errors(self.source):
            names = [path.name for path in self.source.iterdir() if path.name.endswith(SNAPSHOT)]
        bases = {name: parse_base_offset(name) for name in names}
        end = self.report.log_end_offset
        return sorted(name for name, base in bases.items() if base is not None and base <= end)

    def _all_epochs(self) -> list[tuple[int, int]]:
        """Return the epochs of the batches written, and those of the source's file that came after."""
        path = self.source / _EPOCHS
        with storage_errors(path):
            known = parse_leader_epochs(read_file(path)) if path.exists() else []
        newest, start = self.epochs[-1]
        return [*self.epochs, *(each for each in known if each[0] > newest and each[1] > start)]


class _SegmentOutput:
    """One segment being written, into a directory that has no readers yet.

    Attributes:
        size_bytes: of its `.log` so far.
        next_offset: after its last batch.
        modified_ns: modification time its `.log` gets: without timestamps, retention goes by it.
    """

    def __init__(self, directory: Path, base_offset: int, modified_ns: int) -> None:
        self._paths = [directory / segment_file_name(base_offset, suffix) for suffix in (LOG, INDEX, TIMEINDEX)]
        self._indexes = IndexBuilder(base_offset)
        self.size_bytes = 0
        self.next_offset = base_offset
        self.modified_ns = modified_ns
        with storage_errors(self._paths[0]):
            self._descriptor = open_to_change(self._paths[0], os.O_WRONLY | os.O_CREAT | os.O_EXCL)

    def append(self, converted: ConvertedBatches) -> None:
        """Append batches."""
        positions = self.size_bytes + np.cumsum(converted.size) - converted.size
        self._indexes.add(positions, converted.last_offset, converted.max_timestamp)
        with storage_errors(self._paths[0]):
            for part in converted.parts:
                write_all(self._descriptor, part, self.size_bytes)
                self.size_bytes += len(part)
        self.next_offset = int(converted.last_offset[-1]) + 1

    def finish(self) -> None:
        """Write the indexes."""
        built = self._indexes.finish()
        with storage_errors(self._paths[0]):
            write_file(self._paths[1], built.offset_index)
            write_file(self._paths[2], built.time_index)
            os.utime(self._descriptor, ns=(self.modified_ns, self.modified_ns))

    def close(self) -> None:
        """Close the file; again is no harm."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _whole_chunks(reader: SegmentReader, *, is_last: bool) -> Iterator[BatchChunk]:
    """Yield a segment's batches; the last segment may end in a torn batch or in zeros, a closed one may not."""
    try:
        yield from reader.chunks()
    except CorruptBatchError as error:
        if not is_last or not reader.ends_in_zeros(error.position):
            raise
    if not is_last:
        reader.check_end()


def _cut(converted: ConvertedBatches, chosen: slice, data: memoryview) -> ConvertedBatches:
    return ConvertedBatches(
        parts=[data],
        first_offset=converted.first_offset,
        size=converted.size[chosen],
        last_offset=converted.last_offset[chosen],
        max_timestamp=converted.max_timestamp[chosen],
        leader_epoch=converted.leader_epoch[chosen],
    )
