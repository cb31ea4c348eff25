"""Finds the next sound batch behind damage.

A damaged length leads into the middle of nowhere, so every position is tried: a header that could be one, then its CRC.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from storage_core.log.segment_reader import SegmentReader, scan_up_to_damage
from storage_core.record.batch_header import HEADER_BYTES, HEADER_DTYPE, LOG_OVERHEAD_BYTES, MAGIC_V2
from storage_core.record.batch_scan import check_crcs

__all__ = ["LARGEST_BATCH_BYTES", "BatchSearch"]

LARGEST_BATCH_BYTES: Final = 256 << 20
"""A length above this is taken for damage without reading so much."""

_WINDOW_BYTES: Final = 256 << 10
_MAGIC_AT: Final = 16


@dataclass(frozen=True, slots=True)
class BatchSearch:
    """Where to look for a batch, and what its header may say.

    Attributes:
        end: position where the segment's bytes end.
        lowest_offset, highest_offset: of base offsets.
    """

    reader: SegmentReader
    end: int
    lowest_offset: int
    highest_offset: int

    def next_batch(self, damaged: int, announced_bytes: int) -> int | None:
        """Return the position of the first sound batch behind the damaged one, or None.

        Args:
            damaged: position of the damaged batch.
            announced_bytes: its size as it says; tried first.
        """
        candidate = damaged + announced_bytes
        if announced_bytes >= HEADER_BYTES and (candidate == self.end or self.is_sound(candidate)):
            return candidate
        position = damaged + 1
        while position + HEADER_BYTES <= self.end:
            data = self.reader.read(position, min(_WINDOW_BYTES + HEADER_BYTES - 1, self.end - position))
            for start in self._plausible_starts(data, position).tolist():
                if self.is_sound(position + start):
                    return int(position + start)
            position += max(len(data) - HEADER_BYTES + 1, 1)
        return None

    def is_sound(self, position: int) -> bool:
        """Whether a batch with the right CRC starts at a position."""
        head = self.reader.read(position, min(HEADER_BYTES, max(self.end - position, 0)))
        if len(head) < HEADER_BYTES or not len(self._plausible_starts(head, position)):
            return False
        header = np.frombuffer(head, HEADER_DTYPE)[0]
        batch = self.reader.read(position, int(header["batch_length"]) + LOG_OVERHEAD_BYTES)
        scan, error = scan_up_to_damage(batch)
        return error is None and len(scan.position) == 1 and not len(check_crcs(batch, scan))

    def _plausible_starts(self, data: bytes, position: int) -> npt.NDArray[np.int64]:
        """Return where in `data` something starts that could be a header."""
        view = np.frombuffer(data, np.uint8)
        last_start = len(view) - HEADER_BYTES
        starts = np.flatnonzero(view[_MAGIC_AT : last_start + 1 + _MAGIC_AT] == MAGIC_V2)
        headers = view[starts[:, None] + np.arange(HEADER_BYTES)].view(HEADER_DTYPE).reshape(-1)
        size = headers["batch_length"].astype(np.int64) + LOG_OVERHEAD_BYTES
        base = headers["base_offset"].astype(np.int64)
        fits = (size >= HEADER_BYTES) & (size <= LARGEST_BATCH_BYTES) & (position + starts + size <= self.end)
        fits &= (base >= self.lowest_offset) & (base <= self.highest_offset)
        fits &= (headers["last_offset_delta"] >= 0) & (headers["records_count"] >= 0)
        found: npt.NDArray[np.int64] = starts[fits].astype(np.int64)
        return found
