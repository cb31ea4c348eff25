"""What a dump shows of batches and records, as columns of numbers and of UTF-8 text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum, auto
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.inspect.dump.control import control_text
from sparklog.storage_core.inspect.dump.line_program import Contents
from sparklog.storage_core.inspect.dump.options import DumpOptions
from sparklog.storage_core.record import attributes as bits
from sparklog.storage_core.record.batch_decode import InspectedRecords
from sparklog.storage_core.record.batch_probe import MAGIC_V2
from sparklog.storage_core.record.batch_scan import BatchScan
from sparklog.storage_core.record.java_text import java_text

__all__ = ["BatchNumber", "RecordColumns", "RecordContent", "RecordNumber", "batch_numbers", "record_columns"]

_Int64s = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]
_Numbers = list[npt.NDArray[np.generic]]

_PIECE_ROWS: Final = 1 << 16
_NO_TIME: Final = 2
"""What stands for the timestamp type of format v0: places in a list of words start at 0."""


class _Column(IntEnum):
    @staticmethod
    def _generate_next_value_(_name: str, _start: int, count: int, _last: list[int]) -> int:
        return count


class BatchNumber(_Column):
    """The columns of `batch_numbers`."""

    POSITION = auto()
    SIZE = auto()
    MAGIC = auto()
    TIMESTAMP_TYPE = auto()
    MAX_TIMESTAMP = auto()
    CODEC = auto()
    CRC = auto()
    IS_VALID = auto()
    BASE_OFFSET = auto()
    LAST_OFFSET = auto()
    COUNT = auto()
    BASE_SEQUENCE = auto()
    LAST_SEQUENCE = auto()
    PRODUCER_ID = auto()
    PRODUCER_EPOCH = auto()
    LEADER_EPOCH = auto()
    IS_TRANSACTIONAL = auto()
    IS_CONTROL = auto()
    HAS_DELETE_HORIZON = auto()
    DELETE_HORIZON = auto()


class RecordNumber(_Column):
    """The columns of `RecordColumns.numbers`."""

    OFFSET = auto()
    TIMESTAMP_TYPE = auto()
    TIMESTAMP = auto()
    KEY_SIZE = auto()
    VALUE_SIZE = auto()
    SEQUENCE = auto()
    IS_VALID = auto()  # its own CRC
    CRC = auto()
    SHOWS_KEY = auto()
    SHOWS_VALUE = auto()  # 1 alone, 2 after a key
    IS_CONTROL = auto()
    BATCH_POSITION = auto()


class RecordContent(_Column):
    """The columns of `RecordColumns.contents`."""

    KEY = auto()
    VALUE = auto()
    HEADER_KEYS = auto()
    CONTROL = auto()


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records side by side.

    Attributes:
        numbers: see `RecordNumber`; a timestamp type of 2 is none.
        contents: see `RecordContent`.
        is_legacy: (n,) whether a record is of format v0 or v1.
    """

    numbers: _Numbers
    contents: Contents
    is_legacy: _Bools

    def rows(self, chosen: slice | _Bools) -> RecordColumns:
        """Return some of the records."""
        numbers = [column[chosen] for column in self.numbers]
        return replace(self, numbers=numbers, contents=self.contents.rows(chosen), is_legacy=self.is_legacy[chosen])


def batch_numbers(position: int, scan: BatchScan, is_valid: _Bools) -> _Numbers:
    """Return the columns that `BatchNumber` names; `position` is added to those of the scan."""
    attributes, base_sequence = scan.attributes, scan.base_sequence.astype(np.int64)
    return [
        scan.position + position,
        scan.size,
        scan.magic,
        np.where(scan.magic == 0, _NO_TIME, (attributes & bits.LOG_APPEND_TIME_BIT) != 0),
        scan.max_timestamp,
        attributes & bits.CODEC_MASK,
        scan.crc,
        is_valid,
        scan.base_offset,
        scan.last_offset,
        scan.records_count,
        base_sequence,
        _wrapped_sequences(base_sequence, scan.last_offset_delta),
        scan.producer_id,
        scan.producer_epoch,
        scan.leader_epoch,
        (attributes & bits.TRANSACTIONAL_BIT) != 0,
        (attributes & bits.CONTROL_BIT) != 0,
        (attributes & bits.DELETE_HORIZON_BIT) != 0,
        scan.base_timestamp,
    ]


