"""Which topics a cluster lacks for a mount, and with which settings they are created."""

from contextlib import closing
from pathlib import Path

import pytest

from sparklog.pipeline.brokers.mounting.choice import MountChoice
from sparklog.pipeline.brokers.mounting.create_topics import WantedTopic, missing_topics
from sparklog.pipeline.brokers.source_topics import SourceTopic
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.mount.plan_mount import MountPlan
from sparklog.sink.store.store_folder import random_id
from sparklog.storage_core.errors import InvalidConfigError
from tests.build.sink_store import open_store

_TIMES = {"message.timestamp.after.max.ms": "9223372036854775807"}


@pytest.fixture
def plan(tmp_path: Path) -> MountPlan:
    """A store of two topics."""
    topics: dict[str, dict[str, object]] = {"a": {"partitions": 3, "retention.ms": -1}, "b": {"segment.bytes": 2000}}
    with closing(open_store(tmp_path / "store", topics)):
        pass
    choice = MountChoice.find(tmp_path / "store", None, None, allow_gaps=False)
    return choice.plan(Ledger.open(choice.store.ledger_path))


def test_topics_when_the_cluster_has_none_then_each_with_its_partitions_and_settings(plan: MountPlan) -> None:
    """As a new cluster would have them."""
    assert missing_topics(plan, {}, 1) == [
        WantedTopic(name="a", partitions=3, settings={"retention.ms": "-1", **_TIMES}),
        WantedTopic(name="b", partitions=1, settings={"internal.segment.bytes": "2000", **_TIMES}),
    ]


def test_topics_when_the_cluster_has_one_then_it_is_left_as_it_is(plan: MountPlan) -> None:
    """Its settings are the cluster's."""
    assert [each.name for each in missing_topics(plan, {"a": SourceTopic(random_id(), 3)}, 1)] == ["b"]


def test_topics_when_one_has_other_partitions_then_refused_before_any_is_created(plan: MountPlan) -> None:
    """Keys would be in others."""
    with pytest.raises(InvalidConfigError, match="the target has other partitions: topic=b target=4 store=1"):
        missing_topics(plan, {"b": SourceTopic(random_id(), 4)}, 1)
