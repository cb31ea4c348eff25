"""Maps bytes of a file, without a copy, for callers that read them once.

A disk error on a mapped page kills the process (SIGBUS). So the kernel loads the pages first and reports errors then;
the caller reads instead, and gets the disk's error. A page may still be evicted before its use and fail then, or
another process may truncate the file. So this is only for a file without other writers whose bytes are used at once.
"""

import mmap
from typing import Final

__all__ = ["map_bytes"]

_POPULATE_READ: Final = 22
"""Linux 5.14: load the pages or fail."""


def map_bytes(descriptor: int, position: int, size_bytes: int) -> memoryview | None:
    """Return bytes of an open file, which must not be written to; None if the caller has to read them instead.

    The mapping ends with the last reference to the bytes.

    Args:
        descriptor: of the file, readable.
        size_bytes: at least 1, all of them within the file.
    """
    skipped = position % mmap.ALLOCATIONGRANULARITY
    length = skipped + size_bytes
    try:
        # Private and writable: kernels need writable memory, and no change ever reaches the file.
        mapped = mmap.mmap(descriptor, length, access=mmap.ACCESS_COPY, offset=position - skipped)
        mapped.madvise(_POPULATE_READ, 0, length)
    except (OSError, ValueError):  # a short file, an older kernel, no mappings on this filesystem, a disk error
        return None
    return memoryview(mapped)[skipped:]
