import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sparklog.storage_core.checkpoint.leader_epochs import (
    assign_batch_epochs,
    assign_leader_epoch,
    parse_leader_epochs,
    render_leader_epochs,
    truncate_epochs_from_end,
    truncate_epochs_from_start,
)

_EPOCHS, _OFFSETS = st.integers(0, 8), st.integers(0, 60)
_ASSIGNMENTS = st.tuples(st.just("assign"), _EPOCHS, _OFFSETS)
_TRUNCATIONS = st.tuples(st.sampled_from(["from_end", "from_start"]), _EPOCHS, st.just(-1) | _OFFSETS)
_STEPS = st.lists(_ASSIGNMENTS | _ASSIGNMENTS | _TRUNCATIONS, max_size=20)


class _Model:
    """The epoch of each offset of a log, written out: what the entries stand for."""

    def __init__(self) -> None:
        self.starts: dict[int, int] = {}

    def step(self, what: str, epoch: int, offset: int) -> None:
        if what == "assign":
            latest = max(self.starts, default=-1)
            if epoch == latest and offset >= self.starts[latest]:
                return
            self.starts = {each: start for each, start in self.starts.items() if each < epoch and start < offset}
            self.starts[epoch] = offset
        elif what == "from_end":
            self.starts = {each: start for each, start in self.starts.items() if start < offset or offset < 0}
        else:
            covering = max((each for each, start in self.starts.items() if start <= offset), default=None)
            self.starts = {each: start for each, start in self.starts.items() if start > offset}
            if covering is not None:
                self.starts[covering] = offset

    def entries(self) -> list[tuple[int, int]]:
        return sorted(self.starts.items())


def _run(steps: list[tuple[str, int, int]]) -> list[tuple[int, int]]:
    entries, model = list[tuple[int, int]](), _Model()
    for what, epoch, offset in steps:
        if what == "assign":
            entries = assign_leader_epoch(entries, epoch, offset)
        elif what == "from_end":
            entries = truncate_epochs_from_end(entries, offset)
        else:
            entries = truncate_epochs_from_start(entries, offset)
        model.step(what, epoch, offset)
        assert entries == model.entries()
    return entries


@given(_STEPS)
def test_leader_epochs_after_any_steps_are_those_of_a_plain_model(steps: list[tuple[str, int, int]]) -> None:
    """Assigned, and truncated at both ends: always increasing, always a file that can be read."""
    entries = _run(steps)

    assert parse_leader_epochs(render_leader_epochs(entries)) == entries


@given(
    st.lists(st.tuples(st.integers(-2, 6), st.integers(0, 4)), max_size=20),
    st.lists(st.tuples(_EPOCHS, _OFFSETS), max_size=4),
    st.lists(st.integers(1, 5), max_size=5),
)
def test_assign_batch_epochs_in_parts_of_any_size_is_one_batch_after_another(
    batches: list[tuple[int, int]], known: list[tuple[int, int]], parts: list[int]
) -> None:
    """A batch counts if its epoch is later than the latest; as a recovery of Kafka assigns them."""
    entries = list[tuple[int, int]]()
    for epoch, offset in known:
        entries = assign_leader_epoch(entries, epoch, offset)
    epochs = np.array([epoch for epoch, _ in batches], np.int32)
    offsets = np.cumsum([1 + gap for _, gap in batches], dtype=np.int64)
    expected = entries
    for epoch, offset in zip(epochs.tolist(), offsets.tolist(), strict=True):
        if epoch >= 0 and epoch > max((each for each, _ in expected), default=-1):
            expected = assign_leader_epoch(expected, epoch, offset)

    start = 0
    for size in [*parts, len(batches)]:
        part = slice(start, start + size)
        entries, start = assign_batch_epochs(entries, epochs[part], offsets[part]), start + size

    assert entries == expected
