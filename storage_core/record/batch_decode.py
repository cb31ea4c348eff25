"""Batches in, columns out: Kafka's RecordBatch v2 to Arrow, vectorised.

Every count and length is untrusted: `decode_kernels` checks each before it is used, and nothing is sized by a number
that the bytes present could not justify. The CRC is not looked at here; see `batch_scan.check_crcs`.

Source: Kafka DefaultRecordBatch, AbstractLegacyRecordBatch; KIP-98.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage_core.errors import CorruptBatchError, UnsupportedFormatError
from storage_core.log_config import CODECS, INT32_MAX
from storage_core.record.attributes import CODEC_MASK, CONTROL_BIT, LOG_APPEND_TIME_BIT
from storage_core.record.batch_header import HEADER_BYTES, MAGIC_V2, ByteSource
from storage_core.record.batch_scan import BatchScan, scan_batches
from storage_core.record.compression import MAX_DECOMPRESSED_BYTES, decompress
from storage_core.record.decode_kernels import (
    FAILURES,
    SECTION_COLUMNS,
    SectionColumn,
    copy_ranges,
    locate_headers,
    parse_records,
)
from storage_core.record.schema import HEADERS_TYPE, RECORD_SCHEMA

__all__ = ["DECODE_TARGET_BYTES", "decode_batches", "iter_decoded"]

DECODE_TARGET_BYTES: Final = 32 << 20
"""Record bytes after which `iter_decoded` yields."""

_MIN_RECORD_BYTES: Final = 7
_TEXT_PIECE: Final = 1 << 16

_Bytes = npt.NDArray[np.uint8]
_Int32s = npt.NDArray[np.int32]
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
        data: bytes of a log.
        scan: of `data`, or of a part of its batches; all complete batches if None.
        max_batch_bytes: most bytes a compressed batch may expand to.
        include_control: whether control records are kept.

    Returns:
        `RECORD_SCHEMA`.

    Raises:
        CorruptBatchError: a batch's bytes contradict themselves.
        UnsupportedFormatError: a batch is of format v0 or v1.
        ValueError: the records are above 2 GiB; `iter_decoded` takes any number.
    """
    options = _Options(INT32_MAX, max_batch_bytes, include_control)
    chunks = list(_chunks(data, scan, options))
    if len(chunks) > 1:
        raise ValueError("the records are above 2 GiB: decode them with iter_decoded")
    return _decode(*chunks[0]) if chunks else _empty()


