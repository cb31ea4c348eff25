"""How far a micro-batch goes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.pipeline.reader.rate_limit import count_new_offsets, limit_offsets
from sparklog.storage_core.topic_partition import TopicPartition

_LOGS = [TopicPartition("t", number) for number in range(5)]


def _offsets(*values: int) -> dict[TopicPartition, int]:
    return dict(zip(_LOGS, values, strict=False))


@pytest.mark.parametrize(
    ("limit", "start", "latest", "expected"),
    [
        (100, (0, 0), (30, 60), (30, 60)),
        (30, (0, 0), (30, 60), (10, 20)),
        (10, (0, 0), (1, 1000), (1, 9)),
        (10, (5, 7), (5, 7), (5, 7)),
        (10, (9, 0), (5, 100), (5, 10)),
    ],
    ids=["all fits", "in proportion", "small not starved", "nothing new", "one went back"],
)
def test_limit_offsets_when_logs_differ_then_each_gets_its_share(
    limit: int, start: tuple[int, ...], latest: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    """Shares are in proportion to what is there, and at least one offset."""
    assert limit_offsets(limit, _offsets(*start), _offsets(*latest)) == _offsets(*expected)


@given(st.integers(1, 1000), st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=5))
def test_limit_offsets_when_called_until_nothing_is_new_then_it_ends(limit: int, logs: list[tuple[int, int]]) -> None:
    """Each micro-batch gets further, none passes the limit by more than one offset a log, and the end is reached."""
    start = _offsets(*(low for low, _ in logs))
    latest = _offsets(*(low + more for low, more in logs))
    left = count_new_offsets(start, latest)

    end = limit_offsets(limit, start, latest)

    taken = count_new_offsets(start, end)
    assert min(left, 1) <= taken <= min(left, limit + len(logs))
    assert all(start[log] <= end[log] <= latest[log] for log in latest)
