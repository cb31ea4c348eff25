"""A broker's copy of the cluster's metadata, read back as it was written."""

from pathlib import Path

import pytest

from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.kraft.bootstrap_checkpoint import render_bootstrap_checkpoint
from sparklog.storage_core.kraft.metadata_records import (
    PartitionMetadata,
    TopicMetadata,
    feature_records,
    topic_records,
)
from sparklog.storage_core.kraft.read_metadata import read_cluster_metadata

_IDS = {"flights": "QwPJrpf0TCG88m6Shk8vCg", "planes": "VcFCsRUtRBeW5AD8_OkHlA"}
_NO_VALUE = b"\0"


def _topic(name: str, **settings: str) -> list[bytes]:
    partition = PartitionMetadata(0, (1,), ("VcFCsRUtRBeW5AD8_OkHlA",), 0)
    properties = {key.replace("_", "."): value for key, value in settings.items()}
    return topic_records(TopicMetadata(name, _IDS[name], (partition,), properties))


def _write(root: Path, name: str, *records: bytes) -> None:
    directory = root / "__cluster_metadata-0"
    directory.mkdir(exist_ok=True)
    (directory / name).write_bytes(render_bootstrap_checkpoint(records, 0))


def test_metadata_when_there_is_no_log_of_it_then_none(tmp_path: Path) -> None:
    """A broker of ZooKeeper has none, and a copy may lack it."""
    assert read_cluster_metadata(tmp_path) is None


def test_metadata_when_topics_have_settings_then_ids_and_settings(tmp_path: Path) -> None:
    """Features are passed over; of a partition only its replicas count."""
    levels = feature_records({"metadata.version": 30})
    _write(tmp_path, f"{0:020}.log", *levels, *_topic("flights", retention_ms="-1"), *_topic("planes"))

    found = read_cluster_metadata(tmp_path)

    assert found is not None
    assert found.topic_ids == _IDS
    assert found.settings == {"flights": {"retention.ms": "-1"}, "planes": {}}
    assert found.replicas == {"flights": {0: 1}, "planes": {0: 1}}


def test_metadata_when_there_is_a_snapshot_then_it_and_the_log_above_it(tmp_path: Path) -> None:
    """What the newest snapshot stands for is not read from the log again; a setting that was removed is gone."""
    _write(tmp_path, f"{1:020}-{1:010}.checkpoint", *_topic("planes"))
    _write(tmp_path, f"{3:020}-{1:010}.checkpoint", *_topic("flights", retention_ms="-1", segment_bytes="1"))
    removed = _topic("flights", segment_bytes="1")[-1].replace(b"\x021", _NO_VALUE)
    _write(tmp_path, f"{0:020}.log", *_topic("planes"), removed)

    found = read_cluster_metadata(tmp_path)

    assert found is not None
    assert found.topic_ids == {"flights": _IDS["flights"]}
    assert found.settings == {"flights": {"retention.ms": "-1"}}


def test_metadata_when_a_record_is_cut_then_the_log_is_named(tmp_path: Path) -> None:
    """Nothing is guessed."""
    _write(tmp_path, f"{0:020}.log", _topic("flights")[0][:9])

    with pytest.raises(CorruptFileError, match=r"a metadata record can't be read: log=.*__cluster_metadata-0"):
        read_cluster_metadata(tmp_path)
