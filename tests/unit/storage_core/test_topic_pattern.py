"""Which topics patterns mean."""

import pytest

from sparklog.storage_core.topic_pattern import internal_topics


@pytest.mark.parametrize(
    ("topics", "named"),
    [("__consumer_offsets", ["__consumer_offsets"]), ("orders,__tr.*", ["__transaction_state"]), ("orders", [])],
)
def test_patterns_when_they_mean_a_clusters_own_topics_then_these_are_named(topics: str, named: list[str]) -> None:
    """An error about them says that they are left out, not that there is none."""
    assert internal_topics(topics) == named
