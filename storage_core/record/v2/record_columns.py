"""The columns of records to encode, and their buffers for kernels.

Source: Kafka ProducerRecord.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.storage_core.errors import InvalidRecordError
from sparklog.storage_core.record.schema import NO_TIMESTAMP

if TYPE_CHECKING:
    from sparklog.storage_core.record.v2.encode_kernels import Column, Columns

__all__ = ["RecordColumns", "kernel_columns"]

_TO_MS: Final = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
_NO_BYTES: Final = np.empty(0, np.uint8)
_NO_INT64S: Final = np.empty(0, np.int64)
_NO_COLUMN: Final = (_NO_INT64S, _NO_BYTES, _NO_BYTES)


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Columns of n records, from a frame.

    Attributes:
        key: binary or string, large or not; None = every key is null.
        value: the same.
        timestamp: (n,) ms since the epoch, -1 none.
        headers: list of struct<key: string or binary, value: binary>; None or null = no headers.
        offset: (n,) preserved offsets, or None for assigned ones.
    """

    key: pa.Array | None
    value: pa.Array
    timestamp: npt.NDArray[np.int64]
    headers: pa.Array | None = None
    offset: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.timestamp)

    @classmethod
    def from_arrow(cls, batch: pa.RecordBatch | Mapping[str, Any]) -> RecordColumns:
        """Return the columns `key`, `value`, `timestamp`, `headers` and `offset` of a batch; only `value` is required.

        Args:
            batch: Arrow arrays of one length by name, sliced or not. A timestamp is int64 ms, or Arrow's; null = -1.
        """
        found = dict(batch) if isinstance(batch, Mapping) else dict(zip(batch.schema.names, batch.columns, strict=True))
        value, key, headers, offset = (found.get(name) for name in ("value", "key", "headers", "offset"))
        if value is None:
            raise InvalidRecordError("column 'value' is missing")
        return cls(
            key=None if key is None or pa.types.is_null(key.type) else _flat(key),
            value=_flat(value).cast(pa.binary()) if pa.types.is_null(value.type) else _flat(value),
            timestamp=_timestamps(found.get("timestamp"), len(value)),
            headers=None if headers is None or pa.types.is_null(headers.type) else _flat(headers),
            offset=None if offset is None else _int64s("offset", _flat(offset)),
        )


def kernel_columns(columns: RecordColumns) -> Columns:
    """Return the buffers of every column, in the order of the encode kernels; binary data is not copied.

    Raises:
        InvalidRecordError: a column has a wrong type, or another length than the others.
    """
    count = len(columns)
    lengths = {len(each) for each in (columns.key, columns.value, columns.headers, columns.offset) if each is not None}
    if lengths - {count}:
        raise InvalidRecordError(f"columns differ in length: {sorted(lengths | {count})}")
    headers = (_NO_COLUMN,) * 3 if columns.headers is None else _header_columns(columns.headers)
    nulls = (np.zeros(count + 1, np.int64), _NO_BYTES, np.zeros(max(count, 1), np.uint8))
    return (
        nulls if columns.key is None else _binary_column("key", columns.key),
        _binary_column("value", columns.value),
        *headers,
        np.ascontiguousarray(columns.timestamp, np.int64),
        _NO_INT64S if columns.offset is None else np.ascontiguousarray(columns.offset, np.int64),
    )


def _flat(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _int64s(name: str, array: pa.Array) -> npt.NDArray[np.int64]:
    if array.null_count:
        row = int(np.argmin(_flags(array)))
        raise InvalidRecordError(f"column {name!r} is null row={row}")
    if array.type != pa.int64():
        array = array.cast(pa.int64())  # costs the import of pyarrow.compute
    return np.asarray(array.to_numpy(zero_copy_only=False), np.int64)


def _timestamps(array: pa.Array | pa.ChunkedArray | None, count: int) -> npt.NDArray[np.int64]:
    if array is None or pa.types.is_null(array.type):
        return np.full(count, NO_TIMESTAMP, np.int64)
    flat, factor, divisor = _flat(array), 1, 1
    flags = _flags(flat)
    if pa.types.is_timestamp(flat.type):
        factor, divisor = _TO_MS[flat.type.unit]
        flat = flat.view(pa.int64())
    times = _int64s("timestamp", flat.fill_null(0) if flags.size else flat)
    if (factor, divisor) != (1, 1):
        times = times * factor // divisor  # rounds down, before 1970 too
    return np.where(flags == 0, NO_TIMESTAMP, times) if flags.size else times


def _flags(array: pa.Array) -> npt.NDArray[np.uint8]:
    """Return (n,) 0 for null and 1 for the rest, or nothing without nulls."""
    validity = array.buffers()[0]
    if validity is None or not array.null_count:
        return _NO_BYTES
    start = array.offset // 8 * 8
    bits = np.frombuffer(validity, np.uint8)[start // 8 :]
    flags = np.unpackbits(bits, count=array.offset - start + len(array), bitorder="little")
    return np.ascontiguousarray(flags[array.offset - start :])


def _offsets(array: pa.Array, buffer: pa.Buffer | None, *, large: bool) -> npt.NDArray[np.int64]:
    if buffer is None or not len(array):
        return np.zeros(len(array) + 1, np.int64)
    width = np.int64 if large else np.int32
    offsets = np.frombuffer(buffer, width)[array.offset : array.offset + len(array) + 1]
    return offsets.astype(np.int64)


def _binary_column(name: str, array: pa.Array) -> Column:
    large = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    if not (large or pa.types.is_binary(array.type) or pa.types.is_string(array.type)):
        raise InvalidRecordError(f"column {name!r} is {array.type}, not binary or string")
    _, offsets, data = array.buffers()
    values = _NO_BYTES if data is None else np.frombuffer(data, np.uint8)
    return _offsets(array, offsets, large=large), values, _flags(array)


def _header_columns(headers: pa.Array) -> tuple[Column, Column, Column]:
    large = pa.types.is_large_list(headers.type)
    if not (large or pa.types.is_list(headers.type) or pa.types.is_map(headers.type)):
        raise InvalidRecordError(f"column 'headers' is {headers.type}, not a list of struct<key, value>")
    pairs = headers.values
    if not pa.types.is_struct(pairs.type) or pairs.type.get_field_index("key") < 0 or pairs.type.num_fields != 2:
        raise InvalidRecordError(f"column 'headers' is {headers.type}, not a list of struct<key, value>")
    place = pairs.type.get_field_index("key")
    names, contents = _utf8(pairs.field(place)), pairs.field(1 - place)
    name_column = _binary_column("headers.key", names)
    pair_flags = _flags(pairs)
    if pair_flags.size:
        name_flags = pair_flags & name_column[2] if name_column[2].size else pair_flags
        name_column = (name_column[0], name_column[1], name_flags)
    lists = (_offsets(headers, headers.buffers()[1], large=large), _NO_BYTES, _flags(headers))
    return lists, name_column, _binary_column("headers.value", contents)


def _utf8(names: pa.Array) -> pa.Array:
    """Return header keys as text; binary ones must be UTF-8."""
    if not (pa.types.is_binary(names.type) or pa.types.is_large_binary(names.type)):
        return names
    try:
        return names.cast(pa.large_string() if pa.types.is_large_binary(names.type) else pa.string())
    except pa.ArrowInvalid as error:
        raise InvalidRecordError("a header key is not UTF-8 column='headers'") from error
