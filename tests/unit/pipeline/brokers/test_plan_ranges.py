"""Offsets of a mirror's next micro-batch."""

from hypothesis import given
from hypothesis import strategies as st

from sparklog.pipeline.brokers.plan_ranges import plan_ranges

_LOGS = st.dictionaries(
    st.tuples(st.just("t"), st.integers(0, 9)), st.tuples(st.integers(0, 99), st.integers(0, 10**6))
)


def test_ranges_when_all_fits_then_every_log_to_its_end() -> None:
    """A log without new offsets is absent."""
    assert plan_ranges({("t", 0): 5, ("t", 1): 9}, {("t", 0): 8, ("t", 1): 9}, 3) == {("t", 0): (5, 8)}


@given(_LOGS, st.integers(1, 1000))
def test_ranges_when_they_are_read_one_after_the_other_then_every_offset_once(
    logs: dict[tuple[str, int], tuple[int, int]], most: int
) -> None:
    """Each log gets on, none goes past its end, and a micro-batch stays near its limit."""
    starts = {log: start for log, (start, _) in logs.items()}
    ends = {log: start + lag for log, (start, lag) in logs.items()}

    ranges = plan_ranges(starts, ends, most)

    assert ranges.keys() == {log for log, (_, lag) in logs.items() if lag}
    assert all(start == starts[log] < end <= ends[log] for log, (start, end) in ranges.items())
    assert sum(end - start for start, end in ranges.values()) <= most + len(logs)
