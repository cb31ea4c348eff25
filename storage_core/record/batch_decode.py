"""Decodes batches to Arrow columns: Kafka's record formats v0, v1 and v2, vectorised.

Formats may mix in any order; the records come out in the order of their batches. Every count and length is untrusted:
the kernels check each before its use, and no memory is sized by a number that the present bytes could not justify. This
does not check a batch's CRC (`batch_scan.check_crcs` does), only the CRCs of a wrapper's inner entries: Kafka's
consumer checks both.

Source: Kafka DefaultRecordBatch, AbstractLegacyRecordBatch; KIP-32, KIP-98.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.log_config import CODECS, INT32_MAX
from sparklog.storage_core.record.attributes import CODEC_MASK, CONTROL_BIT
from sparklog.storage_core.record.batch_probe import MAGIC_V2
from sparklog.storage_core.record.batch_scan import BatchScan, scan_batches
from sparklog.storage_core.record.compression import MAX_DECOMPRESSED_BYTES, decompress
from sparklog.storage_core.record.decoded_columns import (
    MOST_RECORDS,
    DamagedSectionError,
    SectionTable,
    decode_sections,
    plain_sections,
    split_sections,
)
from sparklog.storage_core.record.kernel_tables import SectionColumn
from sparklog.storage_core.record.legacy.decode import LEGACY_CODECS, InnerSet, open_wrapper, survey_wrapper
from sparklog.storage_core.record.legacy.header import MIN_ENTRY_BYTES
from sparklog.storage_core.record.schema import RECORD_SCHEMA
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, ByteSource

__all__ = ["DECODE_TARGET_BYTES", "InspectedRecords", "decode_batches", "iter_decoded", "iter_inspected"]

DECODE_TARGET_BYTES: Final = 4 << 20
"""Record bytes after which `iter_decoded` yields."""

_MIN_RECORD_BYTES: Final = 7
_SPAN: Final = slice(SectionColumn.START, SectionColumn.END + 1)

_Bytes = npt.NDArray[np.uint8]
_Int64s = npt.NDArray[np.int64]


def decode_batches(
    data: ByteSource,
    scan: BatchScan | None = None,
    *,
    max_batch_bytes: int = MAX_DECOMPRESSED_BYTES,
    include_control: bool = False,
) -> pa.RecordBatch:
    """Return every record of the batches, in the order they lie.

    Args:
        scan: of `data`, or of a part of its batches; all complete batches if None.
        max_batch_bytes: limit of an expanded batch.
        include_control: whether control records are kept.

    Returns:
        `RECORD_SCHEMA`.

    Raises:
        CorruptBatchError: a batch's bytes contradict themselves.
        ValueError: the records are above 2 GiB; `iter_decoded` takes any number.
    """
    options = _Options(INT32_MAX, max_batch_bytes, include_control, most_records=INT32_MAX)
    decoded = [records for _, records in _decoded(data, scan, options)]
    if len(decoded) > 1:
        raise ValueError("the records are above 2 GiB: decode them with iter_decoded")
    return decoded[0] if decoded else pa.RecordBatch.from_pylist([], schema=RECORD_SCHEMA)


def iter_decoded(
    data: ByteSource,
    scan: BatchScan | None = None,
    target_bytes: int = DECODE_TARGET_BYTES,
    *,
    max_batch_bytes: int = MAX_DECOMPRESSED_BYTES,
    include_control: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the batches in order, some batches at a time; batches before a damaged one come first.

    A batch of very many records comes in pieces, to bound the memory; a damaged batch gives no record.

    Args:
        scan: of `data`, or of a part of its batches; all complete batches if None.
        target_bytes: record bytes of one result; a single batch is always allowed.
        max_batch_bytes: limit of an expanded batch.
        include_control: whether control records are kept.

    Yields:
        `RECORD_SCHEMA`; nothing without batches.

    Raises:
        CorruptBatchError: a batch's bytes contradict themselves.
    """
    options = _Options(min(target_bytes, INT32_MAX), max_batch_bytes, include_control)
    for _, records in _decoded(data, scan, options):
        yield records


@dataclass(frozen=True, slots=True)
class InspectedRecords:
    """Records of some batches with details for tools.

    Attributes:
        records: (n,) `RECORD_SCHEMA`.
        counts: (b,) the number of each one's records.
        is_continued: whether these are further records of one batch.
        crc: (n,) the stored CRC of a record of v0 or v1, 0 for those of v2, which have none.
        is_valid: (n,) whether that CRC is right.
    """

    records: pa.RecordBatch
    scan: BatchScan
    counts: _Int64s
    is_continued: bool
    crc: npt.NDArray[np.uint32]
    is_valid: npt.NDArray[np.bool_]


