import numpy as np
import pytest

from sparklog.storage_core.inspect.verify.offset_walk import OffsetWalk
from sparklog.storage_core.inspect.verify.segment_pass import DamagedBytes
from sparklog.storage_core.log_config import INT64_MAX


def _walk(batches: list[tuple[int, int]], *, start: int = 0, limit: int | None = None, split: int = 99) -> OffsetWalk:
    """Follow (base, count) batches, in two calls if `split` says so; positions are 10 apart."""
    walk = OffsetWalk()
    walk.start_segment("x.log", start)
    rows = np.array([(10 * n, base, base + count - 1, count) for n, (base, count) in enumerate(batches)], np.int64)
    for part in (rows[:split], rows[split:]):
        if len(part):
            walk.follow(part[:, 0], part[:, 1], part[:, 2], part[:, 3].astype(np.int32))
    walk.end_segment(limit, 10 * len(batches))
    return walk


def test_offset_walk_when_dense_then_nothing_found() -> None:
    """Batches that follow each other end where the last one does."""
    walk = _walk([(0, 3), (3, 2), (5, 1)], limit=6)

    assert (walk.next_offset, walk.faults, walk.inside_gaps, walk.border_gaps) == (6, [], [], [])


@pytest.mark.parametrize("split", [1, 2, 3, 99])
@pytest.mark.parametrize("wrong", [2, 4, 10**6])
def test_offset_walk_when_one_base_wrong_then_that_batch_only(wrong: int, split: int) -> None:
    """A base offset that is too low or too high is pinned to its batch, with the offsets it must hold."""
    walk = _walk([(0, 3), (wrong, 2), (5, 1), (6, 4)], limit=10, split=split)

    assert [(f.position, f.first_offset, f.last_offset) for f in walk.faults] == [(10, 3, 4)]
    assert (walk.next_offset, walk.inside_gap_count, walk.border_gaps) == (10, 0, [])


def test_offset_walk_when_last_base_too_high_then_limit_tells() -> None:
    """The last batch is wrong if it passes the next segment's start."""
    walk = _walk([(0, 3), (4, 2)], limit=5)

    assert [(f.position, f.first_offset, f.last_offset) for f in walk.faults] == [(10, 3, 4)]


def test_offset_walk_when_last_base_too_high_and_end_unknown_then_a_gap() -> None:
    """Without a limit a gap before the last batch is all there is to see."""
    walk = _walk([(0, 3), (4, 2)])

    assert [(f.position, f.first_offset, f.last_offset) for f in walk.inside_gaps] == [(10, 3, 3)]


@pytest.mark.parametrize("split", [1, 2, 99])
def test_offset_walk_when_base_is_beyond_what_an_index_can_name_then_fault(split: int) -> None:
    """A segment spans 31 bits of offsets: a base beyond them is wrong, even where nothing proves the right one."""
    walk = _walk([(0, 3), (3 + 2**32, 2)], split=split)

    assert [(f.position, f.due, f.last_offset) for f in walk.faults] == [(10, None, 4)]
    assert (walk.next_offset, walk.inside_gaps) == (5, [])


def test_offset_walk_when_gaps_are_legal_then_only_counted() -> None:
    """Gaps are no faults."""
    walk = _walk([(5, 1), (9, 1), (20, 1)], limit=30)

    assert (walk.faults, walk.inside_gap_count) == ([], 3)
    assert [(f.first_offset, f.last_offset) for f in walk.border_gaps] == [(21, 29)]


def test_offset_walk_when_segment_reaches_into_the_next_then_fault() -> None:
    """A segment that passes its limit without a gap inside is wrong as a whole."""
    assert [f.first_offset for f in _walk([(0, 3), (3, 3)], limit=5).faults] == [5]


def test_offset_walk_when_batches_are_sparse_then_counted() -> None:
    """A batch with fewer records than offsets was cleaned, or its offsets were preserved."""
    walk = OffsetWalk()
    walk.start_segment("x.log", 0)
    walk.follow(np.array([0]), np.array([0]), np.array([4]), np.array([3], np.int32))

    assert walk.sparse_batches == 1


