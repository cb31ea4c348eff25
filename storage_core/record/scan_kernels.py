"""The compiled half of scanning: where batches start, and their headers side by side.

Source: Kafka FileLogInputStream.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from storage_core.kernels import kernel
from storage_core.record.kernel_memory import BYTES, INT64S, address_of, copy_bytes

__all__ = ["MIN_BATCH_BYTES", "gather_headers", "walk_batches"]

MIN_BATCH_BYTES: Final = 26
"""Smallest complete entry of any format: the next one starts at least this far on."""

_HEADER_BYTES: Final = 61
_UP_TO_MAGIC_BYTES: Final = 17
_LOG_OVERHEAD_BYTES: Final = 12
_MIN_LENGTH: Final = 14
_MIN_V1_LENGTH: Final = 22
_MIN_V2_LENGTH: Final = 49

_Bytes = npt.NDArray[np.uint8]
_Int64s = npt.NDArray[np.int64]


@kernel(f"int64({BYTES}, int64, int64, int64[::1], int64[::1])")
def walk_batches(source: _Bytes, start: int, end: int, positions: _Int64s, stopped: _Int64s) -> int:
    """Fill `positions` with the start of each complete batch and return how many there are.

    Args:
        start: where the first batch starts.
        end: where the bytes to look at end; within `source`.
        positions: out, of at least `(end - start) // MIN_BATCH_BYTES` elements.
        stopped: out, (2,) the position after the last complete batch, and 1 if damage follows, not a short tail.
    """
    found = 0
    position = start
    damaged = 0
    while end - position >= _UP_TO_MAGIC_BYTES:
        length = 0
        for place in range(position + 8, position + 12):
            length = (length << 8) | source[place]
        if length > 0x7FFFFFFF or length < _MIN_LENGTH:
            damaged = 1
            break
        if end - position < _LOG_OVERHEAD_BYTES + length:
            break
        magic = source[position + 16]
        if (magic >= 2 and length < _MIN_V2_LENGTH) or (magic == 1 and length < _MIN_V1_LENGTH):
            damaged = 1
            break
        positions[found] = position
        found += 1
        position += _LOG_OVERHEAD_BYTES + length
    stopped[0] = position
    stopped[1] = damaged
    return found


@kernel(f"void({BYTES}, {INT64S}, uint8[:, ::1])")
def gather_headers(source: _Bytes, positions: _Int64s, headers: npt.NDArray[np.uint8]) -> None:
    """Copy 61 bytes from each position into a row of `headers`; beyond the end of `source` there are zeros."""
    start, target = address_of(source), address_of(headers)
    for place in range(positions.size):
        size = min(_HEADER_BYTES, source.size - positions[place])
        copy_bytes(target + place * _HEADER_BYTES, start + positions[place], size)
        headers[place, size:] = 0
