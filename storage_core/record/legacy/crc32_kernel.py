"""zlib's CRC-32 for kernels: each entry of v0 and v1 has one, and a library call would cost more than the entry.

Source: zlib's CRC-32 (polynomial EDB88320, reflected), eight bytes a step.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.record.kernel_memory import inlined, load_byte

__all__ = ["crc32"]


def _crc_tables() -> npt.NDArray[np.int64]:
    """Return (2048,): for k of 0..7 and each byte, the CRC of that byte followed by k zero bytes."""
    table = np.arange(256, dtype=np.int64)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ 0xEDB88320, table >> 1)
    tables = [table]
    for _ in range(7):
        tables.append(table[tables[-1] & 255] ^ (tables[-1] >> 8))
    return np.concatenate(tables)


_TABLES: Final = _crc_tables()


@inlined
def crc32(address: int, size: int) -> int:
    """Return zlib's CRC-32 of `size` bytes."""
    crc = 0xFFFFFFFF
    end = address + size
    while end - address >= 8:
        crc ^= load_byte(address) | load_byte(address + 1) << 8
        crc ^= load_byte(address + 2) << 16 | load_byte(address + 3) << 24
        crc = (
            _TABLES[1792 + (crc & 255)]
            ^ _TABLES[1536 + ((crc >> 8) & 255)]
            ^ _TABLES[1280 + ((crc >> 16) & 255)]
            ^ _TABLES[1024 + ((crc >> 24) & 255)]
            ^ _TABLES[768 + load_byte(address + 4)]
            ^ _TABLES[512 + load_byte(address + 5)]
            ^ _TABLES[256 + load_byte(address + 6)]
            ^ _TABLES[load_byte(address + 7)]
        )
        address += 8
    while address < end:
        crc = _TABLES[(crc ^ load_byte(address)) & 255] ^ (crc >> 8)
        address += 1
    return crc ^ 0xFFFFFFFF
