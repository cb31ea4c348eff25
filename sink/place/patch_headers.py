"""Writes base offset and leader epoch into staged batches: the two fields that the CRC does not cover."""

import numpy as np
import numpy.typing as npt
from numba.types import int32, int64, uint8, void

from sparklog.storage_core.kernels import kernel
from sparklog.storage_core.record.v2.batch_header import place_of

__all__ = ["patch_headers"]

_EPOCH_AT = place_of("partition_leader_epoch")


@kernel(void(uint8[::1], int64[::1], int64[::1], int32[::1]))
def patch_headers(
    data: npt.NDArray[np.uint8],
    positions: npt.NDArray[np.int64],
    base_offsets: npt.NDArray[np.int64],
    epochs: npt.NDArray[np.int32],
) -> None:
    """Write base offset (bytes 0..7) and partition leader epoch (bytes 12..15) of each batch, big-endian."""
    for i in range(len(positions)):
        position = positions[i]
        for k in range(8):
            data[position + k] = np.uint8((base_offsets[i] >> (56 - 8 * k)) & 0xFF)
        for k in range(4):
            data[position + _EPOCH_AT + k] = np.uint8((epochs[i] >> (24 - 8 * k)) & 0xFF)
