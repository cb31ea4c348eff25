"""Settings that new topics of an import get. Those of a topic that the store has stay: maintenance deletes by them.

A property that was not set for a topic is its broker's default, which the broker's folders do not name: so
`retention.ms` is -1 then, and nothing is deleted that the broker kept.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import read_other_properties, read_topic_configs
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.log_config import LogConfig

__all__ = ["ImportedSettings", "plan_settings"]

_SEGMENT_BYTES: Final = "segment.bytes"
_RETENTION_MS: Final = "retention.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSettings:
    """Settings of the topics of an import.

    Attributes:
        known: that the broker cleaned a topic by, as far as they are known: given ones, else those of its metadata.
        configs: of each new topic whose settings are known.
        others: properties of new topics that only brokers use.
        kept_for_ever: new topics without a `retention.ms` of their own.
        staying: settings of each topic that the store has; None where it does not know them.
        differing: for each of these topics, the properties that the import would give it, such as `a=1, not 2`.
        refused: what is wrong with the broker's settings of a topic; a line each.
    """

    known: dict[str, LogConfig] = field(default_factory=dict)
    configs: dict[str, LogConfig] = field(default_factory=dict)
    others: dict[str, dict[str, str]] = field(default_factory=dict)
    kept_for_ever: set[str] = field(default_factory=set)
    staying: dict[str, LogConfig | None] = field(default_factory=dict)
    differing: dict[str, tuple[str, ...]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    def cleaned_by(self, topic: str) -> LogConfig | None:
        """Return the settings that the broker cleaned a topic by, or those of the store; None if none are known."""
        return self.known.get(topic) or self.staying.get(topic)


def plan_settings(
    store: Store,
    topics: Collection[str],
    there: Collection[str],
    given: Mapping[str, LogConfig],
    brokers: Mapping[str, Mapping[str, str]],
) -> ImportedSettings:
    """Plan the settings of the topics of an import.

    Args:
        there: topics that the store has.
        given: settings in place of the broker's, by topic.
        brokers: properties of topics, of the cluster's metadata.

    Raises:
        CorruptFileError: the store's settings can't be read.
    """
    found = ImportedSettings()
    held = (read_topic_configs(store), read_other_properties(store)) if there else ({}, {})
    for topic in sorted(topics):
        own, others = _split(brokers.get(topic, {}))
        config = given.get(topic)
        if config is None and topic in brokers:
            config = _parse(topic, own, found)
        if config is not None:
            found.known[topic] = config
        if topic in there:
            names = LogConfig.property_names() if topic in given else own
            wanted = {} if config is None else _values(config, names)
            found.staying[topic] = held[0].get(topic)
            found.differing[topic] = _differing(found.staying[topic], held[1].get(topic, {}), {**wanted, **others})
            continue
        found.others[topic] = others
        if config is None:
            continue
        is_default = topic not in given and "delete" in config.cleanup_policies and _RETENTION_MS not in own
        found.configs[topic] = replace(config, retention_ms=-1) if is_default else config
        found.kept_for_ever.update({topic} if is_default else ())
    return found


def _split(properties: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the properties that a store has a use for, and those that only brokers use."""
    given = dict(properties)
    if (size := given.pop(f"internal.{_SEGMENT_BYTES}", None)) is not None:
        given[_SEGMENT_BYTES] = size
    known = LogConfig.property_names()
    return (
        {name: value for name, value in given.items() if name in known},
        {name: value for name, value in given.items() if name not in known},
    )


def _parse(topic: str, own: Mapping[str, str], found: ImportedSettings) -> LogConfig | None:
    try:
        return LogConfig.from_properties(own)
    except InvalidConfigError as error:
        found.refused.append(f"the settings of {topic}: {error}")
        return None


def _values(config: LogConfig, names: Iterable[str]) -> dict[str, object]:
    known = LogConfig.property_names()
    return {name: getattr(config, known[name]) for name in names}


def _differing(config: LogConfig | None, others: Mapping[str, str], wanted: Mapping[str, object]) -> tuple[str, ...]:
    """Return each wanted property that the store has with another value."""
    known = {} if config is None else _values(config, LogConfig.property_names())
    held, missing = {**known, **others}, "unknown" if config is None else "unset"
    return tuple(
        f"{name}={held.get(name, missing)}, not {value}"
        for name, value in sorted(wanted.items())
        if held.get(name) != value
    )
