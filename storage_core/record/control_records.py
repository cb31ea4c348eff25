"""Control records: the key has the type, an end-of-transaction marker's value the coordinator's epoch.

| key pos | type | value                                        |
|---------|------|----------------------------------------------|
| 0       | i16  | version 0                                    |
| 2       | i16  | type, see `ControlType`; others are ignored  |

| value pos of ABORT and COMMIT | type | value             |
|-------------------------------|------|-------------------|
| 0                             | i16  | version 0         |
| 2                             | i32  | coordinator epoch |

Longer keys and values, and later versions, come from a later release: bytes after these fields are skipped.

Source: Kafka ControlRecordType, EndTransactionMarker; KIP-98.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.record.attributes import CONTROL_BIT
from sparklog.storage_core.record.batch_decode import iter_decoded
from sparklog.storage_core.record.batch_probe import MAGIC_V2
from sparklog.storage_core.record.batch_scan import BatchScan
from sparklog.storage_core.record.v2.batch_header import ByteSource

__all__ = ["NO_CONTROL_TYPE", "ControlType", "control_types", "coordinator_epochs"]


class ControlType(IntEnum):
    """The types of control records that Kafka writes."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


NO_CONTROL_TYPE: Final = -1
"""Stands for a batch without a control record."""

_VERSION: Final = 0
_KEY_BYTES: Final = 4
_VALUE_BYTES: Final = 6


def control_types(data: ByteSource, scan: BatchScan) -> npt.NDArray[np.int16]:
    """Return (b,) the type of each batch's control record; unknown types as they are.

    `NO_CONTROL_TYPE` stands for data batches, those of format v0 and v1 included, and for control batches that the
    cleaner emptied. Of several records in one batch the first one counts, as in Kafka.

    Args:
        scan: of `data`, or of a part of its batches.

    Raises:
        CorruptBatchError: a control batch contradicts itself, or its key is too short or has a negative version.
    """
    types = np.full(len(scan), NO_CONTROL_TYPE, np.int16)
    is_control = (scan.magic >= MAGIC_V2) & ((scan.attributes & CONTROL_BIT) != 0) & (scan.records_count != 0)
    places = np.flatnonzero(is_control)
    if not len(places):
        return types
    chosen = scan.take(places)
    keys = _of_first_records(data, chosen, "key")
    starts = np.frombuffer(keys.buffers()[1], np.int32, count=len(keys) + 1)
    fields = _first_fields(np.frombuffer(keys.buffers()[2] or b"", np.uint8), starts[:-1], starts[1:])
    wrong = np.flatnonzero(fields[:, 0] < _VERSION)
    if len(wrong):
        raise CorruptBatchError("control record's key is too short or has no version", int(chosen.position[wrong[0]]))
    types[places] = fields[:, 1]
    return types


def coordinator_epochs(data: ByteSource, scan: BatchScan, types: npt.NDArray[np.int16]) -> npt.NDArray[np.int32]:
    """Return (b,) the coordinator epoch of each end-of-transaction marker, -1 for all other batches.

    Args:
        scan: of `data`, or of a part of its batches.
        types: (b,) of `control_types`.

    Raises:
        CorruptBatchError: a marker contradicts itself, or its value is too short or has a negative version.
    """
    epochs = np.full(len(scan), -1, np.int32)
    places = np.flatnonzero((types == ControlType.ABORT) | (types == ControlType.COMMIT))
    if not len(places):
        return epochs
    chosen = scan.take(places)
    values = _of_first_records(data, chosen, "value")
    starts = np.frombuffer(values.buffers()[1], np.int32, count=len(values) + 1)
    content = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    is_whole = starts[1:] - starts[:-1] >= _VALUE_BYTES
    fields = np.full((len(places), _VALUE_BYTES), 0xFF, np.uint8)
    fields[is_whole] = content[starts[:-1][is_whole].astype(np.int64)[:, None] + np.arange(_VALUE_BYTES)]
    wrong = np.flatnonzero(fields[:, :2].copy().view(">i2")[:, 0] < _VERSION)
    if len(wrong):
        message = "end-of-transaction marker's value is too short or has no version"
        raise CorruptBatchError(message, int(chosen.position[wrong[0]]))
    epochs[places] = fields[:, 2:].copy().view(">i4")[:, 0]
    return epochs


def _of_first_records(data: ByteSource, scan: BatchScan, name: str) -> pa.Array:
    """Return (b,) a column of the first record of each batch; the others are freed."""
    counts = scan.records_count.astype(np.int64)
    firsts, row, parts = np.cumsum(counts) - counts, 0, []
    for piece in iter_decoded(data, scan, include_control=True):
        begin, end = np.searchsorted(firsts, (row, row + piece.num_rows))
        parts.append(piece.column(name).take(pa.array(firsts[begin:end] - row)))
        row += piece.num_rows
    return pa.concat_arrays(parts)


def _first_fields(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int32], ends: npt.NDArray[np.int32]
) -> npt.NDArray[np.int16]:
    """Return (n, 2) version and type of each key; version -1 for a key that is too short."""
    fields = np.full((len(starts), 2), -1, np.int16)
    is_whole = ends - starts >= _KEY_BYTES
    places = starts[is_whole].astype(np.int64)[:, None] + np.arange(_KEY_BYTES)
    fields[is_whole] = data[places].view(">i2")
    return fields
