"""The settings of a store's topics, kept in the store for those who work on it without the stream's settings file.

`control/topic-configs.json`: for each topic the properties that differ from Kafka's defaults, under Kafka's names. A
sink writes those of its topics when it opens the store; another sink's topics stay. A topic that the file does not name
has settings that nobody knows: nothing of it may be deleted by a default.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Final

from sink.store import Store
from storage_core.errors import CorruptFileError, InvalidConfigError
from storage_core.log_config import LogConfig
from storage_core.storage.local import make_directory, replace_file, storage_errors

__all__ = ["UNKNOWN_SETTINGS", "forget_topic_config", "keep_topic_configs", "read_topic_configs"]

UNKNOWN_SETTINGS: Final = (
    "the settings of its topic are not known: control/topic-configs.json does not name it; open the store once with the"
    " stream that writes it"
)
"""Why nothing is deleted from a log."""

_VERSION: Final = 0


def read_topic_configs(store: Store) -> dict[str, LogConfig]:
    """Return the settings of each topic that is known; nobody may take the others for topics with Kafka's defaults.

    Raises:
        CorruptFileError: the file is damaged, or names a property that this release does not know.
        StorageError: it can't be read.
    """
    path = _path(store)
    with storage_errors(path):
        if not path.exists():
            return {}
        data = path.read_bytes()
    try:
        content = json.loads(data)
        if content["version"] != _VERSION:
            raise CorruptFileError(f"topic settings of version {content['version']}, not {_VERSION}: path={path}")
        return {topic: LogConfig.from_properties(properties) for topic, properties in content["topics"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, InvalidConfigError) as error:
        raise CorruptFileError(
            f"topic settings are damaged: path={path} ({error}); delete it, the next start of the stream writes it anew"
        ) from error


def keep_topic_configs(store: Store, configs: Mapping[str, LogConfig]) -> None:
    """Write down the settings of some topics; the caller holds the writer lock.

    A damaged file is written anew: what it said of other topics is lost, and they are unknown until their own sink
    opens the store.
    """
    try:
        before = read_topic_configs(store)
    except CorruptFileError:
        before = {}
    if any(before.get(topic) != config for topic, config in configs.items()):
        _write(store, {**before, **configs})


def forget_topic_config(store: Store, topic: str) -> None:
    """Drop a topic's settings; the caller holds the writer lock."""
    configs = read_topic_configs(store)
    if configs.pop(topic, None) is not None:
        _write(store, configs)


def _write(store: Store, configs: Mapping[str, LogConfig]) -> None:
    topics = {topic: _own_properties(config) for topic, config in sorted(configs.items())}
    text = json.dumps({"version": _VERSION, "topics": topics}, indent=1)
    path = _path(store)
    with storage_errors(path):
        make_directory(path.parent)
        replace_file(path, f"{text}\n".encode())


def _own_properties(config: LogConfig) -> dict[str, object]:
    default = LogConfig()
    values = {
        each.metadata["name"]: (getattr(config, each.name), getattr(default, each.name)) for each in fields(config)
    }
    return {name: value for name, (value, usual) in values.items() if value != usual}


def _path(store: Store) -> Path:
    return store.root / "control" / "topic-configs.json"
