"""Copies sections of records, located by the kernels, to Arrow columns.

A section is the records of one batch, decompressed; or one uncompressed entry of format v0 or v1; or the entries of a
wrapper. A table may have sections of several formats, in the order of their batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.storage_core.record.attributes import LOG_APPEND_TIME_BIT
from sparklog.storage_core.record.batch_probe import MAGIC_V2
from sparklog.storage_core.record.batch_scan import BatchScan
from sparklog.storage_core.record.few_batches import RECORD_COST_BYTES, is_few, unpack_section
from sparklog.storage_core.record.java_text import java_text
from sparklog.storage_core.record.kernel_tables import SECTION_COLUMNS, SectionColumn
from sparklog.storage_core.record.schema import HEADERS_TYPE, NO_TIMESTAMP_TYPE, RECORD_SCHEMA
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES

__all__ = [
    "MOST_RECORDS",
    "DamagedSectionError",
    "SectionTable",
    "cut_section",
    "decode_sections",
    "plain_sections",
    "split_sections",
]

MOST_RECORDS: Final = 1 << 17
"""A batch of more records is decoded in pieces; Kafka's producers make batches of some hundred."""

_TEXT_PIECE: Final = 1 << 16

_Bytes = npt.NDArray[np.uint8]
_Int32s = npt.NDArray[np.int32]
_Int64s = npt.NDArray[np.int64]
_Ranges = tuple[_Int64s, _Int32s]
_Fields = tuple[_Int64s, _Int64s, tuple[pa.Array, pa.Array, pa.Array]]


class DamagedSectionError(Exception):
    """A section contradicts itself; never leaves this package.

    Attributes:
        place: of the section in its table.
    """

    def __init__(self, message: str, place: int) -> None:
        super().__init__(message, place)
        self.place = place


@dataclass(frozen=True, slots=True)
class SectionTable:
    """Sections of records in some bytes.

    Attributes:
        table: (b, SECTION_COLUMNS), for the kernels.
        scan: (b,) the sections' batches.
    """

    source: _Bytes
    table: npt.NDArray[np.int64]
    scan: BatchScan

    @property
    def counts(self) -> _Int64s:
        """(b,) records in each."""
        return self.table[:, SectionColumn.COUNT]

    def slice(self, first: int, end: int) -> SectionTable:
        """Return the sections from one place to before another."""
        return SectionTable(self.source, self.table[first:end], self.scan.take(slice(first, end)))


def split_sections(sections: SectionTable, most_records: int) -> Iterator[SectionTable]:
    """Yield the sections in pieces of at most `most_records` of one section.

    The columns of tiny records are many times as large as the records. A divided section is parsed as a whole before
    its first piece, so a damaged one gives none.

    Raises:
        DamagedSectionError: a section to divide contradicts itself; earlier ones were yielded.
    """
    is_large = (sections.counts > most_records) & (sections.table[:, SectionColumn.MAGIC] == MAGIC_V2)
    first = 0
    for place in np.flatnonzero(is_large).tolist():
        if first < place:
            yield sections.slice(first, place)
        pieces = cut_section(sections, place, most_records)
        for piece in pieces:
            try:
                _parsed(piece)
            except DamagedSectionError as error:
                raise DamagedSectionError(str(error.args[0]), place) from error
        yield from pieces
        first = place + 1
    if first == 0 or first < len(sections.table):
        yield sections.slice(first, len(sections.table))


