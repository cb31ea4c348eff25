"""Batches for a cleaner: position and key of each record; values stay bytes.

Formats may mix in any order; each yielded item has one kind: plain batches of format v2, which are not copied;
compressed ones, opened; or entries of v0 and v1, wrappers opened.

The columns of a tiny record are seven times as large as the record, and a batch of 6 KB may open to millions. So a
batch of very many records comes in pieces: `iter_keyed` yields one after the other, `iter_opened` the batch by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.cleaner.keys.digest_kernels import digest_ranges
from sparklog.storage_core.cleaner.keys.locate_kernels import LOCATE_FAILURES, locate_records
from sparklog.storage_core.cleaner.keys.offset_map import hash_key_words
from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.log_config import CODECS
from sparklog.storage_core.record.attributes import CODEC_MASK
from sparklog.storage_core.record.batch_probe import MAGIC_V2
from sparklog.storage_core.record.batch_scan import BatchScan
from sparklog.storage_core.record.compression import MAX_DECOMPRESSED_BYTES, decompress
from sparklog.storage_core.record.decoded_columns import (
    MOST_RECORDS,
    DamagedSectionError,
    SectionTable,
    cut_section,
    plain_sections,
)
from sparklog.storage_core.record.kernel_tables import SectionColumn
from sparklog.storage_core.record.legacy.decode import LEGACY_CODECS, open_wrapper
from sparklog.storage_core.record.legacy.kernels import LEGACY_FAILURES, locate_entries, parse_entries
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, ByteSource

__all__ = ["KeyedRecords", "LargeBatch", "iter_keyed", "iter_opened"]

_TARGET_BYTES: Final = 4 << 20
_MIN_RECORD_BYTES: Final = 7
_MIN_BATCH_OVERHEAD_BYTES: Final = 14

_Bytes = npt.NDArray[np.uint8]
_Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KeyedRecords:
    """The n records of b batches.

    Attributes:
        source: the bytes for positions of records: those of the log, or of opened batches.
        scan: (b,) the batches; its positions count in the log's bytes.
        table: (b, SECTION_COLUMNS) their sections in `source`.
        batch: (n,) number of each record's batch.
        offset: (n,).
        start: (n,) of each record, and `end`.
        key_start: (n,) of its key, -1 = null; and `key_size`.
        has_value: (n,) whether its value is not null.
    """

    source: _Bytes
    scan: BatchScan
    table: _Int64s
    batch: _Int64s
    offset: _Int64s
    start: _Int64s
    end: _Int64s
    key_start: _Int64s
    key_size: _Int64s
    has_value: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.offset)

    @property
    def counts(self) -> _Int64s:
        """(b,) records of each batch."""
        return self.table[:, SectionColumn.COUNT]

    @property
    def has_key(self) -> npt.NDArray[np.bool_]:
        """(n,) whether each key is not null."""
        return self.key_start >= 0

    def digests(self, hash_key: bytes) -> npt.NDArray[np.uint64]:
        """Return (n, 2) the digest of each key; a null has digest 0."""
        digests = np.empty((len(self), 2), np.uint64)
        digest_ranges(self.source, self.key_start, self.key_size, *hash_key_words(hash_key), digests)
        return digests


@dataclass(frozen=True, slots=True)
class LargeBatch:
    """A batch of format v2 with more than `MOST_RECORDS` records, all of them checked.

    Attributes:
        scan: (1,) the batch.
        sections: its pieces.
    """

    scan: BatchScan
    sections: list[SectionTable]

    def pieces(self) -> Iterator[KeyedRecords]:
        """Yield its records in order, some at a time; callable repeatedly."""
        for each in self.sections:
            yield _locate(each.source, each.scan, each.table)


def iter_keyed(data: ByteSource, scan: BatchScan, target_bytes: int = _TARGET_BYTES) -> Iterator[KeyedRecords]:
    """Yield the records of batches in order, very large batches in pieces, damaged ones not at all.

    Args:
        data: bytes of a log; the CRCs were checked.
        scan: of its batches, or of some.
        target_bytes: opened bytes after which to yield; a single batch is always allowed.

    Raises:
        CorruptBatchError: a batch's bytes contradict themselves; the position counts in `data`.
    """
    for opened in iter_opened(data, scan, target_bytes):
        if isinstance(opened, LargeBatch):
            yield from opened.pieces()
        else:
            yield opened


def iter_opened(
    data: ByteSource, scan: BatchScan, target_bytes: int = _TARGET_BYTES
) -> Iterator[KeyedRecords | LargeBatch]:
    """As `iter_keyed`, but each very large batch is one item."""
    source = np.frombuffer(data, np.uint8)
    _refuse_damaged(source, scan)
    is_legacy, is_compressed = scan.magic < MAGIC_V2, (scan.attributes & CODEC_MASK) != 0
    kind = 2 * is_legacy.astype(np.int8) + (is_compressed & ~is_legacy)
    borders = [0, *(np.flatnonzero(np.diff(kind)) + 1).tolist(), len(scan)]
    for first, end in pairwise(borders):
        if first == end:
            continue
        chosen = scan.take(slice(first, end)) if end - first < len(scan) else scan
        if kind[first] == 0:
            yield from _located(source, chosen, plain_sections(chosen))
        else:
            yield from _opened(source, chosen, target_bytes)


def _refuse_damaged(source: _Bytes, scan: BatchScan) -> None:
    codec, is_v2 = scan.attributes & CODEC_MASK, scan.magic == MAGIC_V2
    room = scan.size - HEADER_BYTES
    checks = (
        ((scan.magic < 0) | (scan.magic > MAGIC_V2), "no format has this magic"),
        (scan.position + scan.size > source.size, "batch reaches past its bytes"),
        (codec >= np.where(is_v2, len(CODECS), len(LEGACY_CODECS)), "attributes name no codec of this format"),
        (is_v2 & (scan.records_count < 0), "records count is negative"),
        (
            is_v2 & (codec == 0) & (scan.records_count > room // _MIN_RECORD_BYTES),
            "records count is above what the bytes can hold",
        ),
    )
    for wrong, what in checks:
        if wrong.any():
            raise CorruptBatchError(what, int(scan.position[int(np.argmax(wrong))]))


def _opened(source: _Bytes, scan: BatchScan, target_bytes: int) -> Iterator[KeyedRecords | LargeBatch]:
    """Open compressed batches, and wrappers, some at a time."""
    table, view = plain_sections(scan), source.data
    parts: list[bytes | memoryview] = []
    first = total = 0
    for number, (position, size) in enumerate(zip(scan.position.tolist(), scan.size.tolist(), strict=True)):
        part = _open(view[position : position + size], scan, number, table)
        if parts and total + len(part) > target_bytes:
            yield from _located(_joined(parts), scan.take(slice(first, number)), table[first:number])
            parts, first, total = [], number, 0
        table[number, SectionColumn.START] = total
        parts.append(part)
        total += len(part)
        table[number, SectionColumn.END] = total
    yield from _located(_joined(parts), scan.take(slice(first, None)), table[first:])


def _open(batch: memoryview, scan: BatchScan, number: int, table: _Int64s) -> bytes | memoryview:
    """Return the records of one batch; a wrapper's count is known only now, and goes into the table."""
    position, codec = int(scan.position[number]), int(scan.attributes[number]) & CODEC_MASK
    if scan.magic[number] < MAGIC_V2:
        if not codec:
            return batch
        inner = open_wrapper(batch, int(scan.last_offset[number]), MAX_DECOMPRESSED_BYTES, position)
        table[number, SectionColumn.COUNT], table[number, SectionColumn.BASE_OFFSET] = inner.count, inner.base_offset
        return inner.data
    section: bytes | memoryview = batch[HEADER_BYTES:]
    count = int(scan.records_count[number])
    if count or section:
        section = decompress(CODECS[codec], section, MAX_DECOMPRESSED_BYTES, position)
    if count > len(section) // _MIN_RECORD_BYTES:
        raise CorruptBatchError("records count is above what the bytes can hold", position)
    return section


