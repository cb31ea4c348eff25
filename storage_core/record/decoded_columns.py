"""From sections of records to Arrow columns: the kernels say where everything lies, this copies it.

A section is the records of one batch, decompressed; or one uncompressed entry of format v0 or v1; or the entries of a
wrapper. Sections of different formats lie in one table in the order of their batches, and come out in that order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage_core.record.attributes import LOG_APPEND_TIME_BIT
from storage_core.record.batch_header import HEADER_BYTES, MAGIC_V2
from storage_core.record.batch_scan import BatchScan
from storage_core.record.decode_kernels import (
    FAILURES,
    SECTION_COLUMNS,
    SectionColumn,
    copy_ranges,
    locate_headers,
    parse_records,
)
from storage_core.record.java_text import java_text
from storage_core.record.legacy_kernels import LEGACY_FAILURES, parse_entries
from storage_core.record.schema import HEADERS_TYPE, NO_TIMESTAMP_TYPE, RECORD_SCHEMA

__all__ = ["DamagedSectionError", "SectionTable", "decode_sections", "plain_sections"]

_TEXT_PIECE: Final = 1 << 16

_Bytes = npt.NDArray[np.uint8]
_Int32s = npt.NDArray[np.int32]
_Int64s = npt.NDArray[np.int64]
_Ranges = tuple[_Int64s, _Int32s]


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
        source: the bytes.
        table: (b, SECTION_COLUMNS), as the kernels take it.
        scan: (b,) the batches that the sections belong to.
    """

    source: _Bytes
    table: npt.NDArray[np.int64]
    scan: BatchScan

    @property
    def counts(self) -> _Int64s:
        """(b,) records in each."""
        return self.table[:, SectionColumn.COUNT]

    def before(self, place: int) -> SectionTable:
        """Return the sections before a place."""
        return SectionTable(self.source, self.table[:place], self.scan.take(slice(0, place)))


def plain_sections(scan: BatchScan) -> npt.NDArray[np.int64]:
    """Return a section table of batches as they lie, as if none was compressed."""
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
    count = int(counts.sum())
    offsets, timestamps = np.empty(count, np.int64), np.empty(count, np.int64)
    key, value, headers = _ranges(count), _ranges(count), _ranges(count)
    _parse(sections, offsets, timestamps, (key, value, headers))
    kinds = table[:, SectionColumn.FIXED_TIMESTAMP].astype(np.int8)
    kinds[table[:, SectionColumn.MAGIC] == 0] = NO_TIMESTAMP_TYPE
    columns = [
        pa.array(offsets),
        pa.array(timestamps),
        pa.array(np.repeat(kinds, counts)),
        pa.array(np.repeat(sections.scan.leader_epoch, counts)),
        _binary(sections.source, *key),
        _binary(sections.source, *value),
        _headers(sections.source, *headers),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def _parse(sections: SectionTable, offsets: _Int64s, timestamps: _Int64s, ranges: tuple[_Ranges, ...]) -> None:
    """Let each run of sections of one family of formats be read by its kernel."""
    table = sections.table
    is_legacy = table[:, SectionColumn.MAGIC] < MAGIC_V2
    ends = [*(np.flatnonzero(is_legacy[1:] != is_legacy[:-1]) + 1).tolist(), len(table)]
    first = row = 0
    for after in ends:
        parse, words = (parse_entries, LEGACY_FAILURES) if first < after and is_legacy[first] else _V2
        parts: list[Any] = [part[row:] for pair in ranges for part in pair]
        failure, place = parse(sections.source, table[first:after], offsets[row:], timestamps[row:], *parts)
        if failure:
            raise DamagedSectionError(words[failure], first + place)
        row += int(sections.counts[first:after].sum())
        first = after


_V2: Final = (parse_records, FAILURES)


def _ranges(count: int) -> _Ranges:
    """Return room for the starts and the Arrow offsets of `count` elements."""
    offsets = np.empty(count + 1, np.int32)
    offsets[0] = 0
    return np.empty(count, np.int64), offsets


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
    return pa.array([java_text(name) for name in names.to_pylist()], pa.string())