def cut_section(sections: SectionTable, place: int, step: int) -> list[SectionTable]:
    """Return a large section of v2 in pieces of `step` records, cut by their lengths; checks nothing else.

    Raises:
        DamagedSectionError: a length is damaged.
    """
    from sparklog.storage_core.record.reading_kernels import FAILURES, cut_records

    row, scan = sections.table[place], sections.scan.take(slice(place, place + 1))
    start, end, count = (int(row[at]) for at in (SectionColumn.START, SectionColumn.END, SectionColumn.COUNT))
    cuts = np.empty(-(-count // step), np.int64)
    if not cut_records(sections.source, start, end, count, step, cuts):
        raise DamagedSectionError(FAILURES[1], place)
    table = np.repeat(row[np.newaxis], len(cuts), axis=0)
    table[:, SectionColumn.START], table[:-1, SectionColumn.END] = cuts, cuts[1:]
    table[:, SectionColumn.COUNT] = step
    table[-1, SectionColumn.COUNT] = count - step * (len(cuts) - 1)
    return [SectionTable(sections.source, table[n : n + 1], scan) for n in range(len(cuts))]


def plain_sections(scan: BatchScan) -> npt.NDArray[np.int64]:
    """Return the section table of uncompressed batches."""
    is_legacy = scan.magic < MAGIC_V2
    append_time = (scan.attributes & LOG_APPEND_TIME_BIT) != 0
    table = np.empty((len(scan), SECTION_COLUMNS), np.int64)
    table[:, SectionColumn.START] = scan.position + np.where(is_legacy, 0, HEADER_BYTES)
    table[:, SectionColumn.END] = scan.position + scan.size
    table[:, SectionColumn.COUNT] = np.where(is_legacy, 1, scan.records_count)
    table[:, SectionColumn.BASE_OFFSET] = np.where(is_legacy, 0, scan.base_offset)
    table[:, SectionColumn.BASE_TIMESTAMP] = np.where(append_time | is_legacy, scan.max_timestamp, scan.base_timestamp)
    table[:, SectionColumn.FIXED_TIMESTAMP] = append_time | (scan.magic == 0)
    table[:, SectionColumn.MAGIC] = scan.magic
    return table


def decode_sections(sections: SectionTable) -> pa.RecordBatch:
    """Return the records of all sections, in order.

    Raises:
        DamagedSectionError: the first section whose bytes contradict themselves.
    """
    table, counts = sections.table, sections.counts
    offsets, timestamps, texts = _by_plain_code(sections) or _by_kernels(sections)
    kinds = table[:, SectionColumn.FIXED_TIMESTAMP].astype(np.int8)
    kinds[table[:, SectionColumn.MAGIC] == 0] = NO_TIMESTAMP_TYPE
    columns = [
        _numbers(pa.int64(), offsets),
        _numbers(pa.int64(), timestamps),
        _numbers(pa.int8(), np.repeat(kinds, counts)),
        _numbers(pa.int32(), np.repeat(sections.scan.leader_epoch, counts)),
        *texts,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def _by_plain_code(sections: SectionTable) -> _Fields | None:
    """Return the fields of a few records; None if the kernels have to read them, or to report damage."""
    table, view = sections.table, sections.source.data
    sizes = table[:, SectionColumn.END] - table[:, SectionColumn.START]
    cost_bytes = int((sections.counts * RECORD_COST_BYTES + sizes).sum())
    if (table[:, SectionColumn.MAGIC] != MAGIC_V2).any() or not is_few(cost_bytes):
        return None
    records = []
    try:
        for start, end, count, offset, timestamp, fixed, _ in table.tolist():
            records += unpack_section(bytes(view[start:end]), count, offset, timestamp, is_fixed_timestamp=bool(fixed))
    except ValueError:
        return None
    headers = [header for each in records for header in each.headers]
    names = _joined(pa.string(), [name.encode() for name, _ in headers])
    texts = (
        _joined(pa.binary(), [each.key for each in records]),
        _joined(pa.binary(), [each.value for each in records]),
        _header_lists(
            _ends([len(each.headers) for each in records]), names, _joined(pa.binary(), [value for _, value in headers])
        ),
    )
    return (
        np.array([each.offset for each in records], np.int64),
        np.array([each.timestamp for each in records], np.int64),
        texts,
    )


def _by_kernels(sections: SectionTable) -> _Fields:
    offsets, timestamps, (key, value, headers) = _parsed(sections)
    source = sections.source
    return offsets, timestamps, (_binary(source, *key), _binary(source, *value), _headers(source, *headers))


def _joined(kind: pa.DataType, parts: Sequence[bytes | None]) -> pa.Array:
    is_null = np.array([each is None for each in parts], np.bool_)
    return _array(kind, is_null, _ends([len(each or b"") for each in parts]), b"".join(each or b"" for each in parts))


def _ends(sizes: list[int]) -> _Int32s:
    """Return the Arrow offsets of elements of these sizes."""
    return np.cumsum([0, *sizes], dtype=np.int32)


def _numbers(kind: pa.DataType, values: npt.NDArray[np.generic]) -> pa.Array:
    """Return a column over the numbers' memory; `pa.array` would import pandas."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _parsed(sections: SectionTable) -> tuple[_Int64s, _Int64s, tuple[_Ranges, _Ranges, _Ranges]]:
    """Parse each run of sections of one family of formats by its kernel.

    Returns:
        offsets, timestamps, and places of keys, values and headers.

    Raises:
        DamagedSectionError: the first section whose bytes contradict themselves.
    """
    from sparklog.storage_core.record.reading_kernels import FAILURES, LEGACY_FAILURES, parse_entries, parse_records

    table, count = sections.table, int(sections.counts.sum())
    offsets, timestamps = np.empty(count, np.int64), np.empty(count, np.int64)
    ranges = _ranges(count), _ranges(count), _ranges(count)
    is_legacy = table[:, SectionColumn.MAGIC] < MAGIC_V2
    ends = [*(np.flatnonzero(is_legacy[1:] != is_legacy[:-1]) + 1).tolist(), len(table)]
    first = row = 0
    for after in ends:
        parse, words = (
            (parse_entries, LEGACY_FAILURES) if first < after and is_legacy[first] else (parse_records, FAILURES)
        )
        parts: list[Any] = [part[row:] for pair in ranges for part in pair]
        failure, place = parse(sections.source, table[first:after], offsets[row:], timestamps[row:], *parts)
        if failure:
            raise DamagedSectionError(words[failure], first + place)
        row += int(sections.counts[first:after].sum())
        first = after
    return offsets, timestamps, ranges


def _ranges(count: int) -> _Ranges:
    """Return room for the starts and the Arrow offsets of `count` elements."""
    offsets = np.empty(count + 1, np.int32)
    offsets[0] = 0
    return np.empty(count, np.int64), offsets


def _binary(source: _Bytes, starts: _Int64s, offsets: _Int32s) -> pa.Array:
    from sparklog.storage_core.record.reading_kernels import copy_ranges

    data = np.empty(int(offsets[-1]), np.uint8)
    copy_ranges(source, starts, offsets, data)
    return _array(pa.binary(), starts < 0, offsets, data)


def _array(kind: pa.DataType, is_null: npt.NDArray[np.bool_], offsets: _Int32s, data: _Bytes | bytes) -> pa.Array:
    validity = pa.py_buffer(np.packbits(~is_null, bitorder="little")) if is_null.any() else None
    return pa.Array.from_buffers(kind, len(is_null), [validity, pa.py_buffer(offsets), pa.py_buffer(data)])


def _headers(source: _Bytes, starts: _Int64s, offsets: _Int32s) -> pa.Array:
    from sparklog.storage_core.record.reading_kernels import copy_headers, measure_headers

    count = int(offsets[-1])
    name_offsets, content_offsets = np.zeros((2, count + 1), np.int32)
    is_null = np.empty(count, np.bool_)
    if count:
        measure_headers(source, starts, offsets, name_offsets, content_offsets, is_null)
    names, contents = np.empty(int(name_offsets[-1]), np.uint8), np.empty(int(content_offsets[-1]), np.uint8)
    if count:
        copy_headers(source, starts, offsets, names, contents)
    text = _text(_array(pa.binary(), np.zeros(count, np.bool_), name_offsets, names))
    return _header_lists(offsets, text, _array(pa.binary(), is_null, content_offsets, contents))


def _header_lists(offsets: _Int32s, names: pa.Array, contents: pa.Array) -> pa.Array:
    pairs = pa.StructArray.from_arrays([names, contents], fields=list(HEADERS_TYPE.value_type))
    return pa.Array.from_buffers(HEADERS_TYPE, len(offsets) - 1, [None, pa.py_buffer(offsets)], children=[pairs])


def _text(names: pa.Array) -> pa.Array:
    """Return header keys as text; bytes that are not UTF-8 become U+FFFD, as in Kafka's consumer."""
    text = pa.Array.from_buffers(pa.string(), len(names), names.buffers())
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        # A piece at a time: a small compressed batch may have tens of millions of keys, and each costs an object.
        pieces = (names.slice(start, _TEXT_PIECE) for start in range(0, len(names), _TEXT_PIECE))
        replaced = (pa.array([java_text(name) for name in piece.to_pylist()], pa.string()) for piece in pieces)
        return pa.concat_arrays(list(replaced))
    return text