@pytest.mark.parametrize(("limit", "last"), [(None, 7), (20, 19)])
def test_offset_walk_when_bytes_lost_at_the_end_then_up_to_the_limit(limit: int | None, last: int) -> None:
    """What was lost reaches to the limit, else as far as the damaged header says."""
    walk = OffsetWalk()
    walk.start_segment("x.log", 0)
    walk.follow(np.array([0]), np.array([0]), np.array([4]), np.array([5], np.int32))
    walk.lose(DamagedBytes(10, 20, "crc", "wrong CRC", (5, 7)))
    walk.end_segment(limit, 20)

    assert [(each.position, each.first_offset, each.last_offset) for each in walk.lost] == [(10, 5, last)]


def test_offset_walk_when_bytes_lost_in_the_middle_then_up_to_the_next_batch() -> None:
    """What was lost reaches to the next sound batch, and is no gap."""
    walk = OffsetWalk()
    walk.start_segment("x.log", 0)
    walk.lose(DamagedBytes(0, 5, "crc", "wrong CRC", (0, 900)))
    walk.lose(DamagedBytes(5, 10, "crc", "wrong CRC", None))
    walk.follow(np.array([10]), np.array([4]), np.array([6]), np.array([3], np.int32))
    walk.end_segment(7, 20)

    assert [(each.position, each.end, each.first_offset, each.last_offset) for each in walk.lost] == [(0, 10, 0, 3)]
    assert (walk.inside_gaps, walk.faults, walk.next_offset) == ([], [], 7)


def test_offset_walk_when_offsets_are_known_to_be_lost_then_neither_gap_nor_excuse() -> None:
    """Written-down losses are told apart, and another gap in the same log is still one."""
    walk = OffsetWalk(known=[(3, 4), (6, 7)])
    walk.start_segment("x.log", 0)
    rows = np.array([(0, 0, 2, 3), (10, 5, 5, 1), (20, 6, 7, 0), (30, 9, 9, 1)], np.int64)
    walk.follow(rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3].astype(np.int32))
    walk.end_segment(None, 40)

    assert [(each.first_offset, each.last_offset) for each in walk.known_gaps] == [(3, 4)]
    assert [(each.first_offset, each.last_offset) for each in walk.inside_gaps] == [(8, 8)]
    assert (walk.sparse_batches, walk.inside_gap_count) == (0, 1)


def _walk_named(batches: list[tuple[int, int]], named: dict[int, int], limit: int | None = None) -> OffsetWalk:
    """Follow (base, count) batches, 10 apart, of which some have index entries."""
    walk = OffsetWalk()
    walk.start_segment("x.log", 0, named.get)
    rows = np.array([(10 * n, base, base + count - 1, count) for n, (base, count) in enumerate(batches)], np.int64)
    walk.follow(rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3].astype(np.int32))
    walk.end_segment(limit, 10 * len(batches))
    return walk


@pytest.mark.parametrize("wrong", [8, 1064])
@pytest.mark.parametrize(("named", "due"), [({}, None), ({10: 49}, 40), ({10: 2000}, None)])
def test_offset_walk_when_log_has_gaps_then_only_an_index_entry_proves_a_base(
    wrong: int, named: dict[int, int], due: int | None
) -> None:
    """Behind a gap nobody knows where a batch belongs but an index entry that fits between its neighbours."""
    walk = _walk_named([(0, 10), (wrong, 10), (100, 10), (117, 10)], named)

    assert [(each.position, each.due) for each in walk.faults] == [(10, due)]
    assert walk.next_offset == 127


def test_offset_walk_when_an_index_entry_contradicts_the_dense_log_then_nothing_is_proved() -> None:
    """Two witnesses that disagree prove nothing."""
    assert [each.due for each in _walk_named([(0, 3), (9, 2), (5, 1)], {10: 10}).inside_gaps] == [None]
    assert [each.due for each in _walk_named([(0, 3), (9, 2), (5, 1)], {10: 99}).faults] == [None]


