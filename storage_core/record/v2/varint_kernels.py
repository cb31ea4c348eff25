"""Zig-zag varints for kernels: functions of addresses, compiled into each calling kernel.

Reads never pass the given end. `few_batches` reads varints in plain code.

Source: Kafka ByteUtils.
"""

import numpy as np

from sparklog.storage_core.record.kernel_memory import inlined, load_byte, store_byte

__all__ = ["read_field", "read_varint", "read_varlong", "skip_varlong", "varint_size", "write_varint"]


@inlined
def varint_size(value: int) -> int:
    """Return the size of a value as a varint."""
    rest = np.uint64((value << 1) ^ (value >> 63))
    size = 1
    while rest > np.uint64(0x7F):
        rest >>= np.uint64(7)
        size += 1
    return size


@inlined
def write_varint(address: int, value: int) -> int:
    """Write one varint and return the address after it."""
    rest = np.uint64((value << 1) ^ (value >> 63))
    while rest > np.uint64(0x7F):
        store_byte(address, np.int64(rest & np.uint64(0x7F) | np.uint64(0x80)))  # type: ignore[arg-type]
        rest >>= np.uint64(7)
        address += 1
    store_byte(address, np.int64(rest))  # type: ignore[arg-type]
    return address + 1


@inlined
def read_varint(address: int, end: int) -> tuple[int, int]:
    """Return a 32-bit value and the address after it, or address -1 if it is damaged."""
    if address >= end:
        return 0, -1
    byte = load_byte(address)
    address += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), address
    raw = byte & 0x7F
    for shift in range(7, 35, 7):
        if address >= end:
            return 0, -1
        byte = load_byte(address)
        address += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 0xFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), address
    return 0, -1


@inlined
def read_varlong(address: int, end: int) -> tuple[int, int]:
    """Return a 64-bit value and the address after it, or address -1 if it is damaged."""
    raw = np.uint64(0)
    for shift in range(0, 70, 7):
        if address >= end:
            return 0, -1
        byte = load_byte(address)
        address += 1
        raw |= np.uint64(byte & 0x7F) << np.uint64(shift)
        if byte < 0x80:
            value: int = np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1))  # type: ignore[assignment]
            return value, address
    return 0, -1


@inlined
def skip_varlong(address: int, end: int) -> int:
    """Return the address after a 64-bit value, or -1 if it is damaged."""
    for _ in range(0, 70, 7):
        if address >= end:
            return -1
        address += 1
        if load_byte(address - 1) < 0x80:
            return address
    return -1


@inlined
def read_field(address: int, end: int) -> tuple[int, int]:
    """Return a field's size, -1 for null, and its bytes' address, or address -1 if its length is damaged."""
    size, address = read_varint(address, end)
    if address < 0 or size > end - address:
        return 0, -1
    return max(size, -1), address
