"""The table by which `OffsetWalk` decides about a batch that does not start where one is due.

| sign       | seen                                                                                              |
|------------|---------------------------------------------------------------------------------------------------|
| BACK       | it starts below the offset due                                                                    |
| COPY       | what it and those after it hold is there already, and the log continues as if they were not       |
| SEVERAL    | more than one goes back                                                                           |
| FAR        | it starts further above the segment's base than an index entry can hold                           |
| IN_THE_WAY | it reaches into the next batch or past the end, would not at the offset due; no entry confirms it |
| DENIED     | the offset index proves another base offset; the next batch or the time index agrees              |
| DISPUTED   | the offset index proves another base offset; the time index does not confirm the batch's own      |
| LOSS       | damaged bytes lie right before it                                                                 |
"""

from typing import Final, Literal, NamedTuple, TypeAlias

__all__ = ["DECISIONS", "Decision", "decide"]

BACK, COPY, SEVERAL, FAR, IN_THE_WAY, DENIED, DISPUTED, LOSS = (1 << bit for bit in range(8))

Act: TypeAlias = Literal["surplus", "move", "fault", "gap"]
"""Report bytes too many; a base offset to be changed; one that may be wrong; offsets that are missing."""


class Decision(NamedTuple):
    """A row: signs that must all be seen, what is done then, and the text of the fault."""

    signs: int
    acts: tuple[Act, ...]
    what: str = ""


_SEVERAL: Final = "base_offset={base} goes back, offset {above} is there already, and so on for {count} batches"
_WRONG_ENTRY: Final = "base_offset={base} is wrong, or the index entry that names offset {named}"

DECISIONS: Final = (
    # nothing is missing without them
    Decision(BACK | COPY, ("surplus",), "a copy of offsets {base}..{last}, which are there already"),
    # to move several would be a guess: the one before them may be wrong
    Decision(BACK | SEVERAL, ("fault",), _SEVERAL),
    # those around it agree with each other
    Decision(BACK, ("move",), "base_offset={base} goes back, offset {before} or a later one is due"),
    # no writer makes such a segment
    Decision(FAR, ("move",), "base_offset={base} is too far from the segment's"),
    # how many offsets were lost is not known, so neither is the one due
    Decision(IN_THE_WAY | LOSS, ("move",), "base_offset={base} is too high after damage"),
    # lower it fits, so the next one need not be wrong
    Decision(IN_THE_WAY, ("move",), "base_offset={base} is too high, offset {before} or a later one is due"),
    # two witnesses against one
    Decision(DENIED, ("move",), "base_offset={base} contradicts the indexes, which prove {due}"),
    # one against one; the lost bytes account for the offsets before it
    Decision(DISPUTED | LOSS, ("fault",), _WRONG_ENTRY),
    # one against one
    Decision(DISPUTED, ("fault", "gap"), _WRONG_ENTRY),
    # the lost bytes held them
    Decision(LOSS, ()),
    # compaction and transactions leave gaps
    Decision(0, ("gap",)),
)

_BY_SIGNS: Final = tuple(next(row for row in DECISIONS if row.signs & seen == row.signs) for seen in range(2 * LOSS))
"""Looked up at once: in a compacted log each gap asks."""


def decide(signs: int) -> Decision:
    """Return the first row whose signs are all among those seen."""
    return _BY_SIGNS[signs]
