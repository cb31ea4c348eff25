"""Superseded offsets that come in pieces, against a set of all of them."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.storage_core.cleaner.keys.superseded import SupersededOffsets

_NO_DIGESTS = np.empty((0, 2), np.uint64)


def _cut(numbers: list[int], sizes: list[int]) -> Iterator[npt.NDArray[np.int64]]:
    for size in sizes:
        yield np.array(numbers[:size], np.int64)
        numbers = numbers[size:]
    yield np.array(numbers, np.int64)


@given(
    st.sets(st.integers(0, 60)),
    st.sets(st.integers(0, 60)),
    st.lists(st.integers(0, 9), max_size=9),
    st.lists(st.integers(0, 9), max_size=9),
)
def test_has_later_when_compared_with_a_set_then_the_same(
    superseded: set[int], records: set[int], told: list[int], asked: list[int]
) -> None:
    """However the offsets are cut that are told and asked about, each record gets the answer of a set."""
    later = SupersededOffsets(_cut(sorted(superseded), told), 60, bytes(16))
    found = [later.has_later(_NO_DIGESTS, offsets).tolist() for offsets in _cut(sorted(records), asked)]

    assert [each for answers in found for each in answers] == [each in superseded for each in sorted(records)]


def test_has_later_when_pieces_lie_ahead_then_they_are_not_taken() -> None:
    """What is held does not grow with what is superseded in the group."""

    def pieces() -> Iterator[npt.NDArray[np.int64]]:
        yield np.array([1, 5], np.int64)
        pytest.fail("nobody has asked about offsets behind 5")

    later = SupersededOffsets(pieces(), 60, bytes(16))

    assert later.has_later(_NO_DIGESTS, np.array([0, 1, 2], np.int64)).tolist() == [False, True, False]
    assert later.has_later(_NO_DIGESTS, np.array([4, 5], np.int64)).tolist() == [False, True]
