"""Finds the next sound batch after damage.

A damaged length leads into the middle of nowhere, so every position is tried: a header that could be one, then its CRC.
A record's value may hold batches too: one from which the log continues is preferred. Bytes made to look like headers
everywhere can't hold up a check: how much is read for CRCs is bounded by the segment's size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.inspect.verify.batch_shape import BatchShape, shape_of
from sparklog.storage_core.log.scan.segment_reader import SegmentReader
from sparklog.storage_core.record.batch_probe import LOG_OVERHEAD_BYTES, MAGIC_AT, MAGIC_V2
from sparklog.storage_core.record.legacy.header import LEGACY_ATTRIBUTES_AT, LEGACY_DTYPES, MIN_ENTRY_BYTES
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, HEADER_DTYPE, unpack_header

__all__ = ["LARGEST_BATCH_BYTES", "BatchSearch"]

LARGEST_BATCH_BYTES: Final = 256 << 20
"""A length above this is taken for damage without reading so much."""

_WINDOW_BYTES: Final = 256 << 10
_LEAST_BYTES: Final = MIN_ENTRY_BYTES[0]
_LEGACY_ATTRIBUTES: Final = 0x0F
_FREE_BYTES: Final = 16 << 20
_READ_PER_BYTE: Final = 4
"""What may be read for CRCs: so many bytes, and so many for each of the segment's. Then again as much for candidates
that lead to another one."""

_LOOK_AHEAD_BYTES: Final = 4 << 20
"""How far past a sound batch that leads nowhere a better one is looked for."""

_NONE: Final[npt.NDArray[np.intp]] = np.empty(0, np.intp)


@dataclass(slots=True)
class BatchSearch:
    """Where to look for a batch, and what its header may hold.

    Attributes:
        end: position where the segment's bytes end.
        checked_bytes: read for CRCs so far.
        lowest_offset, highest_offset: of base offsets.
    """

    reader: SegmentReader
    end: int
    lowest_offset: int
    highest_offset: int
    checked_bytes: int = field(default=0, init=False)

    def next_batch(self, damaged: int, announced_bytes: int) -> int | None:
        """Return the position of the first sound batch past the damaged one, or None.

        Args:
            damaged: position of the damaged batch.
            announced_bytes: its size by its header; tried first.
        """
        candidate = damaged + announced_bytes
        if announced_bytes >= _LEAST_BYTES and (candidate == self.end or self.is_sound(candidate)):
            return candidate
        due = self._next_offset_of(damaged)
        doubtful: tuple[int, BatchShape] | None = None
        for position in self._candidates_from(damaged + 1):
            if doubtful is not None and position > doubtful[0] + _LOOK_AHEAD_BYTES:
                break
            shape = self._shape_at(position)
            if shape is None or not self.is_sound(position):
                continue
            following = position + shape.size
            if shape.first_offset == due or following == self.end or self.is_sound(following):
                return doubtful[0] if doubtful is not None and _fits_between(doubtful[1], due, shape) else position
            doubtful = doubtful or (position, shape)
        return None if doubtful is None else doubtful[0]

    def is_sound(self, position: int) -> bool:
        """Whether a batch with the right CRC starts at a position; once too much was read, False."""
        shape = self._shape_at(position)
        if shape is None:
            return False
        allowed = _FREE_BYTES + _READ_PER_BYTE * self.end
        if self.checked_bytes + shape.size > allowed:
            following = position + shape.size
            is_chain = following == self.end or self._shape_at(following) is not None
            if not is_chain or self.checked_bytes + shape.size > 2 * allowed:
                return False
        self.checked_bytes += shape.size
        return self.reader.sound_batch_at(position) is not None

    def _candidates_from(self, position: int) -> Iterator[int]:
        """Yield positions where something starts that could be a header, in order."""
        while position + _LEAST_BYTES <= self.end:
            data = self.reader.read(position, min(_WINDOW_BYTES + HEADER_BYTES - 1, self.end - position))
            starts = self._plausible_starts(data, position)
            yield from (position + starts[starts < _WINDOW_BYTES]).tolist()
            position += _WINDOW_BYTES

    def _shape_at(self, position: int) -> BatchShape | None:
        """Return what starts at a position, if that could be a batch or an entry."""
        shape = shape_of(self.reader.read, position, self.end)
        if shape is None or shape.size > LARGEST_BATCH_BYTES:
            return None
        return shape if self.lowest_offset <= shape.first_offset <= self.highest_offset else None

    def _next_offset_of(self, damaged: int) -> int | None:
        """Return the offset after a damaged v2 batch, as far as its header is there."""
        head = self.reader.read(damaged, min(HEADER_BYTES, self.end - damaged))
        if len(head) < HEADER_BYTES or head[MAGIC_AT] != MAGIC_V2:
            return None
        return unpack_header(head).next_offset

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


def _fits_between(doubtful: BatchShape, due: int | None, following: BatchShape) -> bool:
    """Whether a batch that leads nowhere can lie between the damaged one and the next that leads on."""
    return (due is None or doubtful.first_offset >= due) and doubtful.last_offset < following.first_offset


def _candidates(
    view: npt.NDArray[np.uint8], magic: int, fields: np.dtype[np.void], least_bytes: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.void]]:
    """Return where a byte is the magic of a header that starts 16 bytes before it, and the fields there."""
    last_start = len(view) - least_bytes
    starts = np.flatnonzero(view[MAGIC_AT : last_start + 1 + MAGIC_AT] == magic) if last_start >= 0 else _NONE
    if magic < MAGIC_V2:  # zeros and ones are everywhere: most of them go by their attributes alone
        starts = starts[view[starts + LEGACY_ATTRIBUTES_AT] & ~np.uint8(_LEGACY_ATTRIBUTES) == 0]
    rows = view[starts[:, None] + np.arange(fields.itemsize)]
    return starts.astype(np.int64), np.ascontiguousarray(rows).view(fields).reshape(-1)
