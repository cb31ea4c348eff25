"""Ways to damage bytes: those of hardware, of crashes, and of liars."""

import struct
import zlib
from collections.abc import Callable, Sequence
from random import Random

import crc32c

__all__ = ["mutate", "repair_crcs"]

_INTERESTING = (
    *(0, 1, -1, 2, 7, 13, 14, 49, 60, 61, 127, 128, 255, 256, 32767, -32768, 65535, 2**20),
    *(2**26, 2**31 - 1, -(2**31), 2**31 - 13, 2**32 - 1, 2**62, 2**63 - 1, -(2**63)),
)
_WIDTHS = {1: 0xFF, 2: 0xFFFF, 4: 0xFFFFFFFF, 8: 2**64 - 1}
_LOG_OVERHEAD_BYTES = 12

_Mutation = Callable[[Random, bytearray, Sequence[bytes]], int]


def mutate(random: Random, data: bytes, others: Sequence[bytes]) -> tuple[bytes, int]:
    """Return damaged bytes, and the position before which nothing has changed.

    Args:
        random: decides everything.
        data: what to damage; not changed.
        others: bytes of the same kind, to take pieces from.
    """
    changed, first = bytearray(data), len(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        first = min(first, random.choice(_MUTATIONS)(random, changed, others))
    return bytes(changed), first


def repair_crcs(data: bytes) -> bytes:
    """Return the same log with a sound CRC in every batch that can be told: what lies behind it is looked at."""
    repaired, position = bytearray(data), 0
    while len(repaired) - position > 26:
        end = position + _LOG_OVERHEAD_BYTES + struct.unpack_from(">i", repaired, position + 8)[0]
        if end <= position + 26 or end > len(repaired):
            break
        if repaired[position + 16] >= 2:
            struct.pack_into(">I", repaired, position + 17, crc32c.crc32c(repaired[position + 21 : end]))
        else:
            struct.pack_into(">I", repaired, position + 12, zlib.crc32(repaired[position + 16 : end]))
        position = end
    return bytes(repaired)


def _place(random: Random, data: bytearray) -> int:
    """Return a position, often one near the start or the end."""
    if not data:
        return 0
    return random.choice((random.randrange(len(data)), min(random.randrange(100), len(data) - 1)))


def _flip_bit(random: Random, data: bytearray, _others: Sequence[bytes]) -> int:
    at = _place(random, data)
    if data:
        data[at] ^= 1 << random.randrange(8)
    return at


def _set_byte(random: Random, data: bytearray, _others: Sequence[bytes]) -> int:
    at = _place(random, data)
    if data:
        data[at] = random.randrange(256)
    return at


def _set_number(random: Random, data: bytearray, _others: Sequence[bytes]) -> int:
    """Write a number that lies, big-endian."""
    width = random.choice(tuple(_WIDTHS))
    number = random.choice(_INTERESTING) + random.choice((0, 0, 1, -1))
    at = _place(random, data)
    data[at : at + width] = (number & _WIDTHS[width]).to_bytes(width, "big")
    return at


def _cut_off(random: Random, data: bytearray, _others: Sequence[bytes]) -> int:
    at = _place(random, data)
    del data[at:]
    return at


def _remove(random: Random, data: bytearray, _others: Sequence[bytes]) -> int:
    at = _place(random, data)
    del data[at : at + random.randrange(1, 40)]
    return at


def _insert(random: Random, data: bytearray, _others: Sequence[bytes]) -> int:
    at = _place(random, data)
    data[at:at] = random.randbytes(random.randrange(1, 40))
    return at


def _repeat(random: Random, data: bytearray, _others: Sequence[bytes]) -> int:
    at = _place(random, data)
    data[at:at] = data[at : at + random.randrange(1, 200)]
    return at


def _zero(random: Random, data: bytearray, _others: Sequence[bytes]) -> int:
    """Write zeros, as a power cut leaves them."""
    at = _place(random, data)
    size = min(random.choice((1, 4, 16, 512)), len(data) - at)
    data[at : at + size] = bytes(size)
    return at


def _splice(random: Random, data: bytearray, others: Sequence[bytes]) -> int:
    """Go on with another file."""
    at, other = _place(random, data), random.choice(others) if others else b""
    data[at:] = other[random.randrange(len(other) + 1) :]
    return at


_MUTATIONS: tuple[_Mutation, ...] = (
    _flip_bit,
    _flip_bit,
    _set_byte,
    _set_number,
    _set_number,
    _cut_off,
    _remove,
    _insert,
    _repeat,
    _zero,
    _splice,
)
