"""Zig-zag varints, as Kafka's v2 records use them for every length, count and delta.

Seven bits a byte, least significant group first, bit 7 set when another byte follows. Zig-zag first maps small
negative numbers to small positive ones, so -1 (null) is one byte and 63 is the largest length that takes one.
`varint_sizes` has no caller in the product yet; one is being written.

Source: Kafka ByteUtils.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["VARINT_MAX_BYTES", "VARLONG_MAX_BYTES", "pack_varint", "unpack_varint", "varint_size", "varint_sizes"]

VARINT_MAX_BYTES: Final = 5
"""Longest varint of a 32-bit value."""

VARLONG_MAX_BYTES: Final = 10
"""Longest varint of a 64-bit value."""

_SIZE_LIMITS: Final = (np.uint64(1) << np.arange(7, 64, 7, dtype=np.uint64)).astype(np.uint64)
_WORD: Final = (1 << 64) - 1


def varint_sizes(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return how many bytes each value takes as a zig-zag varint.

    Args:
        values: (n,) any int64.

    Returns:
        (n,) bytes per value, each in 1..10.
    """
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    return np.searchsorted(_SIZE_LIMITS, zigzag, side="right").astype(np.int64) + 1


def varint_size(value: int) -> int:
    """Return how many bytes one int64 takes as a zig-zag varint."""
    return len(pack_varint(value))


def pack_varint(value: int) -> bytes:
    """Return one int64 as a zig-zag varint; a 32-bit value gives the same bytes under either width."""
    rest = ((value << 1) ^ (value >> 63)) & _WORD
    packed = bytearray()
    while rest > 0x7F:
        packed.append(rest & 0x7F | 0x80)
        rest >>= 7
    packed.append(rest)
    return bytes(packed)


def unpack_varint(data: Buffer, position: int, end: int, max_bytes: int = VARINT_MAX_BYTES) -> tuple[int, int]:
    """Return one value and the position after it.

    Bits that don't fit into the width (32 for 5 bytes, 64 for 10) are dropped, as Kafka's shifts drop them.

    Args:
        data: the bytes.
        position: where the varint starts.
        end: where the readable bytes end.
        max_bytes: `VARINT_MAX_BYTES` or `VARLONG_MAX_BYTES`.

    Raises:
        ValueError: it runs past `end` or past `max_bytes`.
    """
    view, raw = memoryview(data), 0
    for shift in range(0, 7 * max_bytes, 7):
        if position >= end:
            raise ValueError("varint runs past the end")
        byte = view[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= (1 << (32 if max_bytes == VARINT_MAX_BYTES else 64)) - 1
            return (raw >> 1) ^ -(raw & 1), position
    raise ValueError("varint is too long")
