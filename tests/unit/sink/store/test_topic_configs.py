"""The settings of topics are kept in the store."""

import json
from pathlib import Path

import pytest

from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import (
    forget_topic_config,
    keep_topic_configs,
    read_other_properties,
    read_preserved_topics,
    read_topic_configs,
)
from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.sink_store import open_store


def _file(store: Path) -> Path:
    return store / "control" / "topic-configs.json"


def test_open_when_a_sink_opens_the_store_then_its_topics_settings_are_kept(memory_path: Path) -> None:
    """What is Kafka's default is left out; a second sink's topics stand beside the first one's."""
    open_store(memory_path, {"a": {"partitions": 2, "retention.ms": 5, "compression.type": "zstd"}}, topic="a").close()
    open_store(memory_path, {"b": {"min.cleanable.dirty.ratio": 0.1}, "c": {}}, topic="b").close()

    configs = read_topic_configs(Store.find(memory_path))

    assert configs == {
        "a": LogConfig(retention_ms=5, compression_type="zstd"),
        "b": LogConfig(min_cleanable_dirty_ratio=0.1),
        "c": LogConfig(),
    }
    assert json.loads(_file(memory_path).read_text())["topics"]["a"] == {"retention.ms": 5, "compression.type": "zstd"}


def test_open_when_a_setting_is_given_up_then_it_is_the_default_again(memory_path: Path) -> None:
    """The file says what the settings of the last opening were."""
    open_store(memory_path, {"a": {"retention.ms": 5}}, topic="a").close()
    open_store(memory_path, {"a": {}}, topic="a").close()

    assert read_topic_configs(Store.find(memory_path)) == {"a": LogConfig()}


def test_forget_when_a_topic_goes_then_the_others_stay(memory_path: Path) -> None:
    """A topic of that name that is made later starts with its own settings."""
    open_store(memory_path, {"a": {"retention.ms": 5}, "b": {"retention.ms": 6}}, topic="a").close()

    forget_topic_config(Store.find(memory_path), "a", UNSHARED)

    assert read_topic_configs(Store.find(memory_path)) == {"b": LogConfig(retention_ms=6)}


def test_forget_when_the_settings_of_a_topic_were_never_known_then_nothing_of_it_stays(memory_path: Path) -> None:
    """As of an import without the cluster's metadata: a later topic of that name has no gaps."""
    open_store(memory_path, {"b": {}}, topic="b").close()
    store = Store.find(memory_path)
    keep_topic_configs(store, {}, UNSHARED, {"a"}, {"a": {"min.insync.replicas": "2"}})

    forget_topic_config(store, "a", UNSHARED)

    assert (read_preserved_topics(store), read_other_properties(store)) == (frozenset(), {})


@pytest.mark.parametrize(
    "content",
    [b"", b"\0\0", b"[]", b'{"version": 1, "topics": {}}', b'{"version": 0, "topics": {"a": {"retention.bites": 1}}}'],
)
def test_read_when_damaged_then_the_file_is_named_and_the_next_opening_mends_it(
    memory_path: Path, content: bytes
) -> None:
    """Maintenance must not delete by settings that nobody gave."""
    open_store(memory_path, {"a": {"retention.ms": 5}}, topic="a").close()
    _file(memory_path).write_bytes(content)

    with pytest.raises(CorruptFileError, match=r"topic settings .*topic-configs\.json"):
        read_topic_configs(Store.find(memory_path))
    keep_topic_configs(Store.find(memory_path), {"a": LogConfig(retention_ms=7)}, UNSHARED)

    assert read_topic_configs(Store.find(memory_path)) == {"a": LogConfig(retention_ms=7)}


def test_open_when_offsets_are_preserved_then_the_topic_stays_one_with_gaps(memory_path: Path) -> None:
    """A later sink that assigns offsets closes no gap; a topic that is made again has none."""
    open_store(memory_path, {"a": {}}, topic="a", offsets="preserved").close()
    open_store(memory_path, {"a": {"retention.ms": 5}, "b": {}}, topic="a").close()
    store = Store.find(memory_path)

    assert read_preserved_topics(store) == {"a"}
    forget_topic_config(store, "a", UNSHARED)
    assert read_preserved_topics(store) == frozenset()
