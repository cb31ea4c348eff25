"""The sums that Spark leaves beside each file on a disk, `.NAME.crc`, by which it refuses a file that has changed.

Other readers pass them by. So a bit that flipped where it can be read all the same would be believed by a plan, and be
met by Spark in the middle of a run.

| bytes | is                                    |
|-------|---------------------------------------|
| 0..3  | `crc`, and a zero                     |
| 4..7  | how many bytes each sum is of         |
| 8..   | the CRC-32 of each part, one a part   |

All big endian. A file without sums, or with some that begin otherwise, is not checked, as Spark does not.

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
    """Return where a file is no longer what was written, None if it is or nobody can tell.

    Raises:
        OSError: it can't be read, or is not there.
    """
    data = read_file(path)
    sums = read_if_there(path.with_name(f".{path.name}.crc"))
    return None if sums is None else first_changed_part(data, sums)


def first_changed_part(data: bytes, sums: bytes) -> int | None:
    """Return where the first part begins that does not have its sum.

    Args:
        data: of a file.
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
