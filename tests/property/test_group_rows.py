"""Grouping and refusal of rows agree with plain loops."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sparklog.sink.stage.group_rows import group_rows
from sparklog.sink.stage.refused_rows import backward_rows

_ROWS = st.lists(st.tuples(st.integers(-1, 6), st.integers(0, 2**63 - 1) | st.integers(0, 30)), max_size=60)


@given(_ROWS)
def test_group_rows_matches_a_stable_sort(rows: list[tuple[int, int]]) -> None:
    """Rows of a log come together, in their order; rows of no log are left out."""
    log = np.array([each for each, _ in rows], np.int64)

    groups = group_rows(log, 7)

    expected = [[row for row, (each, _) in enumerate(rows) if each == number] for number in range(7)]
    assert groups.logs.tolist() == [number for number, group in enumerate(expected) if group]
    found = [groups.rows[a:b].tolist() for a, b in zip(groups.starts[:-1], groups.starts[1:], strict=True)]
    assert found == [group for group in expected if group]


@given(_ROWS, st.lists(st.integers(-1, 20), min_size=7, max_size=7))
def test_backward_rows_matches_a_loop_over_rows(rows: list[tuple[int, int]], last: list[int]) -> None:
    """A row is refused if its offset is not above everything its log has seen."""
    log, offsets = (np.array([row[column] for row in rows], np.int64) for column in (0, 1))

    bad = backward_rows(offsets, group_rows(log, 7), np.array(last, np.int64))

    newest, expected = list(last), []
    for row, (each, offset) in enumerate(rows):
        if each >= 0 and offset <= newest[each]:
            expected.append(row)
        elif each >= 0:
            newest[each] = offset
    assert bad.tolist() == expected
