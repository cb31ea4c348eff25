"""A cluster's first metadata, byte by byte as a controller has read it."""

import hashlib

from sparklog.storage_core.kraft.bootstrap_checkpoint import render_bootstrap_checkpoint
from sparklog.storage_core.kraft.metadata_records import (
    PartitionMetadata,
    TopicMetadata,
    feature_records,
    topic_records,
)


def test_bootstrap_checkpoint_when_one_topic_is_in_it_then_the_bytes_that_a_broker_took() -> None:
    """Feature level 30, one partition on node 1, one setting: 397 bytes, which kafka-dump-log calls valid."""
    partition = PartitionMetadata(0, (1,), ("VcFCsRUtRBeW5AD8_OkHlA",), 0)
    topic = TopicMetadata("flights", "QwPJrpf0TCG88m6Shk8vCg", (partition,), {"retention.ms": "-1"})

    data = render_bootstrap_checkpoint([*feature_records({"metadata.version": 30}), *topic_records(topic)], 0)

    assert len(data) == 397
    assert hashlib.sha256(data).hexdigest() == "cabdbf10a68f295a78aed01af895e1757fd9309b0ed662ccce1ba4b5737c4e93"
