"""Follows a log's base offsets from batch to batch and reports the wrong ones.

Base offsets lie outside the CRC. In a dense log each batch starts where the one before ends, so any change shows. Where
offsets may be missing, only a batch that reaches into its neighbour, its segment's border or the log's end shows; index
entries are the other witness. Of a wrapper of v0 or v1 it takes the base offset of its inner entries.

Which batch is wrong, and what that means, is in the table of `offset_decisions`. A wrong base offset has a right one
only where that is proved: see `_proved`. Touches nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.inspect.verify import offset_decisions as signs
from sparklog.storage_core.inspect.verify.findings import OffsetRange, Rule, is_within
from sparklog.storage_core.inspect.verify.segment_pass import DamagedBytes
from sparklog.storage_core.log_config import INT32_MAX

__all__ = ["LostBytes", "OffsetFault", "OffsetWalk"]

_KEPT_GAPS = 100
_MOST_SURPLUS = 100
"""So many batches may go back in a row; then the log is taken to continue from there."""


@dataclass(frozen=True, slots=True)
class OffsetFault:
    """A batch with a wrong base offset, batches too many, or offsets that are missing.

    Attributes:
        file: name of the `.log`.
        position: of the batch, or of the one after the gap.
        first_offset, last_offset: what the batch must hold, or what is missing.
        due: the base offset that the batch must have, where that is proved; of a gap before the last batch of a log
            the one it may have, because there is no evidence which of the two it is.
        surplus_end: where bytes that hold a copy of what is there end; None where they hold none.
    """

    file: str
    position: int
    first_offset: int
    last_offset: int
    what: str
    due: int | None = None
    surplus_end: int | None = None


@dataclass(slots=True)
class LostBytes:
    """Bytes that hold no sound batch; the offsets in them are known once the next batch is.

    Attributes:
        position, end: in the file.
        claimed_last_offset: by the damaged header, or None.
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
    """A batch that does not start where the one before ends: its base offset is wrong, or others are missing.

    Attributes:
        before: the lowest base offset that it may have.
        loss: the damaged bytes right before it: how many offsets they held is not known.
    """

    position: int
    before: int
    base: int
    last: int
    loss: LostBytes | None = None

    @property
    def count(self) -> int:
        return self.last - self.base + 1

    @property
    def next_if_wrong(self) -> int:
        return self.before + self.count


