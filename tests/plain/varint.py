"""Zig-zag varints as plain code writes them: what the kernels' are checked against.

Source: Kafka ByteUtils.
"""

from typing import Final

__all__ = ["VARLONG_MAX_BYTES", "pack_varint", "varint_size"]

VARLONG_MAX_BYTES: Final = 10
"""Longest varint of a 64-bit value."""

_WORD: Final = (1 << 64) - 1


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