def iter_decoded(
    data: ByteSource,
    scan: BatchScan | None = None,
    target_bytes: int = DECODE_TARGET_BYTES,
    *,
    max_batch_bytes: int = MAX_DECOMPRESSED_BYTES,
    include_control: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the batches in order, some batches at a time; batches before a damaged one come first.

    Args:
        data: bytes of a log.
        scan: of `data`, or of a part of its batches; all complete batches if None.
        target_bytes: record bytes that one result may hold; a single batch is always allowed.
        max_batch_bytes: most bytes a compressed batch may expand to.
        include_control: whether control records are kept.

    Yields:
        `RECORD_SCHEMA`; nothing where there are no batches.

    Raises:
        CorruptBatchError: a batch's bytes contradict themselves.
        UnsupportedFormatError: a batch is of format v0 or v1.
    """
    options = _Options(min(target_bytes, INT32_MAX), max_batch_bytes, include_control)
    for source, sections in _chunks(data, scan, options):
        yield _decode(source, sections)


@dataclass(frozen=True, slots=True)
class _Options:
    target_bytes: int
    max_batch_bytes: int
    include_control: bool


@dataclass(frozen=True, slots=True)
class _Sections:
    """Record sections of some batches: `table` as the kernel takes it, the rest by batch."""

    table: npt.NDArray[np.int64]
    scan: BatchScan


def _chunks(data: ByteSource, scan: BatchScan | None, options: _Options) -> Iterator[tuple[_Bytes, _Sections]]:
    """Yield bytes and the sections in them, up to the target each; raise at the first batch that can't be read."""
    source = np.frombuffer(data, np.uint8)
    scan = scan_batches(source) if scan is None else scan
    if not options.include_control:
        scan = scan.take((scan.attributes & CONTROL_BIT) == 0) if (scan.attributes & CONTROL_BIT).any() else scan
    readable, error = _readable(source, scan)
    good = scan.take(slice(0, readable))
    if (good.attributes & CODEC_MASK).any():
        yield from _compressed_chunks(source, good, options)
    else:
        yield from _plain_chunks(source, good, options.target_bytes)
    if error:
        raise error


def _readable(source: _Bytes, scan: BatchScan) -> tuple[int, Exception | None]:
    """Return how many batches may be read, and what is wrong with the one after them."""
    codec = scan.attributes & CODEC_MASK
    room = scan.size - HEADER_BYTES
    checks = (
        ((scan.magic == 0) | (scan.magic == 1), "format v0 or v1 is not read by this release"),
        (scan.magic != MAGIC_V2, "no format has this magic"),
        ((scan.position < 0) | (room < 0) | (scan.position + scan.size > source.size), "batch reaches past its bytes"),
        (codec >= len(CODECS), "attributes name no codec"),
        (scan.records_count < 0, "records count is negative"),
        (
            (codec == 0) & (scan.records_count > room // _MIN_RECORD_BYTES),
            "records count is above what the bytes can hold",
        ),
    )
    wrong = np.logical_or.reduce([bad for bad, _ in checks])
    if not wrong.any():
        return len(scan), None
    first = int(np.argmax(wrong))
    position = int(scan.position[first])
    message = next(message for bad, message in checks if bad[first])
    if scan.magic[first] in (0, 1):
        return first, UnsupportedFormatError(f"{message} magic={scan.magic[first]} position={position}")
    return first, CorruptBatchError(message, position)


def _plain_chunks(source: _Bytes, scan: BatchScan, target_bytes: int) -> Iterator[tuple[_Bytes, _Sections]]:
    ends = np.cumsum(scan.size)
    first = 0
    while first < len(scan):
        base = int(ends[first - 1]) if first else 0
        after = max(int(np.searchsorted(ends, base + target_bytes, side="right")), first + 1)
        chosen = scan.take(slice(first, after))
        yield source, _sections(chosen, chosen.position + HEADER_BYTES, chosen.position + chosen.size)
        first = after


def _compressed_chunks(source: _Bytes, scan: BatchScan, options: _Options) -> Iterator[tuple[_Bytes, _Sections]]:
    view = source.data
    parts: list[bytes | memoryview] = []
    first, total, max_bytes = 0, 0, min(options.max_batch_bytes, INT32_MAX)
    batches = zip(
        scan.position.tolist(), scan.size.tolist(), scan.attributes.tolist(), scan.records_count.tolist(), strict=True
    )
    for place, (position, size, attributes, count) in enumerate(batches):
        section: bytes | memoryview = view[position + HEADER_BYTES : position + size]
        try:
            if count or section:  # a batch that lost all its records may be left without a stream
                section = decompress(CODECS[attributes & CODEC_MASK], section, max_bytes, position)
            if count > len(section) // _MIN_RECORD_BYTES:
                raise CorruptBatchError("records count is above what the bytes can hold", position)
        except CorruptBatchError:
            if parts:
                yield _joined(parts, scan.take(slice(first, place)))
            raise
        if parts and total + len(section) > options.target_bytes:
            yield _joined(parts, scan.take(slice(first, place)))
            first, total, parts = place, 0, []
        parts.append(section)
        total += len(section)
    if parts:
        yield _joined(parts, scan.take(slice(first, len(scan))))


def _joined(parts: list[bytes | memoryview], scan: BatchScan) -> tuple[_Bytes, _Sections]:
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    ends = np.cumsum(sizes)
    return np.frombuffer(b"".join(parts), np.uint8), _sections(scan, ends - sizes, ends)


def _sections(scan: BatchScan, starts: _Int64s, ends: _Int64s) -> _Sections:
    append_time = (scan.attributes & LOG_APPEND_TIME_BIT) != 0
    table = np.empty((len(scan), SECTION_COLUMNS), np.int64)
    table[:, SectionColumn.START] = starts
    table[:, SectionColumn.END] = ends
    table[:, SectionColumn.COUNT] = scan.records_count
    table[:, SectionColumn.BASE_OFFSET] = scan.base_offset
    table[:, SectionColumn.BASE_TIMESTAMP] = np.where(append_time, scan.max_timestamp, scan.base_timestamp)
    table[:, SectionColumn.FIXED_TIMESTAMP] = append_time
    return _Sections(table, scan)


def _empty() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=RECORD_SCHEMA)


def _decode(source: _Bytes, sections: _Sections) -> pa.RecordBatch:
    counts = sections.table[:, SectionColumn.COUNT]
    count = int(counts.sum())
    offsets, timestamps = np.empty(count, np.int64), np.empty(count, np.int64)
    key, value, headers = _ranges(count), _ranges(count), _ranges(count)
    failure, place = parse_records(source, sections.table, offsets, timestamps, *key, *value, *headers)
    if failure:
        raise CorruptBatchError(FAILURES[failure], int(sections.scan.position[place]))
    append_time = sections.table[:, SectionColumn.FIXED_TIMESTAMP].astype(np.int8)
    columns = [
        pa.array(offsets),
        pa.array(timestamps),
        pa.array(np.repeat(append_time, counts)),
        pa.array(np.repeat(sections.scan.leader_epoch, counts)),
        _binary(source, *key),
        _binary(source, *value),
        _headers(source, *headers),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def _ranges(count: int) -> tuple[_Int64s, _Int32s]:
    """Return room for the starts and the Arrow offsets of `count` elements."""
    return np.empty(count, np.int64), np.empty(count + 1, np.int32)


def _binary(source: _Bytes, starts: _Int64s, offsets: _Int32s) -> pa.Array:
    data = np.empty(int(offsets[-1]), np.uint8)
    copy_ranges(source, starts, offsets, data)
    is_null = starts < 0
    validity = pa.py_buffer(np.packbits(~is_null, bitorder="little")) if is_null.any() else None
    return pa.Array.from_buffers(pa.binary(), len(starts), [validity, pa.py_buffer(offsets), pa.py_buffer(data)])


def _headers(source: _Bytes, starts: _Int64s, offsets: _Int32s) -> pa.Array:
    count = int(offsets[-1])
    names, contents = _ranges(count), _ranges(count)
    if count:
        locate_headers(source, starts, offsets, *names, *contents)
    else:
        names[1][0] = contents[1][0] = 0
    pairs = pa.StructArray.from_arrays(
        [_text(_binary(source, *names)), _binary(source, *contents)], fields=list(HEADERS_TYPE.value_type)
    )
    return pa.Array.from_buffers(HEADERS_TYPE, len(starts), [None, pa.py_buffer(offsets)], children=[pairs])


def _text(names: pa.Array) -> pa.Array:
    """Return header keys as text; bytes that are not UTF-8 become U+FFFD, as in Kafka's consumer."""
    text = pa.Array.from_buffers(pa.string(), len(names), names.buffers())
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        # A piece at a time: a small compressed batch may hold tens of millions of keys, and each costs an object.
        pieces = (names.slice(start, _TEXT_PIECE) for start in range(0, len(names), _TEXT_PIECE))
        return pa.concat_arrays([_replaced(piece) for piece in pieces])
    return text


def _replaced(names: pa.Array) -> pa.Array:
    return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())
