"""Extents that move out of objects: in runs that fit into one new object."""

import pytest

from sparklog.sink.objects import merge_extents
from sparklog.sink.objects.extents import Extent
from sparklog.sink.objects.merge_extents import plan_moves
from sparklog.storage_core.topic_partition import TopicPartition

_LOGS = TopicPartition("t", 0), TopicPartition("t", 1)


def _extent(number: int, name: str, size_bytes: int = 40) -> Extent:
    return Extent(
        base_offset=number,
        end_offset=number + 1,
        object=name,
        position=0,
        size_bytes=size_bytes,
        max_timestamp_ms=0,
        records=1,
        leader_epoch=0,
        has_own_offsets=True,
    )


def test_moves_when_extents_are_larger_than_an_object_then_cut_and_grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run holds more than an object may; neighbours that stay end a run; runs that fit share an object."""
    monkeypatch.setattr(merge_extents, "_OBJECT_BYTES", 100)
    first = [_extent(each, "stays" if each == 5 else "goes") for each in range(8)]
    second = [_extent(0, "goes", 150), _extent(1, "goes", 10)]

    groups = plan_moves(dict(zip(_LOGS, (first, second), strict=True)), {"goes"})

    found = [[(log.partition, [each.base_offset for each in run]) for log, run in group] for group in groups]
    assert found == [[(0, [0, 1])], [(0, [2, 3])], [(0, [4])], [(0, [6, 7])], [(1, [0])], [(1, [1])]]


def test_moves_when_no_object_goes_then_none() -> None:
    assert plan_moves({_LOGS[0]: [_extent(0, "stays")]}, set()) == []
