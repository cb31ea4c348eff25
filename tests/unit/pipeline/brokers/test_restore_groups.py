"""Which offsets of a mirror a running cluster's groups get."""

import pytest

from sparklog.pipeline.brokers.restore_groups import ClusterLog, TargetState, judge_offsets
from sparklog.storage_core.kraft.group_offsets import GroupOffset
from sparklog.storage_core.topic_partition import TopicPartition

_ID, _OTHER = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


_LOG = TopicPartition("t", 0)


def _target(topic_id: str = _ID, **changed: object) -> TargetState:
    usual: dict[str, object] = {"logs": {_LOG: ClusterLog(topic_id, 10, 20)}, "committed": {}, "active": frozenset()}
    return TargetState(**{**usual, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("offset", "target", "reason"),
    [
        (10, _target(), None),
        (20, _target(committed={("g", "t", 0): 15}), None),
        (20, _target(""), None),
        (15, _target(logs={}), "a log that is not there (in the cluster)"),
        (15, _target(_OTHER), f"another topic of that name: its_id={_ID} id={_OTHER} (in the cluster)"),
        (15, _target(_OTHER, committed={("g", "t", 0): 15}), "another topic of that name"),
        (21, _target(), "above the log's end 20 (in the cluster)"),
        (9, _target(), "below the log's start 10 (in the cluster)"),
        (15, _target(committed={("g", "t", 0): 16}), "below the group's offset 16 there"),
        (15, _target(active=frozenset({"g"})), "active: stop its consumers"),
    ],
)
def test_offset_when_the_cluster_is_so_then_given_or_refused_with_the_reason(
    offset: int, target: TargetState, reason: str | None
) -> None:
    """A group never gets an offset that would skip records, or take it back."""
    wanted = GroupOffset(group="g", topic="t", partition=0, offset=offset)

    given, refused, kept_count = judge_offsets([wanted], {"t": _ID}, target)

    assert (given == [wanted], kept_count) == (reason is None, 0)
    assert [each.offset for each in refused] == ([] if reason is None else [wanted])
    assert reason is None or reason in str(refused[0])


def test_offset_when_the_group_has_it_then_kept_also_while_it_is_active() -> None:
    """A second run changes nothing."""
    wanted = GroupOffset(group="g", topic="t", partition=0, offset=15)

    found = judge_offsets([wanted], {"t": _ID}, _target(committed={("g", "t", 0): 15}, active=frozenset({"g"})))

    assert found == ([], [], 1)
