"""Each row of the table is met by a log, and does what it says."""

from typing import NamedTuple

import numpy as np
import pytest

from sparklog.storage_core.inspect.verify import offset_decisions
from sparklog.storage_core.inspect.verify.offset_decisions import DECISIONS, Decision
from sparklog.storage_core.inspect.verify.offset_walk import OffsetWalk
from sparklog.storage_core.inspect.verify.segment_pass import DamagedBytes

_LOST = None


class _Example(NamedTuple):
    """Batches as (base, count), 10 bytes apart, their fault and how many gaps there are; and what the indexes name."""

    batches: list[tuple[int, int] | None]
    what: str = ""
    position: int = 10
    gaps: int = 0
    named: dict[int, int] = {}  # noqa: RUF012
    timed: frozenset[int] = frozenset()


_EXAMPLES = (
    _Example([(0, 3), (3, 2), (3, 2), (5, 4)], "a copy of offsets 3..4, which are there already", 20),
    _Example(
        [(0, 9), (2, 2), (4, 2), (20, 1)],
        "base_offset=2 goes back, offset 8 is there already, and so on for 2 batches",
        gaps=1,
    ),
    _Example([(0, 5), (3, 2), (7, 1)], "base_offset=3 goes back, offset 5 or a later one is due"),
    _Example([(0, 3), (3 + 2**32, 2)], "base_offset=4294967299 is too far from the segment's"),
    _Example([(0, 3), _LOST, (1031, 2), (9, 1)], "base_offset=1031 is too high after damage", 20),
    _Example([(0, 3), (4, 2), (5, 1)], "base_offset=4 is too high, offset 3 or a later one is due"),
    _Example(
        [(0, 9), (44, 9), (99, 1)],
        "base_offset=44 contradicts the indexes, which prove 40",
        gaps=2,
        named={10: 48},
        timed=frozenset({48}),
    ),
    _Example(
        [(0, 9), _LOST, (44, 9), (99, 1)],
        "base_offset=44 is wrong, or the index entry that names offset 48",
        20,
        gaps=1,
        named={20: 48},
    ),
    _Example(
        [(0, 9), (44, 9), (99, 1)],
        "base_offset=44 is wrong, or the index entry that names offset 48",
        gaps=2,
        named={10: 48},
    ),
    _Example([(0, 3), _LOST, (9, 1)]),
    _Example([(0, 3), (9, 1)], gaps=1),
)
"""Of each row, in its order."""


@pytest.mark.parametrize(("row", "example"), list(zip(DECISIONS, _EXAMPLES, strict=True)))
def test_offset_walk_when_a_row_decides_then_its_fault_and_gaps(row: Decision, example: _Example) -> None:
    """Every row of the table has a log that it decides, and whose faults and gaps are the row's."""
    walk = OffsetWalk()
    walk.start_segment("x.log", 0, example.named.get, example.timed.__contains__)

    for position, batch in zip(range(0, 1000, 10), example.batches, strict=False):
        if batch is None:
            walk.lose(DamagedBytes(position, position + 10, "crc", "wrong CRC", None))
            continue
        base, count = (np.array([each], np.int64) for each in batch)
        walk.follow(np.array([position]), base, base + count - 1, count.astype(np.int32))
    walk.end_segment(None, 10 * len(example.batches))

    wanted = [(example.position, example.what)] if example.what else []
    assert [(each.position, each.what) for each in walk.faults] == wanted
    assert walk.inside_gap_count == example.gaps
    assert bool(row.what) == bool(example.what)
    assert ("surplus" in row.acts) == any(each.surplus_end is not None for each in walk.faults)


def test_decide_when_all_signs_are_tried_then_a_row_is_found_that_needs_no_other() -> None:
    """A row's signs are all among those seen, whatever is seen; and no row is out of reach behind another."""
    rows = [offset_decisions.decide(seen) for seen in range(2 * offset_decisions.LOSS)]

    assert all(row.signs & seen == row.signs for seen, row in enumerate(rows))
    assert set(rows) == set(DECISIONS)
