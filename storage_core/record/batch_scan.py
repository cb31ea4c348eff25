"""Finds the batches of a log: a walk over headers only.

A torn tail is a result, never an error: it may be a partial write in progress. An impossible length is damage.

Source: Kafka FileLogInputStream, DefaultRecordBatch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.record.batch_probe import MAGIC_V2
from sparklog.storage_core.record.few_batches import compare_by_library, is_few, scan_headers
from sparklog.storage_core.record.kernel_tables import HEADER_COLUMNS, HeaderColumn
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, ByteSource

__all__ = ["BatchScan", "check_crcs", "scan_batches"]

_Int64s = npt.NDArray[np.int64]
_Int32s = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class BatchScan:
    """Header fields of b batches, as columns.

    An entry of format v0 or v1 is a batch. Its `base_offset` is its `last_offset`, which for a wrapper is the offset of
    the last record inside; the first one's is unknown until it is opened. `attributes` has the bits of its format,
    `max_timestamp` its own timestamp (-1 in v0), `records_count` 1, or -1 for a wrapper. Leader epoch, base timestamp
    and producer are -1.

    Attributes:
        position: (b,) start of each batch in the given bytes.
        size: (b,) bytes of each.
        valid_bytes: end of the complete batches; a torn tail may follow.
    """

    position: _Int64s
    size: _Int64s
    magic: npt.NDArray[np.int8]
    base_offset: _Int64s
    last_offset: _Int64s
    leader_epoch: _Int32s
    crc: npt.NDArray[np.uint32]
    attributes: npt.NDArray[np.int16]
    base_timestamp: _Int64s
    max_timestamp: _Int64s
    producer_id: _Int64s
    producer_epoch: npt.NDArray[np.int16]
    base_sequence: _Int32s
    records_count: _Int32s
    valid_bytes: int

    def __len__(self) -> int:
        return len(self.position)

    @property
    def next_offset(self) -> _Int64s:
        """(b,) the offset after each batch."""
        return self.last_offset + 1

    @property
    def last_offset_delta(self) -> _Int64s:
        """(b,) last offset minus base offset."""
        return self.last_offset - self.base_offset

    def take(self, chosen: slice | npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> BatchScan:
        """Return a scan of some of the batches; `valid_bytes` stays."""
        return BatchScan(**{name: getattr(self, name)[chosen] for name in _COLUMNS}, valid_bytes=self.valid_bytes)


_COLUMNS: Final = tuple(each.name for each in fields(BatchScan) if each.name != "valid_bytes")
"""Computed once, for the speed of look-ups."""


def scan_batches(data: ByteSource, start: int = 0, end: int | None = None) -> BatchScan:
    """Return the complete batches between two positions; no CRC is computed.

    Args:
        data: bytes of a log; only headers are read.
        start: position of a batch.
        end: position of the end; the end of `data` if None.

    Raises:
        CorruptBatchError: a length is smaller than any batch, at that position.
    """
    source = np.frombuffer(data, np.uint8)
    end = source.size if end is None else min(end, source.size)
    start = max(start, 0)
    few = scan_headers(source, start, end) if is_few(max(end - start, 0)) else None
    positions, columns, valid_bytes = few or _scan_by_kernels(source, start, end)
    return BatchScan(
        position=positions,
        size=columns[HeaderColumn.SIZE],
        magic=columns[HeaderColumn.MAGIC].astype(np.int8),
        base_offset=columns[HeaderColumn.BASE_OFFSET],
        last_offset=columns[HeaderColumn.LAST_OFFSET],
        leader_epoch=columns[HeaderColumn.LEADER_EPOCH].astype(np.int32),
        crc=columns[HeaderColumn.CRC].astype(np.uint32),
        attributes=columns[HeaderColumn.ATTRIBUTES].astype(np.int16),
        base_timestamp=columns[HeaderColumn.BASE_TIMESTAMP],
        max_timestamp=columns[HeaderColumn.MAX_TIMESTAMP],
        producer_id=columns[HeaderColumn.PRODUCER_ID],
        producer_epoch=columns[HeaderColumn.PRODUCER_EPOCH].astype(np.int16),
        base_sequence=columns[HeaderColumn.BASE_SEQUENCE].astype(np.int32),
        records_count=columns[HeaderColumn.RECORDS_COUNT].astype(np.int32),
        valid_bytes=valid_bytes,
    )


def _scan_by_kernels(source: npt.NDArray[np.uint8], start: int, end: int) -> tuple[_Int64s, _Int64s, int]:
    """As `scan_headers`; raises as `scan_batches`."""
    from sparklog.storage_core.record.reading_kernels import MIN_BATCH_BYTES, unpack_headers, walk_batches

    positions, stopped = np.empty(max(end - start, 0) // MIN_BATCH_BYTES, np.int64), np.zeros(2, np.int64)
    found = walk_batches(source, start, end, positions, stopped)
    valid_bytes = int(stopped[0])
    if stopped[1]:
        raise CorruptBatchError("batch length is below what any batch has", valid_bytes)
    positions = positions[:found].copy()
    columns = np.empty((HEADER_COLUMNS, found), np.int64)
    unpack_headers(source, positions, columns)
    return positions, columns, valid_bytes


def check_crcs(data: ByteSource, scan: BatchScan) -> npt.NDArray[np.int64]:
    """Return the places in `scan` of the batches whose CRC is wrong, in order.

    Entries of format v0 and v1 have a CRC-32, a wrapper one as a whole; the CRCs of its inner entries are checked when
    it is decoded.
    """
    source = np.frombuffer(data, np.uint8)
    is_legacy = scan.magic < MAGIC_V2
    if not is_legacy.any():
        return np.flatnonzero(_wrong_crcs(source, scan)).astype(np.int64)
    from sparklog.storage_core.record.reading_kernels import compare_crcs

    wrong, legacy = np.zeros(len(scan), np.bool_), scan.take(is_legacy)
    wrong[~is_legacy] = _wrong_crcs(source, scan.take(~is_legacy))
    wrong_legacy = np.zeros(len(legacy), np.bool_)
    compare_crcs(source, legacy.position, legacy.position + legacy.size, wrong_legacy)
    wrong[is_legacy] = wrong_legacy
    return np.flatnonzero(wrong).astype(np.int64)


def _wrong_crcs(source: npt.NDArray[np.uint8], scan: BatchScan) -> npt.NDArray[np.bool_]:
    """Return which batches of format v2 have a wrong CRC."""
    wrong = np.zeros(len(scan), np.uint8)
    if is_few(len(scan) * HEADER_BYTES):
        compare_by_library(source, scan.position, scan.size, wrong)
    else:
        from sparklog.storage_core.record.reading_kernels import compare_crc32cs

        compare_crc32cs(source, scan.position, scan.size, wrong)
    return wrong.view(np.bool_)
