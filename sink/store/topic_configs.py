"""Topic settings inside a store, for commands without the stream's settings file.

`control/topic-configs.json`: for each topic the properties that differ from Kafka's defaults, under Kafka's names. A
sink writes those of its topics when it opens the store; another sink's topics stay. The settings of other topics are
unknown: maintenance must not delete their records by a default.

`preserved` has the topics that a sink has written with preserved offsets. Their logs may have gaps, also after a sink
assigns offsets.

`others` has the properties of mirrored topics that have no meaning here: brokers get them back.
"""

from collections.abc import Collection, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Final

from sparklog.sink.store.control_file import ControlFile, check_name, check_topic
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.storage.owned_names import Owner

__all__ = [
    "UNKNOWN_SETTINGS",
    "forget_topic_config",
    "keep_topic_configs",
    "own_properties",
    "read_other_properties",
    "read_preserved_topics",
    "read_topic_configs",
]

UNKNOWN_SETTINGS: Final = (
    "the settings of its topic are not known: control/topic-configs.json does not name it; open the store once with the"
    " stream that writes it"
)
"""Why maintenance deletes nothing from a log."""

_FILE: Final = ControlFile(
    name="topic-configs.json",
    what="topic settings are",
    remedy="delete it, the next start of the stream writes it anew",
)


def read_topic_configs(store: Store) -> dict[str, LogConfig]:
    """Return the settings of each known topic; the others must not get Kafka's defaults.

    Raises:
        CorruptFileError: the file is damaged, or names a property that this release does not know.
    """
    return _FILE.read(store, _configs) or {}


def read_preserved_topics(store: Store) -> frozenset[str]:
    """Return the topics with preserved offsets. Raises as `read_topic_configs`."""
    return _FILE.read(store, _preserved) or frozenset()


def read_other_properties(store: Store) -> dict[str, dict[str, str]]:
    """Return the properties by topic that only brokers use. Raises as `read_topic_configs`."""
    return _FILE.read(store, _others) or {}


def keep_topic_configs(
    store: Store,
    configs: Mapping[str, LogConfig],
    owner: Owner,
    preserved: Collection[str] = (),
    others: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> None:
    """Record the settings of some topics; the caller holds the writer lock.

    Args:
        preserved: topics with preserved offsets; they stay in the file's list for ever.
        others: properties by topic that only brokers use.

    A damaged file is replaced: other topics are unknown then until their own sink opens the store.
    """
    try:
        before = read_topic_configs(store), read_preserved_topics(store), read_other_properties(store)
    except CorruptFileError:
        before = {}, frozenset(), {}
    known, preserving, found = before
    after = {**known, **configs}, preserving.union(preserved), _given({**found, **others})
    if after != before:
        _write(store, *after, owner)


def forget_topic_config(store: Store, topic: str, owner: Owner) -> None:
    """Drop a topic's settings; the caller holds the writer lock."""
    configs, preserved, others = read_topic_configs(store), read_preserved_topics(store), read_other_properties(store)
    if topic in configs or topic in preserved or topic in others:
        configs.pop(topic, None)
        others.pop(topic, None)
        _write(store, configs, preserved - {topic}, others, owner)


def _configs(content: dict[str, Any]) -> dict[str, LogConfig]:
    return {topic: LogConfig.from_properties(properties) for topic, properties in content["topics"].items()}


def _preserved(content: dict[str, Any]) -> frozenset[str]:
    return frozenset(map(check_topic, content.get("preserved", ())))


def _others(content: dict[str, Any]) -> dict[str, dict[str, str]]:
    found = content.get("others", {}).items()
    return {check_topic(topic): {check_name(name): str(value) for name, value in each.items()} for topic, each in found}


def _given(others: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    return {topic: dict(each) for topic, each in others.items() if each}


def _write(
    store: Store,
    configs: Mapping[str, LogConfig],
    preserved: Collection[str],
    others: Mapping[str, Mapping[str, str]],
    owner: Owner,
) -> None:
    topics = {topic: own_properties(config) for topic, config in sorted(configs.items())}
    content = {"topics": topics, "preserved": sorted(preserved)}
    _FILE.replace(store, content | ({"others": dict(sorted(others.items()))} if others else {}), owner)


def own_properties(config: LogConfig) -> dict[str, object]:
    """Return the properties that differ from Kafka's defaults, by their names."""
    default = LogConfig()
    values = {
        each.metadata["name"]: (getattr(config, each.name), getattr(default, each.name)) for each in fields(config)
    }
    return {name: value for name, (value, usual) in values.items() if value != usual}