class OffsetWalk:
    """The state of a walk over one log.

    Args:
        known: offsets that are recorded as lost; they may be missing.
        has_gaps: whether offsets may be missing; None = judge by what was followed so far.

    Attributes:
        next_offset: the offset after what was followed so far.
        faults: batches with a wrong base offset.
        inside_gaps: gaps inside segments, before a batch; only the first hundred are kept.
        border_gaps: gaps between the last batch of a segment and the next segment.
        inside_gap_count: of all of them.
        known_gaps: gaps among `known`.
        sparse_batches: how many batches lack records that they once had.
        lost: damaged bytes met.
    """

    def __init__(self, known: Sequence[OffsetRange] = (), has_gaps: bool | None = None) -> None:
        self._known, self._has_gaps = known, has_gaps
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
        self._backward: list[_Suspect] = []
        self._open_loss: LostBytes | None = None
        self._last_position = 0
        self._base_offset = 0
        self._named: Callable[[int], int | None]
        self._is_timed: Callable[[int], bool]

    def start_segment(
        self,
        file: str,
        base_offset: int,
        named: Callable[[int], int | None] = lambda _position: None,
        is_timed: Callable[[int], bool] = lambda _offset: False,
    ) -> None:
        """Continue with a segment of the base offset in its name.

        Args:
            file: its name.
            base_offset: of it.
            named: returns the offset that an index entry for a position names, or None.
            is_timed: whether an entry of the time index names an offset.
        """
        self._named, self._is_timed = named, is_timed
        self._file, self.next_offset, self._last_position = file, base_offset, 0
        self._base_offset = base_offset

    def follow(
        self,
        position: npt.NDArray[np.int64],
        base_offset: npt.NDArray[np.int64],
        last_offset: npt.NDArray[np.int64],
        records_count: npt.NDArray[np.int32],
    ) -> None:
        """Continue with sound batches, (b,) each."""
        if not len(position):
            return
        self._count_sparse(base_offset, last_offset, records_count)
        is_settled = self._suspect is None and self._open_loss is None and not self._backward
        is_quiet = is_settled and base_offset[0] == self.next_offset and (base_offset <= last_offset).all()
        # Both comparisons: one above the largest number is the smallest one.
        is_quiet &= bool((base_offset[1:] > last_offset[:-1]).all())
        if is_quiet and (base_offset[1:] == last_offset[:-1] + 1).all():
            self.next_offset = int(last_offset[-1]) + 1
        else:
            for each in zip(position.tolist(), base_offset.tolist(), last_offset.tolist(), strict=True):
                self._step(*each)
        self._last_position = int(position[-1])

    def lose(self, damage: DamagedBytes) -> None:
        """Continue after bytes that hold no sound batch."""
        if self._open_loss is None or self._backward:
            claims_to_follow = damage.claimed is not None and damage.claimed[0] == self.next_offset
            self._judge(self.next_offset if claims_to_follow and not self._backward else None, damage.position)
        if self._open_loss is not None:
            self._open_loss.end = damage.end
            if damage.rule == "marker":
                self._open_loss.rule, self._open_loss.what = damage.rule, damage.what
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
        self._judge(limit, end_position)
        if self._open_loss is not None:
            claim = self._open_loss.claimed_last_offset
            self._close_loss(claim if limit is None else limit - 1)
            if limit is not None:
                self.next_offset = limit
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

    @property
    def _is_dense(self) -> bool:
        if self._has_gaps is not None:
            return not self._has_gaps
        return not (self.inside_gap_count or self.border_gaps or self.sparse_batches)

    def _step(self, position: int, base: int, last: int) -> None:
        if last < base:
            self._fault(position, self.next_offset, self.next_offset, f"last offset {last} is below base offset {base}")
            return
        if base - self._base_offset > INT32_MAX:
            self._judge(None, position)
            self._suspect_that(position, base, last)
            return
        if not self._backward or base >= self.next_offset:
            self._judge(base, position)
        if base < self.next_offset:
            self._backward.append(_Suspect(position, self.next_offset, base, last, self._open_loss))
            if len(self._backward) > _MOST_SURPLUS:
                self._decide_backward(signs.SEVERAL, None, position)
                self.next_offset = last + 1
        elif base > self.next_offset:
            self._suspect_that(position, base, last)
        else:
            self._close_loss(base - 1)
            self.next_offset = last + 1

    def _suspect_that(self, position: int, base: int, last: int) -> None:
        """Accept a batch after a gap for now; the next batch decides whether its base offset is wrong."""
        self._suspect = _Suspect(position, self.next_offset, base, last, self._open_loss)
        self._close_loss(base - 1)
        self.next_offset = last + 1

    def _judge(self, following: int | None, position: int) -> None:
        """Decide about what was left open.

        Args:
            following: the offset that the next batch starts with, or that no batch may reach; None = unknown.
            position: where the next batch starts.
        """
        suspect, self._suspect = self._suspect, None
        if suspect is not None:
            self._decide([suspect], None, following, position)
        if self._backward:
            first = self._backward[0]
            is_copy = following == first.before and first.loss is None
            is_copy = is_copy and all(each.last < first.before for each in self._backward)
            self._decide_backward(signs.COPY * is_copy | signs.SEVERAL * (len(self._backward) > 1), following, position)

    def _decide_backward(self, seen: int, following: int | None, position: int) -> None:
        batches, self._backward = self._backward, []
        self._decide(batches, signs.BACK | seen, following, position)

    def _decide(self, batches: list[_Suspect], seen: int | None, following: int | None, position: int) -> None:
        """Do what the table has for the first of some batches; of one that starts too high, `seen` is still open."""
        first = batches[0]
        named = self._named(first.position)
        due = self._proved(first, following, named)
        decision = signs.decide(self._seen(first, following, named, due) if seen is None else seen)
        if decision.what:
            values = {"base": first.base, "last": batches[-1].last, "before": first.before, "above": first.before - 1}
            what = decision.what.format(**values, count=len(batches), due=due, named=named)
        for act in decision.acts:
            if act == "gap":
                self._note_gap(first, due=first.before if following is None else None)
            elif act == "move":
                self._settle(first, what, due, following)
            elif act == "fault":
                self._fault(first.position, first.base, batches[-1].last, what)
            else:
                self._fault(first.position, first.base, first.last, what, surplus_end=position)

    def _seen(self, suspect: _Suspect, following: int | None, named: int | None, due: int | None) -> int:
        """Return the signs of a batch that starts above the offset due."""
        seen = 0 if suspect.loss is None else signs.LOSS
        if suspect.base - self._base_offset > INT32_MAX:
            seen |= signs.FAR
        if following is not None and suspect.next_if_wrong <= following <= suspect.last and named != suspect.last:
            seen |= signs.IN_THE_WAY
        if due is not None and named is not None:
            seen |= signs.DENIED if following in (None, named + 1) or self._is_timed(named) else 0
            seen |= 0 if self._is_timed(suspect.last) else signs.DISPUTED
        return seen

    def _settle(self, wrong: _Suspect, what: str, due: int | None, following: int | None) -> None:
        """Record a wrong base offset and continue after its batch."""
        first = wrong.before if due is None else due
        self._fault(wrong.position, first, first + wrong.count - 1, what, due=due)
        self.next_offset = first + wrong.count
        if wrong.loss is not None:
            latest = None if following is None else following - wrong.count - 1
            wrong.loss.last_offset = latest if due is None else due - 1
            if self._open_loss is wrong.loss:
                self._open_loss = None
        if due is None and following is not None and following >= wrong.before:
            self.next_offset = following  # that it does not fit is reported already
        elif due is not None and due > wrong.before and wrong.loss is None:
            self._note_gap(_Suspect(wrong.position, wrong.before, due, due + wrong.count - 1))

    def _proved(self, wrong: _Suspect, following: int | None, named: int | None) -> int | None:
        """Return the base offset that a batch must have if its own is wrong, or None where nothing proves it."""
        if named is not None:  # an index entry that fits between the neighbours; one that does not is a contradiction
            due = named - wrong.count + 1
            fits = due == wrong.before if following is None else wrong.before <= due and named < following
            return due if fits and due != wrong.base else None
        if following is None:
            return None
        last_due = following - wrong.count
        if self._has_gaps is False and last_due >= wrong.before:  # no gaps: it ends where the next starts
            return last_due
        before: int | None = wrong.before
        if wrong.loss is not None:
            before = None if wrong.loss.claimed_last_offset is None else wrong.loss.claimed_last_offset + 1
        return before if self._is_dense and before == last_due else None  # exactly between its neighbours

    def _note_gap(self, suspect: _Suspect, due: int | None = None) -> None:
        is_known = is_within((suspect.before, suspect.base - 1), self._known)
        self.inside_gap_count += not is_known
        gaps = self.known_gaps if is_known else self.inside_gaps
        if is_known or len(gaps) < _KEPT_GAPS:
            what = f"offsets are missing before the batch, or its base_offset={suspect.base} is wrong"
            gaps.append(OffsetFault(self._file, suspect.position, suspect.before, suspect.base - 1, what, due))

    def _close_loss(self, last_offset: int | None) -> None:
        if self._open_loss is not None:
            self._open_loss.last_offset = last_offset
            self._open_loss = None

    def _fault(self, position: int, first_offset: int, last_offset: int, what: str, **more: int | None) -> None:
        self.faults.append(OffsetFault(self._file, position, first_offset, last_offset, what, **more))
