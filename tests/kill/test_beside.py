"""What the reader beside a stream that is killed takes for a fault."""

import pytest

from tests.kill.beside import problem_of_order

_BATCHES = {8: 8, 9: 9, 10: 9, 11: 10}
"""Killed between its two logs, Spark has taken files 9 and 10 into one micro-batch."""


def test_problem_of_order_when_two_files_of_one_micro_batch_come_the_larger_one_first_then_none() -> None:
    """Tasks of a micro-batch have the order in which Spark plans them, which is that of sizes."""
    assert problem_of_order(["08/0", "10/0", "10/4", "09/0", "09/4", "11/0"], _BATCHES) is None


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (["08/0", "08/0"], "08/0 is there twice"),
        (["08/4", "08/0"], "out of order: behind 08/4"),
        (["08/0", "11/0", "08/4"], "file 8 of micro-batch 8 is behind file 11 of 10"),
        (["11/0", "10/0"], "file 10 of micro-batch 9 is behind file 11 of 10"),
        (["09/0", "10/0", "09/0"], "twice, or in pieces"),
    ],
)
def test_problem_of_order_when_a_row_is_twice_or_out_of_order_then_told(values: list[str], problem: str) -> None:
    """Everything else is a fault: a row again, and one in front of an earlier one."""
    assert problem in (problem_of_order(values, _BATCHES) or "")
