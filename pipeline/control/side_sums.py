"""Checks a file against the checksums that Spark writes beside it, `.NAME.crc`: Spark refuses a changed file.

Other readers ignore them. Without this check a plan would use a flipped bit, and Spark would fail in the middle of a
run.

| bytes | content                               |
|-------|---------------------------------------|
| 0..3  | `crc`, and a zero                     |
| 4..7  | number of bytes of each part          |
| 8..   | the CRC-32 of each part               |

All big endian. A file without checksums, or with another start of them, is not checked; nor does Spark check it.

Source: Hadoop ChecksumFileSystem; DataChecksum.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Final

from sparklog.storage_core.storage.open_regular import read_file, read_if_there

__all__ = ["changed_position", "first_changed_part"]

_HEADER: Final = struct.Struct(">4sI")
_MAGIC: Final = b"crc\0"
_SUM_BYTES: Final = 4


def changed_position(path: Path) -> int | None:
    """Return the position of the first changed part of a file; None if none is, or there are no checksums.

    Raises:
        OSError: the file can't be read, or does not exist.
    """
    data = read_file(path)
    sums = read_if_there(path.with_name(f".{path.name}.crc"))
    return None if sums is None else first_changed_part(data, sums)


def first_changed_part(data: bytes, sums: bytes) -> int | None:
    """Return the position of the first part with a wrong checksum.

    Args:
        sums: of the file beside it; any bytes.
    """
    if len(sums) < _HEADER.size or not sums.startswith(_MAGIC):
        return None
    _, part_bytes = _HEADER.unpack_from(sums)
    if part_bytes == 0:
        return 0
    for number, position in enumerate(range(0, len(data), part_bytes)):
        place = _HEADER.size + _SUM_BYTES * number
        if sums[place : place + _SUM_BYTES] != zlib.crc32(data[position : position + part_bytes]).to_bytes(
            _SUM_BYTES, "big"
        ):
            return position
    part_count = -(-len(data) // part_bytes)
    return None if len(sums) == _HEADER.size + _SUM_BYTES * part_count else len(data)
