import numpy as np
import pytest

from sparklog.storage_core.inspect.verify.epoch_check import EpochCheck


def _wrong(check: EpochCheck, epochs: list[int], start: int = 0) -> list[tuple[int, int]]:
    column = np.array(epochs, np.int32)
    return [(each.first, each.last) for each in check.wrong(np.arange(start, start + len(epochs)), column)]


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [([2, 2, 5, 5], []), ([2, 5, 5, 5], [(1, 1)]), ([1, 2, 5, 5], []), ([3, 2, 2, 2], [(0, 0), (2, 3)])],
)
def test_epoch_check_when_file_known_then_epoch_of_the_offset_is_due(
    epochs: list[int], expected: list[tuple[int, int]]
) -> None:
    """At and behind an entry's start offset its epoch is due; before the first one, any that is not later."""
    assert _wrong(EpochCheck([(2, 1), (5, 2)], is_required=True), epochs) == expected


@pytest.mark.parametrize(("is_required", "expected"), [(True, [(0, 1)]), (False, [])])
def test_epoch_check_when_batches_have_none_then_allowed_where_not_required(
    is_required: bool, expected: list[tuple[int, int]]
) -> None:
    """A log put together elsewhere may have no epochs; a store's has."""
    assert _wrong(EpochCheck([(0, 0)], is_required), [-1, -1]) == expected


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([[0, 0, 1, 1, 4]], [[]]),
        ([[0, 9, 0, 0]], [[(1, 1)]]),
        ([[5, 5, 2, 5, 5]], [[(2, 2)]]),
        ([[0, 9], [0, 0]], [[], [(-1, -1)]]),
        ([[5, 5], [2, 5]], [[], [(0, 0)]]),
        ([[0], [0, -7], [0]], [[], [(1, 1)], []]),
    ],
)
def test_epoch_check_when_no_file_then_the_one_out_of_line(
    calls: list[list[int]], expected: list[list[tuple[int, int]]]
) -> None:
    """Without a file epochs may not go back; the batch that disagrees with both neighbours is wrong."""
    check = EpochCheck(None, is_required=False)

    assert [_wrong(check, epochs) for epochs in calls] == expected


def test_epoch_check_when_wrong_batches_cross_an_epochs_start_then_each_run_has_its_own() -> None:
    """What is due is told with the run, so that it can be set again."""
    wrong = EpochCheck([(2, 1), (5, 2)], is_required=True).wrong(np.arange(4), np.array([9, 9, 9, 9], np.int32))

    assert [(each.first, each.last, each.due) for each in wrong] == [(0, 0, -1), (1, 1, 2), (2, 3, 5)]


@pytest.mark.parametrize(("epochs", "expected"), [([-1, -1, 2, 2], None), ([-1, 0, 2, 2], 1)])
def test_epoch_check_when_batches_below_the_first_entry_have_none_then_nothing_is_unnamed(
    epochs: list[int], expected: int | None
) -> None:
    """Batches of v0 and v1 have no epoch, so no entry is due for them."""
    check = EpochCheck([(2, 2)], is_required=True)

    assert _wrong(check, epochs) == []
    assert check.first_unnamed == expected
