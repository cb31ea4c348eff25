"""Creates the topics of a mount on a running cluster; once they are there, it is stopped and gets the logs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sparklog.pipeline.brokers.admin_jvm import admin_jvm
from sparklog.pipeline.brokers.client_properties import ClientProperties
from sparklog.pipeline.brokers.kafka_admin import KafkaAdmin
from sparklog.pipeline.brokers.mounting.choice import MountChoice
from sparklog.pipeline.brokers.source_topics import SourceTopic
from sparklog.pipeline.report import show
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.mount.new_cluster import mounted_settings
from sparklog.sink.mount.plan_mount import MountPlan
from sparklog.sink.store.set_aside import stored_topic_id
from sparklog.storage_core.clock import sleep
from sparklog.storage_core.errors import InvalidConfigError, LogStorageError

__all__ = ["WantedTopic", "create_topics", "missing_topics"]

_LONGEST_WAIT_S: Final = 60.0
_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTopic:
    """A topic that the cluster lacks.

    Attributes:
        settings: under the names that a broker takes.
    """

    name: str
    partitions: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Created:
    """Topics that are planned, or there."""

    topics: Sequence[WantedTopic]
    next_command: str
    executed: bool

    def lines(self) -> Iterator[str]:
        """Return a line per topic."""
        for each in self.topics:
            settings = ", ".join(f"{name}={value}" for name, value in sorted(each.settings.items()))
            yield f"{each.name}: {each.partitions} partitions, {settings or 'default settings'}"

    def verdict(self) -> str:
        """Return the line for people."""
        if not self.executed:
            return f"planned: {len(self.topics)} topics to create; --execute does it"
        return f"created: {len(self.topics)} topics; stop the broker, then: {self.next_command}"

    def as_dict(self) -> dict[str, Any]:
        """Return the topics for JSON."""
        return {
            "executed": self.executed,
            "topics": [
                {"topic": each.name, "partitions": each.partitions, "settings": dict(each.settings)}
                for each in self.topics
            ],
            "next": self.next_command,
        }


def create_topics(
    choice: MountChoice,
    folders: Sequence[Path],
    properties: ClientProperties,
    *,
    replication_factor: int,
    execute: bool,
    as_json: bool,
) -> None:
    """Create the topics that the cluster lacks, and wait for their directories; the logs come with the next command.

    Raises:
        InvalidConfigError: a topic is there with another number of partitions.
        LogStorageError: the cluster refuses; or the broker does not make directories in these folders.
    """
    plan = choice.plan(Ledger.open(choice.store.ledger_path))
    with admin_jvm() as jvm, closing(KafkaAdmin(jvm, properties)) as admin:
        wanted = missing_topics(plan, admin.known_topics(plan.topics()), replication_factor)
        if execute:
            for each in wanted:
                admin.create_topic(each.name, each.partitions, replication_factor, each.settings)
            _await_directories(wanted, folders)
    into = " ".join(f"--into {each}" for each in folders)
    topics = f" --topics '{choice.topics}'" if choice.topics else ""
    as_of = "" if choice.as_of is None else f" --as-of {choice.as_of}"
    command = f"sparklog mount {choice.given} {into}{topics}{as_of} --topics-made-anew --execute"
    show(_Created(wanted, command, execute), as_json=as_json)


def missing_topics(plan: MountPlan, there: Mapping[str, SourceTopic], replication_factor: int) -> list[WantedTopic]:
    """Return the topics that a cluster lacks.

    Args:
        there: those that it has.

    Raises:
        InvalidConfigError: one of them has another number of partitions.
    """
    found = []
    for topic, logs in plan.topics().items():
        if topic not in there:
            settings = mounted_settings(plan, topic, replication_factor)
            found.append(WantedTopic(name=topic, partitions=len(logs), settings=settings))
        elif there[topic].partitions != len(logs):
            raise InvalidConfigError(
                f"the target has other partitions: topic={topic} target={there[topic].partitions} store={len(logs)};"
                " leave it out by --topics"
            )
    return found


def _await_directories(wanted: Sequence[WantedTopic], folders: Sequence[Path]) -> None:
    """Return once a broker has written the topic's id into each directory: it answers before that."""
    names = [f"{each.name}-{number}" for each in wanted for number in range(each.partitions)]
    deadline = time.monotonic() + _LONGEST_WAIT_S
    while missing := [name for name in names if not any(_is_made(folder / name) for folder in folders)]:
        if time.monotonic() > deadline:
            raise LogStorageError(
                f"the topics are created, but the broker makes no directory: log={missing[0]}"
                f" paths={', '.join(map(str, folders))}; name all log.dirs of a broker that has every partition"
            )
        sleep(_PAUSE_S)


def _is_made(directory: Path) -> bool:
    return directory.is_dir() and stored_topic_id(directory) is not None
