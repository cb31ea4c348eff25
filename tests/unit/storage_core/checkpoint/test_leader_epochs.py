import pytest

from sparklog.storage_core.checkpoint.leader_epochs import (
    assign_leader_epoch,
    end_offset_for,
    parse_leader_epochs,
    render_leader_epochs,
)
from sparklog.storage_core.errors import CorruptFileError


def test_render_leader_epochs_when_one_entry_then_kafkas_text() -> None:
    """A log that one epoch wrote has one line, epoch before offset."""
    assert render_leader_epochs([(4, 0)]) == b"0\n1\n4 0\n"


def test_parse_leader_epochs_when_rendered_then_same() -> None:
    """What was rendered is read back in order."""
    assert parse_leader_epochs(render_leader_epochs([(0, 0), (4, 225), (6, 300)])) == [(0, 0), (4, 225), (6, 300)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"0\n2\n1 5\n1 6\n", "1 5 is followed by 1 6"),
        (b"0\n2\n1 5\n2 5\n", "1 5 is followed by 2 5"),
        (b"0\n1\n-1 5\n", "epoch is '-1'"),
        (b"0\n1\n1 5 6\n", "3 fields, not 2"),
    ],
)
def test_parse_leader_epochs_when_not_increasing_or_malformed_then_corrupt(data: bytes, message: str) -> None:
    """Epochs and start offsets increase and are not negative."""
    with pytest.raises(CorruptFileError, match=message):
        parse_leader_epochs(data)


@pytest.mark.parametrize(
    ("epoch", "start", "expected"),
    [
        (3, 40, [(1, 0), (2, 10), (3, 40)]),  # a new epoch is added
        (2, 40, [(1, 0), (2, 10)]),  # the latest again, later: nothing
        (2, 5, [(1, 0), (2, 5)]),  # the latest again, starting lower: moved
        (3, 10, [(1, 0), (3, 10)]),  # an epoch that wrote nothing is replaced
        (1, 20, [(1, 20)]),  # going back removes what is later
        (5, 0, [(5, 0)]),
    ],
)
def test_assign_leader_epoch_when_given_then_contradicted_entries_go(
    epoch: int, start: int, expected: list[tuple[int, int]]
) -> None:
    """An assignment removes the entries it contradicts from the end, then adds itself."""
    assert assign_leader_epoch([(1, 0), (2, 10)], epoch, start) == expected


@pytest.mark.parametrize(
    ("entries", "epoch", "end"),
    [
        ([], 0, None),
        ([(0, 0)], 0, 100),
        ([(0, 0)], 1, None),
        ([(0, 0), (3, 40)], 0, 40),
        ([(0, 0), (3, 40)], 1, 40),
        ([(0, 0), (3, 40)], 3, 100),
        ([(0, 0), (3, 40)], 4, None),
        ([(2, 10), (3, 40)], 1, 10),
    ],
)
def test_end_offset_for_when_an_epoch_is_asked_for_then_the_start_of_the_next_known_one(
    entries: list[tuple[int, int]], epoch: int, end: int | None
) -> None:
    """The latest epoch ends with the log; of an epoch above all that are known nothing is known."""
    assert end_offset_for(entries, epoch, 100) == end
