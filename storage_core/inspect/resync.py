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
from storage_core.record.legacy_header import LEGACY_DTYPES, MIN_ENTRY_BYTES

__all__ = ["LARGEST_BATCH_BYTES", "BatchSearch"]

LARGEST_BATCH_BYTES: Final = 256 << 20
"""A length above this is taken for damage without reading so much."""

_WINDOW_BYTES: Final = 256 << 10
_MAGIC_AT: Final = 16
_LEAST_BYTES: Final = MIN_ENTRY_BYTES[0]
_LEGACY_ATTRIBUTES: Final = 0x0F
_NONE: Final[npt.NDArray[np.intp]] = np.empty(0, np.intp)


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
        if announced_bytes >= _LEAST_BYTES and (candidate == self.end or self.is_sound(candidate)):
            return candidate
        position = damaged + 1
        while position + _LEAST_BYTES <= self.end:
            data = self.reader.read(position, min(_WINDOW_BYTES + HEADER_BYTES - 1, self.end - position))
            for start in self._plausible_starts(data, position).tolist():
                if self.is_sound(position + start):
                    return int(position + start)
            position += _WINDOW_BYTES
        return None

    def is_sound(self, position: int) -> bool:
        """Whether a batch with the right CRC starts at a position."""
        head = self.reader.read(position, min(HEADER_BYTES, max(self.end - position, 0)))
        if not len(head) or not (self._plausible_starts(head, position) == 0).any():
            return False
        size = int.from_bytes(head[8:12], "big") + LOG_OVERHEAD_BYTES
        batch = self.reader.read(position, size)
        scan, error = scan_up_to_damage(batch)
        return error is None and len(scan.position) == 1 and not len(check_crcs(batch, scan))

    def _plausible_starts(self, data: bytes, position: int) -> npt.NDArray[np.int64]:
        """Return where in `data` something starts that could be a header, in order."""
        view = np.frombuffer(data, np.uint8)
        found = [self._starts_of_v2(view, position)]
        found += [self._starts_of_legacy(view, position, magic) for magic in (0, 1)]
        return np.sort(np.concatenate(found))

    def _starts_of_v2(self, view: npt.NDArray[np.uint8], position: int) -> npt.NDArray[np.int64]:
        starts, headers = _candidates(view, MAGIC_V2, HEADER_DTYPE, HEADER_BYTES)
        fits = self._fits(position + starts, headers["base_offset"], headers["batch_length"], HEADER_BYTES)
        fits &= (headers["last_offset_delta"] >= 0) & (headers["records_count"] >= 0)
        return starts[fits]

    def _starts_of_legacy(self, view: npt.NDArray[np.uint8], position: int, magic: int) -> npt.NDArray[np.int64]:
        starts, headers = _candidates(view, magic, LEGACY_DTYPES[magic], MIN_ENTRY_BYTES[magic])
        fits = self._fits(position + starts, headers["offset"], headers["message_size"], MIN_ENTRY_BYTES[magic])
        fits &= headers["attributes"] & ~_LEGACY_ATTRIBUTES == 0
        return starts[fits]

    def _fits(
        self,
        position: npt.NDArray[np.int64],
        offset: npt.NDArray[np.int64],
        length: npt.NDArray[np.int32],
        least_bytes: int,
    ) -> npt.NDArray[np.bool_]:
        size = length.astype(np.int64) + LOG_OVERHEAD_BYTES
        fits = (size >= least_bytes) & (size <= LARGEST_BATCH_BYTES) & (position + size <= self.end)
        is_inside: npt.NDArray[np.bool_] = (offset >= self.lowest_offset) & (offset <= self.highest_offset)
        return fits & is_inside


def _candidates(
    view: npt.NDArray[np.uint8], magic: int, fields: np.dtype[np.void], least_bytes: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.void]]:
    """Return where a byte is the magic of a header that starts 16 bytes before it, and the fields there."""
    last_start = len(view) - least_bytes
    starts = np.flatnonzero(view[_MAGIC_AT : last_start + 1 + _MAGIC_AT] == magic) if last_start >= 0 else _NONE
    if magic < MAGIC_V2:  # zeros and ones are everywhere: most of them go by their attributes alone
        starts = starts[view[starts + _MAGIC_AT + 1] & ~np.uint8(_LEGACY_ATTRIBUTES) == 0]
    rows = view[starts[:, None] + np.arange(fields.itemsize)]
    return starts.astype(np.int64), np.ascontiguousarray(rows).view(fields).reshape(-1)
