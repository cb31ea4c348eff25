"""Follows a log's base offsets from batch to batch and says which one is wrong.

Base offsets lie outside the CRC. In a dense log each batch starts where the one before ends, so any change shows. Where
offsets may be missing, only a batch that reaches into its neighbour, its segment's border or the log's end shows; index
entries are the other witness. Of a wrapper of v0 or v1 it takes the base offset that its inner entries tell.

Which of two overlapping batches is wrong: the earlier one if there is a gap before it and without it the later one
fits, else the later one. Decides, touches nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from storage_core.inspect.findings import OffsetRange, Rule, is_within
from storage_core.inspect.verify_pass import DamagedBytes
from storage_core.log_config import INT32_MAX

__all__ = ["LostBytes", "OffsetFault", "OffsetWalk"]

_KEPT_GAPS = 100


@dataclass(frozen=True, slots=True)
class OffsetFault:
    """A batch with a wrong base offset, or offsets that are missing.

    Attributes:
        file: name of the `.log`.
        position: of the batch, or of the one behind the gap.
        first_offset, last_offset: what the batch must hold, or what is missing.
        due: the base offset that the batch must have, where it is the batch that is wrong; of a gap before the last
            batch of a log the one it may have, because nothing tells which of the two it is.
    """

    file: str
    position: int
    first_offset: int
    last_offset: int
    what: str
    due: int | None = None


@dataclass(slots=True)
class LostBytes:
    """Bytes that hold no sound batch; the offsets in them are known once the next batch is.

    Attributes:
        position, end: in the file.
        claimed_last_offset: what the damaged header says, or None.
    """

    file: str
    position: int
    end: int
    rule: Rule
    what: str
    first_offset: int
    claimed_last_offset: int | None
    last_offset: int | None = None


@dataclass(frozen=True, slots=True)
class _Suspect:
    """A batch with a gap before it: wrong, or the offsets before it are missing."""

    position: int
    before: int
    base: int
    last: int

    @property
    def next_if_wrong(self) -> int:
        return self.before + self.last - self.base + 1


class OffsetWalk:
    """The state of a walk over one log.

    Args:
        known: offsets that are written down as lost; that they are missing says nothing.

    Attributes:
        next_offset: the offset behind what was followed so far.
        faults: batches with a wrong base offset.
        inside_gaps: gaps inside segments, before a batch; only the first hundred are kept.
        border_gaps: gaps between the last batch of a segment and the next segment.
        inside_gap_count: of all of them.
        known_gaps: gaps among `known`.
        sparse_batches: how many batches lack records that they once had.
        lost: damaged bytes met.
    """

    def __init__(self, known: Sequence[OffsetRange] = ()) -> None:
        self._known = known
        self.next_offset = 0
        self.faults: list[OffsetFault] = []
        self.inside_gaps: list[OffsetFault] = []
        self.border_gaps: list[OffsetFault] = []
        self.inside_gap_count = 0
        self.known_gaps: list[OffsetFault] = []
        self.sparse_batches = 0
        self.lost: list[LostBytes] = []
        self._file = ""
        self._suspect: _Suspect | None = None
        self._open_loss: LostBytes | None = None
        self._last_position = 0
        self._base_offset = 0

    def start_segment(self, file: str, base_offset: int) -> None:
        """Go on with a segment whose name says where it starts."""
        self._file, self.next_offset, self._last_position = file, base_offset, 0
        self._base_offset = base_offset

    def follow(
        self,
        position: npt.NDArray[np.int64],
        base_offset: npt.NDArray[np.int64],
        last_offset: npt.NDArray[np.int64],
        records_count: npt.NDArray[np.int32],
    ) -> None:
        """Go on with sound batches, (b,) each."""
        if not len(position):
            return
        self._count_sparse(base_offset, last_offset, records_count)
        is_quiet = self._suspect is None and self._open_loss is None and base_offset[0] == self.next_offset
        if is_quiet and (base_offset[1:] == last_offset[:-1] + 1).all() and (base_offset <= last_offset).all():
            self.next_offset = int(last_offset[-1]) + 1
        else:
            for each in zip(position.tolist(), base_offset.tolist(), last_offset.tolist(), strict=True):
                self._step(*each)
        self._last_position = int(position[-1])

    def lose(self, damage: DamagedBytes) -> None:
        """Go on behind bytes that hold no sound batch."""
        if self._open_loss is not None:
            self._open_loss.end = damage.end
            return
        claimed = damage.claimed
        last = claimed[1] if claimed is not None and claimed[0] == self.next_offset else None
        place = (self._file, damage.position, damage.end)
        self._open_loss = LostBytes(*place, damage.rule, damage.what, self.next_offset, last)
        self.lost.append(self._open_loss)

    def end_segment(self, limit: int | None, end_position: int) -> None:
        """Finish a segment.

        Args:
            limit: the next segment's base offset or the log's known end, which no batch may pass; None = unknown.
            end_position: where the segment's bytes end.
        """
        if self._open_loss is not None:
            claim = self._open_loss.claimed_last_offset
            self._close_loss(claim if limit is None else limit - 1)
            if limit is not None:
                self.next_offset = limit
        suspect, self._suspect = self._suspect, None
        if suspect is not None and limit is not None and self.next_offset > limit:
            self._blame(suspect)
        elif suspect is not None:
            self._note_gap(suspect, due=suspect.before if limit is None else None)
        if limit is None:
            return
        if self.next_offset > limit:
            what = f"segment reaches offset {self.next_offset - 1}, but must end before {limit}"
            self._fault(self._last_position, limit, self.next_offset - 1, what)
        elif self.next_offset < limit:
            what = f"segment ends at offset {self.next_offset - 1}, the next one starts at {limit}"
            gap = OffsetFault(self._file, end_position, self.next_offset, limit - 1, what)
            is_known = is_within((gap.first_offset, gap.last_offset), self._known)
            (self.known_gaps if is_known else self.border_gaps).append(gap)

    def _count_sparse(
        self,
        base_offset: npt.NDArray[np.int64],
        last_offset: npt.NDArray[np.int64],
        records_count: npt.NDArray[np.int32],
    ) -> None:
        """Count batches that lack records, but for those that only stand for offsets known to be lost."""
        sparse = np.flatnonzero(records_count <= last_offset - base_offset).tolist()
        if self._known:
            known = self._known
            sparse = [each for each in sparse if not is_within((int(base_offset[each]), int(last_offset[each])), known)]
        self.sparse_batches += len(sparse)

    def _step(self, position: int, base: int, last: int) -> None:
        if last < base:
            self._fault(position, self.next_offset, self.next_offset, f"last offset {last} is below base offset {base}")
            return
        if base - self._base_offset > INT32_MAX:
            self._step_beyond(position, base, last)
            return
        if self._open_loss is not None and base >= self.next_offset:
            self._close_loss(base - 1)
            self.next_offset = base
        suspect, self._suspect = self._suspect, None
        if suspect is not None and base <= suspect.last and base >= suspect.next_if_wrong:
            self._blame(suspect)
        elif suspect is not None:
            self._note_gap(suspect)
        if base < self.next_offset:
            true_last = self.next_offset + last - base
            what = f"base_offset={base} goes back, offset {self.next_offset} is due"
            self._fault(position, self.next_offset, true_last, what, due=self.next_offset)
            self.next_offset = true_last + 1
            return
        if base > self.next_offset:
            self._suspect = _Suspect(position, self.next_offset, base, last)
        self.next_offset = last + 1

    def _step_beyond(self, position: int, base: int, last: int) -> None:
        """Take in a batch whose base offset no index entry of its segment could hold."""
        suspect, self._suspect = self._suspect, None
        if suspect is not None:
            self._note_gap(suspect)
        true_last = self.next_offset + last - base
        due = self.next_offset if self._open_loss is None else None  # how much was lost before it is not known
        what = f"base_offset={base} is too far from the segment's"
        self._fault(position, self.next_offset, true_last, what, due=due)
        self.next_offset = true_last + 1

    def _blame(self, suspect: _Suspect) -> None:
        what = f"base_offset={suspect.base} is too high, offset {suspect.before} is due"
        self._fault(suspect.position, suspect.before, suspect.next_if_wrong - 1, what, due=suspect.before)
        self.next_offset = suspect.next_if_wrong

    def _note_gap(self, suspect: _Suspect, due: int | None = None) -> None:
        what = f"offsets are missing before the batch, or its base_offset={suspect.base} is wrong"
        gap = OffsetFault(self._file, suspect.position, suspect.before, suspect.base - 1, what, due)
        if is_within((gap.first_offset, gap.last_offset), self._known):
            self.known_gaps.append(gap)
            return
        self.inside_gap_count += 1
        if len(self.inside_gaps) < _KEPT_GAPS:
            self.inside_gaps.append(gap)

    def _close_loss(self, last_offset: int | None) -> None:
        if self._open_loss is not None:
            self._open_loss.last_offset = last_offset
            self._open_loss = None

    def _fault(self, position: int, first_offset: int, last_offset: int, what: str, *, due: int | None = None) -> None:
        self.faults.append(OffsetFault(self._file, position, first_offset, last_offset, what, due))
