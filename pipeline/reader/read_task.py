"""A Spark task of a read: yields the rows of its splits, chunk by chunk.

Holds one chunk of a log (4 MiB, or one larger batch) and its decoded records in memory, for segments of any size.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from sparklog.pipeline.reader.columns import ROWS_PER_BATCH, RowMaker
from sparklog.pipeline.reader.plan import LogSplit, ReadTask
from sparklog.pipeline.reader.skip_damage import check_place, is_outage, skip_batch, skip_to_index
from sparklog.storage_core.errors import CorruptBatchError, InvalidRecordError, LogStorageError
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.log.scan.segment_reader import BatchChunk
from sparklog.storage_core.record.attributes import CONTROL_BIT, TRANSACTIONAL_BIT
from sparklog.storage_core.record.batch_decode import iter_decoded

__all__ = ["read_task"]

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 4 << 20
_CHUNK_BYTES_AMID_DAMAGE = 512
_SOUND_CHUNKS = 64
"""After this many small chunks without damage, reading continues in large ones."""
_ADVICE = "the option failOnDataLoss=false skips unreadable records, and logs their offsets in the task's log"


def read_task(task: ReadTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task's splits, in order of their offsets, `ROWS_PER_BATCH` at most at a time.

    Raises:
        LogStorageError: records can't be read, and `failOnDataLoss` is true; the message names file and position.
        StorageError: the disk refuses, for both values of `failOnDataLoss`: the records may be whole.
        InvalidConfigError: an earlier state was read, and a compaction, retention or truncation has overtaken it.
    """
    loss = _Loss()
    for planned in task.splits:
        if planned.stored is not None and not planned.stored.extents:
            continue  # a gap between extents
        maker = RowMaker(planned.log, include_headers=task.include_headers)
        with _in_a_folder(planned) as split:
            for records in _records(split, task, loss):
                yield from _rows(records, maker, split, task)
                del records  # before the next ones are decoded
    loss.report()
    if task.past is not None:
        task.past.require_readable()  # a compaction beside it has told of itself before it began


@contextmanager
def _in_a_folder(split: LogSplit) -> Iterator[LogSplit]:
    """Copy what a store of objects has of a split into a folder, and return the split of that."""
    if split.stored is None:
        yield split
        return
    with split.stored.fetched() as directory:
        yield replace(
            split,
            directory=str(directory),
            log_start_offset=max(split.log_start_offset, split.stored.extents[0].base_offset),
            log_end_offset=min(split.log_end_offset, split.stored.extents[-1].end_offset),
            start_offset=max(split.start_offset, split.stored.extents[0].base_offset),
        )


def _rows(records: pa.RecordBatch, maker: RowMaker, split: LogSplit, task: ReadTask) -> Iterator[pa.RecordBatch]:
    for start in range(0, records.num_rows, ROWS_PER_BATCH):
        piece = records.slice(start, ROWS_PER_BATCH)
        rows = maker.rows(piece)
        if rows.column("timestamp").null_count:
            _note_unfit_timestamps(piece, rows, split, task)
        yield rows


@dataclass(slots=True)
class _Loss:
    """Counts of skipped offsets of a task."""

    ranges: int = 0
    offsets: int = 0

    def note(self, split: LogSplit, start: int, end: int, error: LogStorageError) -> None:
        self.ranges += 1
        self.offsets += end - start
        logger.warning("skipped: log=%s offsets=%d..%d (%s)", split.directory, start, end - 1, error)

    def report(self) -> None:
        if self.ranges:
            logger.warning("a task skipped unreadable records: ranges=%d offsets=%d", self.ranges, self.offsets)


def _records(split: LogSplit, task: ReadTask, loss: _Loss) -> Iterator[pa.RecordBatch]:
    """Yield the records of a split; with `failOnDataLoss=false` skip damage and continue above it.

    Damage fails a whole chunk, so that chunk is read again in chunks of about one batch before a batch is skipped. Each
    skip raises the offset, so the read ends for any damage.
    """
    offset, chunk_bytes, is_past_damage, skip = split.start_offset, _CHUNK_BYTES, False, skip_batch
    while offset < split.end_offset:
        try:
            for number, records in enumerate(_read(split, offset, chunk_bytes)):
                next_offset = records.column("offset")[-1].as_py() + 1
                if not task.fail_on_data_loss and next_offset < split.end_offset:
                    check_place(Path(split.directory), offset, next_offset - 1)  # otherwise the next chunk fails
                yield records
                del records
                offset, skip = next_offset, skip_batch
                if is_past_damage and number == _SOUND_CHUNKS:
                    break
            else:
                return
            chunk_bytes, is_past_damage = _CHUNK_BYTES, False
        except LogStorageError as error:
            if task.fail_on_data_loss:
                error.add_note(_ADVICE)
                raise
            if is_outage(error):
                raise
            if chunk_bytes == _CHUNK_BYTES:
                chunk_bytes = _CHUNK_BYTES_AMID_DAMAGE
                continue
            resumption = skip(Path(split.directory), offset, split.end_offset)
            yield from _skipped(split, (offset, resumption.next_offset), resumption.batch, loss, error)
            offset, is_past_damage, skip = resumption.next_offset, True, skip_to_index


def _skipped(
    split: LogSplit, offsets: tuple[int, int], batch: BatchChunk | None, loss: _Loss, error: LogStorageError
) -> Iterator[pa.RecordBatch]:
    """Log the skipped offsets that are lost, and yield the records of a sound batch among them."""
    start, end = offsets
    if batch is None or _may_be_aborted(batch, split):
        loss.note(split, start, end, error)
        return
    first_offset = int(batch.scan.base_offset[0])
    if first_offset > start:
        loss.note(split, start, first_offset, error)
        start = first_offset
    if int(batch.scan.attributes[0]) & CONTROL_BIT:
        return
    try:
        for records in iter_decoded(batch.data, batch.scan):
            first, stop = np.searchsorted(records.column("offset").to_numpy(), (start, end))
            if first < stop:
                yield records.slice(int(first), int(stop - first))
                start = records.column("offset")[int(stop) - 1].as_py() + 1
    except CorruptBatchError as damage:
        loss.note(split, start, end, damage)


def _may_be_aborted(batch: BatchChunk, split: LogSplit) -> bool:
    """Whether other batches decide if these records were committed."""
    return split.isolation == "read_committed" and bool(int(batch.scan.attributes[0]) & TRANSACTIONAL_BIT)


def _read(split: LogSplit, offset: int, chunk_bytes: int) -> Iterator[pa.RecordBatch]:
    reader = LogReader(
        Path(split.directory),
        log_start_offset=split.log_start_offset,
        log_end_offset=split.log_end_offset,
        last_stable_offset=split.last_stable_offset,
    )
    return reader.read(offset, end_offset=split.end_offset, isolation=split.isolation, chunk_bytes=chunk_bytes)


def _note_unfit_timestamps(records: pa.RecordBatch, rows: pa.RecordBatch, split: LogSplit, task: ReadTask) -> None:
    """Refuse timestamps that Spark can't hold, or log that they became null."""
    timestamps = rows.column("timestamp")
    first = timestamps.is_null().index(True).as_py()
    offset, found = records.column("offset")[first], records.column("timestamp")[first]
    what = f"a timestamp does not fit into Spark's: log={split.directory} offset={offset} timestamp_ms={found}"
    if task.fail_on_data_loss:
        error = InvalidRecordError(what)
        error.add_note("with the option failOnDataLoss=false such timestamps are null")
        raise error
    logger.warning("%s; null instead: records=%d", what, timestamps.null_count)
