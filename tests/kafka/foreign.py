"""Putting log directories that no broker wrote under a broker.

A broker keeps a directory only if it knows the topic and `partition.metadata` holds the topic's id; any other is
renamed to `-stray`. So the topics are created first, and then everything but that one file changes hands.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.kafka.broker import KafkaBroker, TopicSpec

__all__ = ["ForeignTopic", "foreign_topics", "mount"]

_TOPIC_ID_FILE = "partition.metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignTopic:
    """Log directories to be served as one topic.

    Attributes:
        directories: one per partition, in their order; they are copied, never changed.
        config: Kafka's topic settings. Retention is off unless set here: old records are expected.
    """

    name: str
    directories: Sequence[Path]
    config: Mapping[str, object] = field(default_factory=dict)

    @property
    def spec(self) -> TopicSpec:
        """What the broker is told about the topic."""
        config = {"retention.ms": -1, "message.timestamp.before.max.ms": 2**63 - 1, **self.config}
        return TopicSpec(name=self.name, partitions=len(self.directories), config=config)


def foreign_topics(log_dir: Path, configs: Mapping[str, Mapping[str, object]] | None = None) -> list[ForeignTopic]:
    """Return the topics whose directories `<topic>-<partition>` lie in a log directory.

    Args:
        log_dir: a Kafka log directory.
        configs: topic settings by topic.
    """
    by_topic: dict[str, dict[int, Path]] = {}
    for directory in sorted(log_dir.iterdir()):
        topic, dash, number = directory.name.rpartition("-")
        if directory.is_dir() and dash and number.isdigit():
            by_topic.setdefault(topic, {})[int(number)] = directory
    return [
        ForeignTopic(
            name=topic, directories=[found[each] for each in sorted(found)], config=(configs or {}).get(topic, {})
        )
        for topic, found in sorted(by_topic.items())
    ]


def mount(
    broker: KafkaBroker,
    topics: Sequence[ForeignTopic],
    checkpoints: Path | None = None,
    settings: Mapping[str, object] | None = None,
) -> None:
    """Serve foreign directories from a running broker, which is restarted for it.

    The broker's marker of a clean shutdown stays: it takes every byte, indexes included, on trust. That is the harder
    test, because an index that is wrong is then used, and a log that is wrong ends the broker.

    Args:
        broker: a running one.
        topics: what to serve; none of these names may exist.
        checkpoints: log directory whose checkpoint files take the place of the broker's own.
        settings: broker properties of the run that serves them.
    """
    broker.create_topics(*(each.spec for each in topics))
    broker.stop()
    for topic in topics:
        for number, source in enumerate(topic.directories):
            _replace(broker.log_dir / f"{topic.name}-{number}", source)
    for each in checkpoints.glob("*-checkpoint") if checkpoints else ():
        shutil.copy2(each, broker.log_dir / each.name)
    broker.start(settings)


def _replace(directory: Path, source: Path) -> None:
    for each in directory.iterdir():
        if each.name != _TOPIC_ID_FILE:
            each.unlink()
    for each in source.iterdir():
        if each.name != _TOPIC_ID_FILE:
            shutil.copy2(each, directory / each.name)
