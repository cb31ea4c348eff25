"""The compiled plan of a micro-batch agrees with a plain model of Kafka's LogSegment, one append at a time."""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.storage_core.log.append.roll import APPEND_STATE, ROLL_LIMITS, BatchColumns, plan_appends


@dataclass
class _Segment:
    """Kafka's LogSegment and its two indexes, as the format reference tells them."""

    base: int
    size: int = 0
    first_timestamp: int = -1
    max_timestamp: int = -1
    max_offset: int = 0
    since: int = 0
    offsets: list[tuple[int, int]] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)

    def should_roll(self, size: int, last: int, timestamp: int, limits: dict[str, int]) -> bool:
        waited = timestamp - self.first_timestamp if self.first_timestamp >= 0 else 0
        full = len(self.offsets) >= limits["max_offset_entries"] or len(self.times) >= limits["max_time_entries"] - 1
        return self.size > 0 and (
            self.size + size > limits["segment_bytes"]
            or waited > limits["segment_ms"]
            or full
            or last - self.base > 2**31 - 1
        )

    def add_time_entry(self) -> None:
        if self.max_timestamp > (self.times[-1][0] if self.times else -1):
            self.times.append((self.max_timestamp, self.max_offset - self.base))

    def append(self, size: int, last: int, timestamp: int, limits: dict[str, int]) -> int:
        position = self.size
        if position == 0:
            self.first_timestamp = timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp, self.max_offset = timestamp, last
        if self.since > limits["index_interval_bytes"]:
            self.offsets.append((last - self.base, position))
            self.add_time_entry()
            self.since = 0
        self.since += size
        self.size += size
        return position


_LIMITS = st.fixed_dictionaries(
    {
        "segment_bytes": st.integers(300, 2000),
        "segment_ms": st.integers(1, 500),
        "index_interval_bytes": st.integers(0, 400),
        "max_offset_entries": st.integers(1, 6),
        "max_time_entries": st.integers(2, 6),
    }
)
_BATCH = st.tuples(st.integers(61, 300), st.integers(0, 50), st.integers(-1, 1000))


@settings(max_examples=300, deadline=None)
@given(limits=_LIMITS, batches=st.lists(_BATCH, min_size=1, max_size=60), cut=st.integers(0, 60))
def test_plan_appends_matches_a_plain_log_segment(
    limits: dict[str, int], batches: list[tuple[int, int, int]], cut: int
) -> None:
    """Offsets, segments, positions and index entries are those of single appends, over two micro-batches."""
    segments = [_Segment(0)]
    expected, next_offset = [], 0
    for size, delta, timestamp in batches:
        last = next_offset + delta
        if segments[-1].should_roll(size, last, timestamp, limits):
            segments[-1].add_time_entry()
            segments.append(_Segment(next_offset))
        position = segments[-1].append(size, last, timestamp, limits)
        expected.append((next_offset, segments[-1].base, position))
        next_offset = last + 1

    state = np.zeros(1, APPEND_STATE)
    for name in ("first_timestamp", "max_timestamp", "last_entry_timestamp"):
        state[name] = -1
    row = np.zeros(1, ROLL_LIMITS)
    for name, value in limits.items():
        row[name] = value
    placed, offsets, times = [], [], []
    for part in (batches[:cut], batches[cut:]):
        sizes, deltas, timestamps = np.array(part, np.int64).reshape(-1, 3).T.copy()
        columns = BatchColumns(np.zeros(len(part), np.int64), sizes, deltas, timestamps, np.full(len(part), -1))
        plan = plan_appends(state, row, columns, 0, 1)
        state = plan.state
        placed += list(zip(plan.base_offset.tolist(), plan.segment_base.tolist(), plan.position.tolist(), strict=True))
        offsets += [tuple(entry[1:]) for entry in plan.offset_entries.tolist()]
        times += [tuple(entry[1:]) for entry in plan.time_entries.tolist()]

    assert placed == expected
    assert offsets == [(each.base, *entry) for each in segments for entry in each.offsets]
    assert times == [(each.base, *entry) for each in segments for entry in each.times]
    assert int(state["next_offset"][0]) == next_offset


def test_plan_appends_when_relative_offset_would_overflow_then_rolls() -> None:
    """A batch whose last offset is 2^31 above the base starts a new segment at its own first offset."""
    state = np.zeros(1, APPEND_STATE)
    row = np.zeros(1, ROLL_LIMITS)
    row["segment_bytes"] = row["segment_ms"] = row["max_offset_entries"] = row["max_time_entries"] = 2**40
    zeros = np.zeros(2, np.int64)
    columns = BatchColumns(zeros, zeros + 100, zeros, zeros, np.array([0, 2**31], np.int64))

    plan = plan_appends(state, row, columns, 0, 1)

    assert plan.segment_base.tolist() == [0, 2**31]


def test_plan_appends_with_jitter_draws_it_below_the_limit() -> None:
    """Each segment's jitter lies in 0 .. limit - 1, and segments differ."""
    state = np.zeros(1, APPEND_STATE)
    state["segment_base"] = -1
    row = np.zeros(1, ROLL_LIMITS)
    row["segment_bytes"] = 100
    row["segment_ms"] = row["max_offset_entries"] = row["max_time_entries"] = 2**40
    row["max_jitter_ms"] = 1000
    drawn: set[int] = set()
    for _ in range(20):
        zeros = np.zeros(1, np.int64)
        plan = plan_appends(state, row, BatchColumns(zeros, zeros + 90, zeros, zeros, zeros - 1), 0, len(drawn))
        state = plan.state
        drawn.add(int(state["jitter_ms"][0]))

    assert len(drawn) > 5
    assert all(0 <= jitter < 1000 for jitter in drawn)
