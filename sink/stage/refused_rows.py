"""Finds invalid rows after grouping or encoding: offsets that go back, records that are too large."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.sink.stage.group_rows import LogGroups
from sparklog.sink.stage.partitioner import binary_layout
from sparklog.storage_core.errors import RecordTooLargeError
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions, RecordColumns, encode_batches

__all__ = ["backward_rows", "offset_column", "payload_sizes", "too_large_rows"]

_MOST_OVERHEAD_BYTES = 128
"""More than a record adds to its payload, batch header included, even where compression makes it larger."""


def offset_column(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return (n,) preserved offsets; 0 where null."""
    offsets: npt.NDArray[np.int64] = batch.column("offset").fill_null(0).to_numpy(zero_copy_only=False)
    return offsets


def backward_rows(
    offsets: npt.NDArray[np.int64], groups: LogGroups, last_offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the rows whose offset is not above all earlier ones of the same log, in order.

    Args:
        offsets: (n,) of every row.
        groups: the rows by log.
        last_offsets: (logs,) newest offset of each log.
    """
    if not len(groups.rows):
        return groups.rows
    sorted_offsets = offsets[groups.rows]
    newest = np.empty_like(sorted_offsets)
    newest[1:] = sorted_offsets[:-1]
    newest[groups.starts[:-1]] = last_offsets[groups.logs]
    if (sorted_offsets > newest).all():
        return groups.rows[:0]
    for begin, end in zip(groups.starts[:-1].tolist(), groups.starts[1:].tolist(), strict=True):
        newest[begin:end] = np.maximum.accumulate(newest[begin:end])
    return np.sort(groups.rows[sorted_offsets <= newest])


def too_large_rows(
    columns: RecordColumns, rows: npt.NDArray[np.int64], payload: npt.NDArray[np.int64], options: EncodeOptions
) -> npt.NDArray[np.int64]:
    """Return a topic's rows that alone make too large a batch.

    Args:
        payload: (n,) bytes of every row, see `payload_sizes`.
    """
    bad = []
    for row in rows[payload[rows] + _MOST_OVERHEAD_BYTES > options.max_message_bytes].tolist():
        try:
            encode_batches(columns, np.array([row]), np.array([0, 1]), options)
        except RecordTooLargeError:
            bad.append(row)
    return np.array(bad, np.int64)


def payload_sizes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return (n,) bytes of each row's key, value and headers."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for name in {"key", "value"}.intersection(batch.schema.names):
        sizes += np.maximum(binary_layout(batch.column(name))[2], 0)
    if "headers" in batch.schema.names:
        pairs = batch.column("headers").flatten()
        lengths = [
            pc.fill_null(pc.binary_length(pairs.field(part)), 0).to_numpy(zero_copy_only=False) for part in (0, 1)
        ]
        owners = pc.list_parent_indices(batch.column("headers")).to_numpy()
        np.add.at(sizes, owners, lengths[0].astype(np.int64) + lengths[1] + _MOST_OVERHEAD_BYTES)
    return sizes
