"""The batches of a `.log` or `.checkpoint` file, and the records in them.

Source: Kafka DumpLogSegments.dumpLog; 4.3.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.inspect.dump.errors import DumpErrors
from sparklog.storage_core.inspect.dump.options import NO_LIMIT, DumpOptions
from sparklog.storage_core.inspect.dump.printer import DumpPrinter
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.scan.segment_reader import BatchChunk, SegmentReader
from sparklog.storage_core.record.batch_decode import iter_inspected
from sparklog.storage_core.record.batch_probe import MAGIC_V2
from sparklog.storage_core.record.batch_scan import check_crcs

__all__ = ["dump_batches"]

_AFTER_DAMAGE: Final = 8


def dump_batches(path: Path, options: DumpOptions, out: DumpPrinter, errors: DumpErrors) -> None:
    """Print a file's batches and add what is wrong to `errors`."""
    with SegmentReader(SegmentFiles(0, path)) as reader:
        reader.size_bytes = min(reader.size_bytes, options.max_bytes)
        try:
            for chunk in reader.chunks():
                _dump_chunk(path, chunk, options, out, errors)
        except CorruptBatchError as error:
            errors.add_other(f"{error.args[0]} position={error.position}")
        rest = reader.size_bytes - reader.valid_bytes
        if rest > 0 and options.max_bytes == NO_LIMIT:
            out.invalid_bytes(rest)
            errors.is_damaged = True


def _dump_chunk(path: Path, chunk: BatchChunk, options: DumpOptions, out: DumpPrinter, errors: DumpErrors) -> None:
    scan = chunk.scan
    is_valid = np.ones(len(scan), np.bool_)
    is_valid[check_crcs(chunk.data, scan)] = False
    errors.is_damaged |= not is_valid.all()
    for place in np.flatnonzero((scan.magic < 0) | (scan.magic > MAGIC_V2)).tolist():
        errors.add_other(f"no format has this magic: {path} position={chunk.start_of(place)} magic={scan.magic[place]}")
    if not options.prints_records:
        out.batches(chunk.position, scan, is_valid)
        return
    first, count = 0, len(scan)
    while first < len(scan):
        after = _dump_records(path, chunk, slice(first, first + count), is_valid, (out, errors))
        # Behind damage a few at a time: where every batch is damaged, none is decoded again and again.
        count = count * 4 if after >= min(first + count, len(scan)) else _AFTER_DAMAGE
        first = after


def _dump_records(
    path: Path,
    chunk: BatchChunk,
    chosen: slice,
    is_valid: npt.NDArray[np.bool_],
    to: tuple[DumpPrinter, DumpErrors],
) -> int:
    """Print batches with their records, up to one whose records are damaged; return the number of the next one."""
    scan, (out, errors) = chunk.scan, to
    first: int = chosen.start
    try:
        for found in iter_inspected(chunk.data, scan.take(chosen)):
            first -= found.is_continued
            after = first + len(found.scan)
            out.records(chunk.position, found, is_valid[first:after])
            errors.is_damaged |= not found.is_valid.all()
            _note_gaps(path, found.records.column("offset").to_numpy(), errors)
            first = after
    except CorruptBatchError as error:
        out.batches(chunk.position, scan.take(slice(first, first + 1)), is_valid[first : first + 1])
        if 0 <= scan.magic[first] <= MAGIC_V2:  # another magic was named before
            errors.add_other(f"{error.args[0]}: {path} position={chunk.start_of(first)}")
        return first + 1
    return first


def _note_gaps(path: Path, offsets: npt.NDArray[np.int64], errors: DumpErrors) -> None:
    """Note offsets that do not follow each other, also from the batch before."""
    if not len(offsets):
        return
    last = errors.last_offsets.get(path)
    before = offsets if last is None else np.concatenate(([last], offsets))
    for place in np.flatnonzero(before[1:] != before[:-1] + 1).tolist():
        pair = int(before[place]), int(before[place + 1])
        errors.non_consecutive.setdefault(str(path.absolute()), []).append(pair)
    errors.last_offsets[path] = int(offsets[-1])
