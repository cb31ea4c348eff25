"""The column form and the plain form of a flush policy agree."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sparklog.sink.place.flush_policy import FLUSH_LIMITS, is_flush_due_by_log
from sparklog.storage_core.log_config import INT64_MAX

_SMALL_OR_NEVER = st.integers(0, 20) | st.just(INT64_MAX)
_LOG = st.tuples(
    _SMALL_OR_NEVER.map(lambda most: max(most, 1)), _SMALL_OR_NEVER, st.integers(0, 25), st.integers(0, 25)
)


def _is_flush_due(messages: int, milliseconds: int, unflushed_count: int, waited_ms: int) -> bool:
    return unflushed_count > 0 and (unflushed_count >= messages or waited_ms >= milliseconds)


@given(st.lists(_LOG), st.integers(0, 1000), st.integers(0, 1000))
def test_flush_is_due_by_log_matches_the_plain_form(
    logs: list[tuple[int, int, int, int]], point: int, synced_ms: int
) -> None:
    """So many offsets behind, or so long, whichever comes first; and never without any offset."""
    limits = np.array([(messages, milliseconds) for messages, milliseconds, _, _ in logs], FLUSH_LIMITS)
    behind, waited = (np.array([log[at] for log in logs], np.int64) for at in (2, 3))
    now_ms = synced_ms + 25

    due = is_flush_due_by_log(limits, point + behind, np.full(len(logs), point), now_ms - waited, now_ms)

    assert due.tolist() == [_is_flush_due(*log) for log in logs]