def test_offset_walk_when_last_base_is_denied_by_the_index_then_fault() -> None:
    """The log so far and an index entry agree against the last batch's header."""
    walk = _walk_named([(0, 3), (1027, 2)], {10: 4})

    assert [(each.position, each.due) for each in walk.faults] == [(10, 3)]
    assert (walk.next_offset, walk.inside_gaps) == (5, [])


@pytest.mark.parametrize("copies", [[(3, 2)], [(0, 3), (3, 2)], [(4, 1)]])
def test_offset_walk_when_batches_are_there_twice_then_only_the_copies_are_surplus(
    copies: list[tuple[int, int]],
) -> None:
    """A copy is told by the log that goes on without it; nothing behind it moves."""
    walk = _walk([(0, 3), (3, 2), *copies, (5, 4), (9, 1)], limit=10)

    assert [(each.position, each.surplus_end) for each in walk.faults] == [(20, 20 + 10 * len(copies))]
    assert (walk.next_offset, walk.inside_gap_count) == (10, 0)


def test_offset_walk_when_many_batches_go_back_then_one_fault_and_none_is_moved() -> None:
    """Where more than one batch would move, it is not these that are wrong."""
    walk = _walk([(0, 3), *((300 + 3 * n, 3) for n in range(2)), *((3 + 3 * n, 3) for n in range(90))], limit=273)

    assert [each.due for each in walk.faults] == [None] * len(walk.faults)
    assert len(walk.faults) <= 2


def test_offset_walk_when_a_base_behind_damage_is_too_high_then_no_other_batch_is_blamed() -> None:
    """How much was lost is not known, so neither is the offset that is due; unless the damaged header says it."""
    for claimed, due in ((None, None), ((3, 6), 7)):
        walk = OffsetWalk()
        walk.start_segment("x.log", 0)
        walk.follow(np.array([0]), np.array([0]), np.array([2]), np.array([3], np.int32))
        walk.lose(DamagedBytes(10, 20, "crc", "wrong CRC", claimed))
        rows = np.array([(20, 1031, 1032, 2), (30, 9, 9, 1), (40, 10, 12, 3)], np.int64)
        walk.follow(rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3].astype(np.int32))
        walk.end_segment(None, 50)

        assert [(each.position, each.due) for each in walk.faults] == [(20, due)]
        assert [(each.first_offset, each.last_offset) for each in walk.lost] == [(3, 6)]
        assert (walk.next_offset, walk.inside_gaps) == (13, [])


@pytest.mark.parametrize(
    ("timed", "faults"),
    [({49}, [(10, 40)]), ({53}, []), (set(), [(10, None)])],
)
def test_offset_walk_when_an_entry_contradicts_a_base_inside_a_gap_then_the_time_index_decides(
    timed: set[int], faults: list[tuple[int, int | None]]
) -> None:
    """A base offset that moved inside a gap is in nobody's way: two indexes against it prove it wrong, one does not."""
    walk = OffsetWalk()
    walk.start_segment("x.log", 0, {10: 49}.get, timed.__contains__)
    rows = np.array([(0, 0, 9, 10), (10, 44, 53, 10), (20, 100, 109, 10)], np.int64)
    walk.follow(rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3].astype(np.int32))
    walk.end_segment(110, 30)

    assert [(each.position, each.due) for each in walk.faults] == faults
    assert (walk.next_offset, walk.inside_gap_count) == (110, 2)


def test_walk_when_base_offsets_pass_the_largest_number_then_wrong() -> None:
    """Behind the largest offset no batch starts at the smallest number, which is one more in 64 bits."""
    walk = OffsetWalk()
    walk.start_segment("log", INT64_MAX - 1)

    walk.follow(
        np.array([0, 70]),
        np.array([INT64_MAX - 1, -INT64_MAX - 1]),
        np.array([INT64_MAX, -5]),
        np.array([2, 1], np.int32),
    )
    walk.end_segment(None, 140)

    assert [each.position for each in walk.faults] == [70]