def iter_inspected(
    data: ByteSource, scan: BatchScan, *, max_batch_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[InspectedRecords]:
    """As `iter_decoded`, with control records, the records' batches and their CRCs.

    Raises:
        CorruptBatchError: a batch's bytes contradict themselves; a wrong CRC inside a wrapper does not count.
    """
    options = _Options(DECODE_TARGET_BYTES, max_batch_bytes, True, survey_wrapper)
    last_position = -1
    for sections, records in _decoded(data, scan, options):
        crc, is_valid = _entry_crcs(sections)
        is_continued = int(sections.scan.position[0]) == last_position
        yield InspectedRecords(records, sections.scan, sections.counts, is_continued, crc, is_valid)
        last_position = int(sections.scan.position[-1])


@dataclass(frozen=True, slots=True)
class _Options:
    target_bytes: int
    max_batch_bytes: int
    include_control: bool
    open_wrapper: Callable[[memoryview, int, int, int], InnerSet] = open_wrapper
    most_records: int = MOST_RECORDS


def _decoded(
    data: ByteSource, scan: BatchScan | None, options: _Options
) -> Iterator[tuple[SectionTable, pa.RecordBatch]]:
    for chunk in _chunks(data, scan, options):
        if chunk.counts.max() <= options.most_records:
            yield from _whole(chunk)
            continue
        try:
            for sections in split_sections(chunk, options.most_records):
                yield from _whole(sections)
        except DamagedSectionError as error:
            raise CorruptBatchError(str(error.args[0]), int(chunk.scan.position[error.place])) from error


def _whole(sections: SectionTable) -> Iterator[tuple[SectionTable, pa.RecordBatch]]:
    """Yield the records of sections at once; those before a damaged one come first."""
    try:
        records = decode_sections(sections)
    except DamagedSectionError as error:
        good = sections.slice(0, error.place)
        if len(good.scan):
            yield good, decode_sections(good)
        raise CorruptBatchError(str(error.args[0]), int(sections.scan.position[error.place])) from error
    yield sections, records


def _chunks(data: ByteSource, scan: BatchScan | None, options: _Options) -> Iterator[SectionTable]:
    """Yield the sections of the batches, up to the target each; raise at the first damaged batch."""
    source = np.frombuffer(data, np.uint8)
    scan = scan_batches(source) if scan is None else scan
    if not options.include_control:
        is_control = ((scan.attributes & CONTROL_BIT) != 0) & (scan.magic == MAGIC_V2)
        scan = scan.take(~is_control) if is_control.any() else scan
    readable, error = _readable(source, scan)
    good = scan.take(slice(0, readable))
    if (good.attributes & CODEC_MASK).any():
        yield from _compressed_chunks(source, good, options)
    else:
        yield from _plain_chunks(source, good, options.target_bytes)
    if error:
        raise error


def _readable(source: _Bytes, scan: BatchScan) -> tuple[int, CorruptBatchError | None]:
    """Return the number of readable batches, and the error of the one after them."""
    codec = scan.attributes & CODEC_MASK
    is_v2 = scan.magic == MAGIC_V2
    room, codecs = scan.size - HEADER_BYTES, np.full(len(scan), len(CODECS))
    if not is_v2.all():
        is_v1 = scan.magic == 1
        room = np.where(is_v2, room, scan.size - np.where(is_v1, MIN_ENTRY_BYTES[1], MIN_ENTRY_BYTES[0]))
        codecs = np.where(is_v2, codecs, len(LEGACY_CODECS))
    checks = (
        ((scan.magic < 0) | (scan.magic > MAGIC_V2), "no format has this magic"),
        ((scan.position < 0) | (room < 0) | (scan.position + scan.size > source.size), "batch reaches past its bytes"),
        (codec >= codecs, "attributes name no codec of this format"),
        (is_v2 & (scan.records_count < 0), "records count is negative"),
        (
            is_v2 & (codec == 0) & (scan.records_count > room // _MIN_RECORD_BYTES),
            "records count is above what the bytes can hold",
        ),
    )
    wrong = np.logical_or.reduce([bad for bad, _ in checks])
    if not wrong.any():
        return len(scan), None
    first = int(np.argmax(wrong))
    message = next(message for bad, message in checks if bad[first])
    return first, CorruptBatchError(message, int(scan.position[first]))


def _plain_chunks(source: _Bytes, scan: BatchScan, target_bytes: int) -> Iterator[SectionTable]:
    ends = np.cumsum(scan.size)
    first = 0
    while first < len(scan):
        base = int(ends[first - 1]) if first else 0
        after = max(int(np.searchsorted(ends, base + target_bytes, side="right")), first + 1)
        chosen = scan.take(slice(first, after))
        yield SectionTable(source, plain_sections(chosen), chosen)
        first = after


def _compressed_chunks(source: _Bytes, scan: BatchScan, options: _Options) -> Iterator[SectionTable]:
    """Yield sections in bytes of their own: compressed batches opened, others copied."""
    table, borders = plain_sections(scan), _stretches(scan, options.target_bytes)
    position, end, count = scan.position.tolist(), (scan.position + scan.size).tolist(), scan.records_count.tolist()
    codec, view = (scan.attributes & CODEC_MASK).tolist(), source.data
    max_bytes = min(options.max_batch_bytes, INT32_MAX)
    parts: list[bytes | memoryview] = []
    first = total = 0
    for place, (start, after) in enumerate(pairwise(borders)):
        batch = view[position[start] : end[after - 1]]
        part: bytes | memoryview = batch
        try:
            if codec[start] and table[start, SectionColumn.MAGIC] < MAGIC_V2:
                inner = options.open_wrapper(batch, int(scan.last_offset[start]), max_bytes, position[start])
                part = inner.data
                table[start, SectionColumn.COUNT], table[start, SectionColumn.BASE_OFFSET] = (
                    inner.count,
                    inner.base_offset,
                )
            elif codec[start]:
                part = _section(batch, CODECS[codec[start]], count[start], max_bytes, position[start])
        except CorruptBatchError:
            if parts:
                yield _joined(parts, table, scan, borders[first : place + 1])
            raise
        if parts and total + len(part) > options.target_bytes:
            yield _joined(parts, table, scan, borders[first : place + 1])
            first, total, parts = place, 0, []
        parts.append(part)
        total += len(part)
    if parts:
        yield _joined(parts, table, scan, borders[first:])


def _stretches(scan: BatchScan, target_bytes: int) -> list[int]:
    """Return the borders of stretches: a compressed batch, or adjacent other ones."""
    ends = np.cumsum(scan.size)
    piece = ends // max(target_bytes, 1)
    # Only batches inside one piece of the target size are joined, so no stretch of several exceeds it.
    is_plain = ((scan.attributes & CODEC_MASK) == 0) & ((ends - scan.size) // max(target_bytes, 1) == piece)
    follows = scan.position[1:] == scan.position[:-1] + scan.size[:-1]
    joins = is_plain[1:] & is_plain[:-1] & follows & (piece[1:] == piece[:-1])
    return [0, *(np.flatnonzero(~joins) + 1).tolist(), len(scan)]


def _section(batch: memoryview, codec: str, count: int, max_bytes: int, position: int) -> bytes | memoryview:
    """Return the records of a compressed batch of format v2."""
    section: bytes | memoryview = batch[HEADER_BYTES:]
    if count or section:  # an emptied batch may have no stream
        section = decompress(codec, section, max_bytes, position)
    if count > len(section) // _MIN_RECORD_BYTES:
        raise CorruptBatchError("records count is above what the bytes can hold", position)
    return section


def _joined(parts: list[bytes | memoryview], table: _Int64s, scan: BatchScan, borders: list[int]) -> SectionTable:
    """Return the sections of stretches, in joined bytes."""
    rows = np.diff(borders)
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    ends = np.cumsum(sizes)
    mine, chosen = table[borders[0] : borders[-1]], scan.take(slice(borders[0], borders[-1]))
    moved = np.repeat(ends - sizes - scan.position[borders[:-1]], rows)
    mine[:, _SPAN] += moved[:, np.newaxis]
    is_compressed = (chosen.attributes & CODEC_MASK) != 0
    mine[is_compressed, SectionColumn.START] = np.repeat(ends - sizes, rows)[is_compressed]
    mine[is_compressed, SectionColumn.END] = np.repeat(ends, rows)[is_compressed]
    return SectionTable(np.frombuffer(b"".join(parts), np.uint8), mine, chosen)


def _entry_crcs(sections: SectionTable) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
    """Return the stored CRC of each record of v0 and v1, and whether it is right."""
    count = int(sections.counts.sum())
    crc, is_valid = np.zeros(count, np.uint32), np.ones(count, np.bool_)
    is_legacy = sections.scan.magic < MAGIC_V2
    if is_legacy.any():
        from sparklog.storage_core.record.reading_kernels import compare_crcs, locate_entries

        chosen = np.repeat(is_legacy, sections.counts)
        starts, ends = np.empty((2, int(chosen.sum())), np.int64)
        locate_entries(sections.source, sections.table[is_legacy], starts, ends)
        is_wrong = np.empty(len(starts), np.bool_)
        compare_crcs(sections.source, starts, ends, is_wrong)
        stored = sections.source[starts[:, np.newaxis] + _CRC_BYTES]
        crc[chosen] = stored.view(">u4").reshape(len(starts))
        is_valid[chosen] = ~is_wrong
    return crc, is_valid


_CRC_BYTES: Final = np.arange(12, 16)
