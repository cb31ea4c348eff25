"""Bytes of a file through a mapping: read once, they need no copy.

A mapping ends the process (SIGBUS) where a read would fail. So the kernel is asked for the pages first, and says no
where a read would fail, too; the caller then reads, and gets the error of the disk. What is left are pages that the
kernel takes back in the moment until they are used, and can't read again; and a file that somebody cuts meanwhile. So
this is for whoever has a file for himself, and uses the bytes at once.
"""

import mmap
from typing import Final

__all__ = ["map_bytes"]

_POPULATE_READ: Final = 22
"""Linux 5.14: bring the pages in, readable, or fail."""


def map_bytes(descriptor: int, position: int, size_bytes: int) -> memoryview | None:
    """Return bytes of an open file, which must not be written to; None where they have to be read instead.

    The mapping goes with the last reference to the bytes.

    Args:
        descriptor: of the file, readable.
        position: in the file.
        size_bytes: at least 1, all of them within the file.
    """
    skipped = position % mmap.ALLOCATIONGRANULARITY
    length = skipped + size_bytes
    try:
        # private and writable: kernels take writable memory at once, and nothing of it ever reaches the file
        mapped = mmap.mmap(descriptor, length, access=mmap.ACCESS_COPY, offset=position - skipped)
        mapped.madvise(_POPULATE_READ, 0, length)
    except (OSError, ValueError):  # the file ends before, no such request, no mappings there, a disk that fails
        return None
    return memoryview(mapped)[skipped:]
