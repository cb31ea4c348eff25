"""Topic settings inside a store, for commands without the stream's settings file.

`control/topic-configs.json`: for each topic the properties that differ from Kafka's defaults, under Kafka's names. A
sink writes those of its topics when it opens the store; another sink's topics stay. The settings of other topics are
unknown: maintenance must not delete their records by a default.

`preserved` has the topics that a sink has written with preserved offsets. Their logs may have gaps, also after a sink
assigns offsets.
"""

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any, Final

from sparklog.sink.store.control_file import ControlFile, check_topic
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.storage.owned_names import Owner

__all__ = [
    "UNKNOWN_SETTINGS",
    "forget_topic_config",
    "keep_topic_configs",
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


def keep_topic_configs(
    store: Store, configs: Mapping[str, LogConfig], owner: Owner, preserved: Collection[str] = ()
) -> None:
    """Record the settings of some topics; the caller holds the writer lock.

    Args:
        preserved: topics with preserved offsets; they stay in the file's list for ever.

    A damaged file is replaced: other topics are unknown then until their own sink opens the store.
    """
    try:
        before, known = read_topic_configs(store), read_preserved_topics(store)
    except CorruptFileError:
        before, known = {}, frozenset()
    if any(before.get(topic) != config for topic, config in configs.items()) or not known.issuperset(preserved):
        _write(store, {**before, **configs}, known.union(preserved), owner)


def forget_topic_config(store: Store, topic: str, owner: Owner) -> None:
    """Drop a topic's settings; the caller holds the writer lock."""
    configs = read_topic_configs(store)
    if configs.pop(topic, None) is not None:
        _write(store, configs, read_preserved_topics(store) - {topic}, owner)


def _configs(content: dict[str, Any]) -> dict[str, LogConfig]:
    return {topic: LogConfig.from_properties(properties) for topic, properties in content["topics"].items()}


def _preserved(content: dict[str, Any]) -> frozenset[str]:
    return frozenset(map(check_topic, content.get("preserved", ())))


def _write(store: Store, configs: Mapping[str, LogConfig], preserved: Collection[str], owner: Owner) -> None:
    topics = {topic: _own_properties(config) for topic, config in sorted(configs.items())}
    _FILE.replace(store, {"topics": topics, "preserved": sorted(preserved)}, owner)


def _own_properties(config: LogConfig) -> dict[str, object]:
    default = LogConfig()
    values = {
        each.metadata["name"]: (getattr(config, each.name), getattr(default, each.name)) for each in fields(config)
    }
    return {name: value for name, (value, usual) in values.items() if value != usual}