def _joined(parts: list[bytes | memoryview]) -> _Bytes:
    return np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), np.uint8)


def _located(source: _Bytes, scan: BatchScan, table: _Int64s) -> Iterator[KeyedRecords | LargeBatch]:
    """Yield batches of one kind: as many together as possible, and each large one by itself."""
    is_large = (table[:, SectionColumn.COUNT] > MOST_RECORDS) & (scan.magic == MAGIC_V2)
    if not is_large.any():
        yield _locate(source, scan, table)
        return
    first = 0
    for number in np.flatnonzero(is_large).tolist():
        if first < number:
            yield _locate(source, scan.take(slice(first, number)), table[first:number])
        first = number + 1
        yield _large(SectionTable(source, table[number:first], scan.take(slice(number, first))))
    if first < len(scan):
        yield _locate(source, scan.take(slice(first, None)), table[first:])


def _large(section: SectionTable) -> LargeBatch:
    position, last_offset = int(section.scan.position[0]), -1
    try:
        batch = LargeBatch(section.scan, cut_section(section, 0, MOST_RECORDS))
    except DamagedSectionError as error:
        raise CorruptBatchError(LOCATE_FAILURES[1], position) from error
    for piece in batch.pieces():
        if piece.offset[0] <= last_offset:
            raise CorruptBatchError(LOCATE_FAILURES[8], position)
        last_offset = int(piece.offset[-1])
    return batch


