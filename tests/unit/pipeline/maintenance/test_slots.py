"""Works spread over slots."""

from sparklog.pipeline.maintenance.slots import slots_of


def test_slots_of_when_sizes_differ_then_the_largest_has_a_slot_of_its_own() -> None:
    """Each log goes to the slot with the smallest sum."""
    assert slots_of([10, 4, 3, 2], 2) == [0, 1, 1, 1]


def test_slots_of_when_works_have_no_size_then_they_are_spread_all_the_same() -> None:
    """Empty logs cost a little, too."""
    assert sorted(slots_of([0, 0, 0, 0], 2)) == [0, 0, 1, 1]