def record_columns(position: int, found: InspectedRecords, options: DumpOptions) -> RecordColumns:
    """Return what is to be shown of records; `position` is added to those of their batches.

    Raises:
        CorruptBatchError: a decoder was asked for that can't read a key or a value.
    """
    records, scan = found.records, found.scan
    owner = np.repeat(np.arange(len(scan)), found.counts)
    is_control = (scan.attributes[owner] & bits.CONTROL_BIT) != 0
    offsets, types = records.column("offset").to_numpy(), records.column("timestamp_type").to_numpy()
    key, value = _shown_contents(records, options, is_control)
    has_key, has_value = (column.is_valid().to_numpy(zero_copy_only=False) for column in (key, value))
    numbers: _Numbers = [
        offsets,
        np.where(types < 0, _NO_TIME, types),
        records.column("timestamp").to_numpy(),
        _sizes(records.column("key")),
        _sizes(records.column("value")),
        _wrapped_sequences(scan.base_sequence.astype(np.int64)[owner], offsets - scan.base_offset[owner]),
        found.is_valid,
        found.crc,
        has_key,
        np.where(has_value, np.where(has_key, 2, 1), 0),
        is_control,
        scan.position[owner] + position,
    ]
    texts = [key, value, _header_keys(records.column("headers")), _control_texts(records, is_control)]
    return RecordColumns(numbers, Contents.of_columns(texts), scan.magic[owner] < MAGIC_V2)


def _wrapped_sequences(base: _Int64s, delta: _Int64s) -> _Int64s:
    """Return sequence numbers, which wrap from 2147483647 to 0; -1 without a producer."""
    return np.where(base < 0, -1, (base + delta) & 0x7FFFFFFF)


def _control_texts(records: pa.RecordBatch, is_control: _Bools) -> pa.Array:
    """Return the content of each control record; null for other records."""
    texts = pa.nulls(len(is_control), pa.string())
    if not is_control.any():
        return texts
    mask = pa.array(is_control)
    keys, values = (records.column(name).filter(mask).to_pylist() for name in ("key", "value"))
    shown = [control_text(key or b"", value or b"") for key, value in zip(keys, values, strict=True)]
    return pc.replace_with_mask(texts, mask, pa.array(shown, pa.string()))


def _shown_contents(records: pa.RecordBatch, options: DumpOptions, is_control: _Bools) -> tuple[pa.Array, pa.Array]:
    """Return keys and values as text; null where there is none, or none is shown."""
    if not options.prints_contents:
        return pa.nulls(len(is_control), pa.string()), pa.nulls(len(is_control), pa.string())
    key, value = records.column("key"), records.column("value")
    if is_control.any():
        is_data = pa.array(~is_control)
        key, value = pc.if_else(is_data, key, None), pc.if_else(is_data, value, None)
    return _decoded(key, options.decode_key), _decoded(value, options.decode_value)


def _decoded(column: pa.Array, decode: Callable[[bytes], str]) -> pa.Array:
    if decode is java_text:
        text = pa.Array.from_buffers(pa.string(), len(column), column.buffers(), column.null_count, column.offset)
        try:
            text.validate(full=True)
        except pa.ArrowInvalid:
            pass
        else:
            return text
    # A piece at a time: each value costs an object.
    pieces = (column.slice(start, _PIECE_ROWS) for start in range(0, max(len(column), 1), _PIECE_ROWS))
    return pa.concat_arrays([_decoded_piece(piece, decode) for piece in pieces])


def _decoded_piece(piece: pa.Array, decode: Callable[[bytes], str]) -> pa.Array:
    try:
        return pa.array([None if each is None else decode(each) for each in piece.to_pylist()], pa.string())
    except ValueError as error:
        raise CorruptBatchError(f"the decoder can't read a key or value: {error}", 0) from error


def _sizes(column: pa.Array) -> _Int64s:
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset)
    sizes = offsets[1:].astype(np.int64) - offsets[:-1]
    if column.null_count:
        sizes[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return sizes


def _header_keys(headers: pa.ListArray) -> pa.Array:
    """Return the header keys of each record with commas between them."""
    pairs = headers.values
    if not len(pairs):
        return pa.nulls(len(headers), pa.string())
    return pc.binary_join(pa.ListArray.from_arrays(headers.offsets, pairs.field("key")), ",")