def _locate(source: _Bytes, scan: BatchScan, table: _Int64s) -> KeyedRecords:
    counts = table[:, SectionColumn.COUNT]
    offset, start, end, key_start, key_size = np.empty((5, int(counts.sum())), np.int64)
    has_value = np.empty(len(offset), np.bool_)
    locate, words = _LEGACY if scan.magic[0] < MAGIC_V2 else _V2
    failure, place = locate(source, table, offset, start, end, key_start, key_size, has_value)
    if failure:
        raise CorruptBatchError(words[failure], int(scan.position[place]))
    batch = np.repeat(np.arange(len(scan)), counts)
    records = KeyedRecords(source, scan, table, batch, offset, start, end, key_start, key_size, has_value)
    _refuse_foreign_offsets(records)
    return records


def _locate_entries(
    source: _Bytes,
    table: _Int64s,
    offset: _Int64s,
    start: _Int64s,
    end: _Int64s,
    key_start: _Int64s,
    key_size: _Int64s,
    has_value: npt.NDArray[np.bool_],
) -> tuple[int, int]:
    """As `locate_records`, for formats v0 and v1."""
    count = len(offset)
    timestamps, value_starts, header_starts = np.empty((3, count), np.int64)
    key_offsets, value_offsets, header_offsets = np.zeros((3, count + 1), np.int32)
    failure, place = parse_entries(
        source,
        table,
        offset,
        timestamps,
        key_start,
        key_offsets,
        value_starts,
        value_offsets,
        header_starts,
        header_offsets,
    )
    if not failure:
        locate_entries(source, table, start, end)
        key_size[:] = np.diff(key_offsets)
        has_value[:] = value_starts >= 0
    return failure, place


_V2: Final[tuple[Callable[..., tuple[int, int]], tuple[str, ...]]] = (locate_records, LOCATE_FAILURES)
_LEGACY: Final[tuple[Callable[..., tuple[int, int]], tuple[str, ...]]] = (_locate_entries, LEGACY_FAILURES)


def _refuse_foreign_offsets(records: KeyedRecords) -> None:
    """Refuse records with offsets outside of their batch, which a look-up by offset would miss.

    Offsets must rise from a batch's first one on; the kernel checks this for v2.
    """
    scan, offset, counts = records.scan, records.offset, records.counts
    full = np.flatnonzero(counts)
    ends = np.cumsum(counts)[full]
    wrong = offset[ends - 1] > scan.last_offset[full]
    if scan.magic[0] < MAGIC_V2:
        back = np.zeros(len(offset), np.bool_)
        back[1:] = (offset[1:] <= offset[:-1]) & (records.batch[1:] == records.batch[:-1])
        wrong |= np.add.reduceat(back, ends - counts[full]) > 0 if len(full) else wrong
    if wrong.any():
        number = int(full[int(np.argmax(wrong))])
        what = f"a record's offset goes back, or is outside of its batch: last_offset={scan.last_offset[number]}"
        raise CorruptBatchError(what, int(scan.position[number]))
