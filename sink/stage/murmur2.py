"""Kafka's murmur2, which chooses the partition of a keyed record.

Source: Kafka Utils.murmur2, BuiltInPartitioner.partitionForKey.
"""

import numpy as np
import numpy.typing as npt
from numba.types import int64, void

from sparklog.storage_core.kernels import READONLY_BYTES, kernel

__all__ = ["murmur2_partitions"]

_SEED = 0x9747B28C
_M = 0x5BD1E995


@kernel(void(READONLY_BYTES, int64[::1], int64[::1], int64[::1], int64[::1]))
def murmur2_partitions(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    partition_counts: npt.NDArray[np.int64],
    partitions: npt.NDArray[np.int64],
) -> None:
    """Fill in the partition of each key.

    Args:
        data: all key bytes.
        starts: (n,) where each key starts in `data`.
        sizes: (n,) its length; -1 leaves `partitions` as it is.
        partition_counts: (n,) partitions of the row's topic; 0 leaves `partitions` as it is.
        partitions: (n,) filled in.
    """
    m = np.uint32(_M)
    for row in range(len(starts)):
        size, start = sizes[row], starts[row]
        if size < 0 or partition_counts[row] <= 0:
            continue
        h = np.uint32(np.uint32(_SEED) ^ np.uint32(size))
        end = start + (size & ~np.int64(3))
        for i in range(start, end, 4):
            k = np.uint32(
                np.uint32(data[i])
                | np.uint32(data[i + 1]) << np.uint32(8)
                | np.uint32(data[i + 2]) << np.uint32(16)
                | np.uint32(data[i + 3]) << np.uint32(24)
            )
            k = np.uint32(k * m)
            k = np.uint32(k ^ (k >> np.uint32(24)))
            k = np.uint32(k * m)
            h = np.uint32(np.uint32(h * m) ^ k)
        rest = size & 3
        if rest:
            for i in range(rest):
                h = np.uint32(h ^ (np.uint32(data[end + i]) << np.uint32(8 * i)))
            h = np.uint32(h * m)
        h = np.uint32(h ^ (h >> np.uint32(13)))
        h = np.uint32(h * m)
        h = np.uint32(h ^ (h >> np.uint32(15)))
        partitions[row] = np.int64(h & np.uint32(0x7FFFFFFF)) % partition_counts[row]
