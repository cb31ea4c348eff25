"""Questions to a Kafka cluster, by the `Admin` client of Kafka's own jar, inside a JVM that py4j reaches.

Each answer crosses once, as text: one call for each value would take a second for some thousand of them. A question
takes calls for each log or group, so it is kept, and asked again while it names the same ones. Errors name the cluster
and the kind of the problem, never a property: those may be secrets.

Source: Kafka Admin; KIP-516 (topic ids).
"""

import base64
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]

from sparklog.pipeline.brokers.client_properties import ClientProperties
from sparklog.pipeline.brokers.source_settings import SourceSettings
from sparklog.pipeline.brokers.source_topics import SourceTopic
from sparklog.storage_core.errors import InvalidConfigError, LogStorageError, TopicsChangedError, UnknownTopicError
from sparklog.storage_core.kraft.group_offsets import GroupOffset
from sparklog.storage_core.topic_pattern import internal_topics, is_named

__all__ = ["KafkaAdmin"]

_Log = tuple[str, int]
_LISTED: Final = re.compile(r"([A-Za-z0-9._-]+)-(\d+)=ListOffsetsResultInfo\(offset=(-?\d+)")
_GROUP: Final = re.compile(r"\(groupId='(.*?)', isSimpleConsumerGroup=", re.DOTALL)
_RESOURCE: Final = re.compile(r"name='([^']*)'")
_CONFIGURATION: Final = re.compile(r"configuration ([a-z.]+)")
_TOPICS_OWN: Final = "DYNAMIC_TOPIC_CONFIG"
_GONE: Final = "UnknownTopicOrPartitionException"
_NO_ID: Final = base64.urlsafe_b64encode(bytes(16)).decode().rstrip("=")
_KINDS: Final = {
    "SslAuthentication": "TLS failed",
    "SSLHandshake": "TLS failed",
    "Authentication": "the cluster refuses the login",
    "Authorization": "the cluster refuses access",
    "UnknownMember": "the group is active, stop its consumers",
    "GroupNotEmpty": "the group is active, stop its consumers",
    "Timeout": "no broker answers; address, port and security protocol must fit",
    "Disconnect": "no broker answers; address, port and security protocol must fit",
}
"""What to say of an error, by a part of its class's name."""


class KafkaAdmin:
    """A cluster's admin client.

    Args:
        jvm: py4j's view of a JVM with Kafka's and Jackson's jars.
        properties: of the client.

    Raises:
        InvalidConfigError: Kafka refuses the properties.
    """

    def __init__(self, jvm: Any, properties: ClientProperties) -> None:
        self._jvm = jvm
        self._server = properties.bootstrap_server
        self._classes = jvm.org.apache.kafka.clients.admin
        self._json = _json_of_fields(jvm)
        self._asked: dict[str, tuple[frozenset[Any], Any]] = {}
        given = jvm.java.util.Properties()
        for name, value in properties.of_admin().items():
            given.put(name, value)
        try:
            self._admin = self._classes.Admin.create(given)  # asks no broker: an error is one of the properties
        except Py4JJavaError as error:
            raise InvalidConfigError(_refusal(error.java_exception, properties)) from None  # as in `_explaining`

    def cluster_id(self) -> str:
        """Return the cluster's id."""
        return str(self._ask(lambda: self._admin.describeCluster().clusterId()))

    def topics(self, pattern: str) -> dict[str, SourceTopic]:
        """Return the topics whose whole names match.

        Args:
            pattern: regular expressions with commas between.

        Raises:
            InvalidConfigError: an expression is none.
            UnknownTopicError: no topic matches.
        """
        known = self._names()
        found = [name for name in known if is_named(name, pattern)]
        if not found:
            listed = ", ".join(known[:5]) or "none"
            own = ", ".join(internal_topics(pattern))
            left_out = f"; the cluster keeps for itself, and they are not mirrored: {own}" if own else ""
            raise UnknownTopicError(
                f"no topic at the source has such a name: topics={pattern} known={listed}{left_out}"
            )
        return self._described(found)

    def known_topics(self, names: Collection[str]) -> dict[str, SourceTopic]:
        """Return those of some topics that there are."""
        return self._described([name for name in self._names() if name in names])

    def _names(self) -> list[str]:
        return sorted(json.loads(self._json(self._ask(lambda: self._admin.listTopics().names()))))

    def _described(self, names: Sequence[str]) -> dict[str, SourceTopic]:
        described = self._ask(lambda: self._admin.describeTopics(self._list(names)).allTopicNames())
        return {
            name: SourceTopic(_uuid(each["topicId"]), len(each["partitions"]))
            for name, each in json.loads(self._json(described)).items()
        }

    def settings(self, topics: Iterable[str]) -> dict[str, SourceSettings]:
        """Return the properties of topics."""
        resource = self._jvm.org.apache.kafka.common.config.ConfigResource
        asked = self._list([resource(resource.Type.TOPIC, name) for name in topics])
        answer = json.loads(self._json(self._ask(lambda: self._admin.describeConfigs(asked).all())))
        found = {}
        for name, config in answer.items():
            entries = {each["name"]: each for each in config["entries"].values() if each["value"] is not None}
            found[_RESOURCE.findall(name)[-1]] = SourceSettings(
                {each: entry["value"] for each, entry in entries.items()},
                {each: entry["value"] for each, entry in entries.items() if entry["source"] == _TOPICS_OWN},
            )
        return found

    def starts(self, logs: Iterable[_Log]) -> dict[_Log, int]:
        """Return where logs start."""
        return self._offsets("starts", logs, self._classes.OffsetSpec.earliest(), "READ_UNCOMMITTED")

    def ends(self, logs: Iterable[_Log], isolation: str = "READ_COMMITTED") -> dict[_Log, int]:
        """Return where logs end; by default before the first record of a transaction that is open."""
        return self._offsets(f"ends {isolation}", logs, self._classes.OffsetSpec.latest(), isolation)

    def offsets_at(self, logs: Iterable[_Log], time_ms: int) -> dict[_Log, int]:
        """Return the offset of each log's first record at a time or later; logs without one are absent."""
        spec = self._classes.OffsetSpec.forTimestamp(time_ms)
        found = self._offsets(f"at {time_ms}", logs, spec, "READ_UNCOMMITTED")
        return {log: offset for log, offset in found.items() if offset >= 0}

    def group_offsets(self) -> list[GroupOffset]:
        """Return the offsets that classic and consumer groups have committed."""
        listed = str(self._ask(lambda: self._admin.listConsumerGroups().all()).toString())
        groups = _GROUP.findall(listed)
        if not groups:
            return []
        asked = self._question("groups", groups, lambda group: (group, self._classes.ListConsumerGroupOffsetsSpec()))
        answer = json.loads(self._json(self._ask(lambda: self._admin.listConsumerGroupOffsets(asked).all())))
        return [
            GroupOffset(
                group=group,
                topic=log.rpartition("-")[0],
                partition=int(log.rpartition("-")[2]),
                offset=each["offset"],
                metadata=each["metadata"] or "",
            )
            for group, offsets in answer.items()
            for log, each in offsets.items()
            if each is not None
        ]

    def active_groups(self, groups: Collection[str]) -> frozenset[str]:
        """Return those of some groups that have members."""
        described = self._ask(lambda: self._admin.describeConsumerGroups(self._list(sorted(groups))).all())
        return frozenset(group for group in groups if described[group].members().size())

    def give_offsets(self, group: str, offsets: Sequence[GroupOffset]) -> None:
        """Let a group without members have these offsets.

        Raises:
            LogStorageError: the cluster refuses.
        """
        clients = self._jvm.org.apache.kafka.clients.consumer
        partition = self._jvm.org.apache.kafka.common.TopicPartition
        given = self._jvm.java.util.HashMap()
        for each in offsets:
            given.put(partition(each.topic, each.partition), clients.OffsetAndMetadata(each.offset, each.metadata))
        self._ask(lambda: self._admin.alterConsumerGroupOffsets(group, given).all())

    def create_topic(self, name: str, partitions: int, replication_factor: int, settings: Mapping[str, str]) -> None:
        """Create a topic.

        Raises:
            LogStorageError: the cluster refuses.
        """
        given = self._jvm.java.util.HashMap()
        for key, value in settings.items():
            given.put(key, value)
        topic = self._classes.NewTopic(name, partitions, replication_factor).configs(given)
        self._ask(lambda: self._admin.createTopics(self._list([topic])).all())

    def close(self) -> None:
        """End the client."""
        with self._explaining():
            self._admin.close()

    def _offsets(self, kind: str, logs: Iterable[_Log], spec: Any, isolation: str) -> dict[_Log, int]:
        partition = self._jvm.org.apache.kafka.common.TopicPartition
        asked = self._question(kind, logs, lambda log: (partition(*log), spec))
        level = self._jvm.org.apache.kafka.common.IsolationLevel.valueOf(isolation)
        options = self._classes.ListOffsetsOptions(level)
        text = str(self._ask(lambda: self._admin.listOffsets(asked, options).all()).toString())
        return {(topic, int(number)): int(offset) for topic, number, offset in _LISTED.findall(text)}

    def _question(self, kind: str, names: Iterable[Any], entry: Callable[[Any], tuple[Any, Any]]) -> Any:
        """Return a Java map with an entry for each name: the kind's last one if it has the same names."""
        wanted = frozenset(names)
        if kind not in self._asked or self._asked[kind][0] != wanted:
            asked = self._jvm.java.util.HashMap()
            for each in wanted:
                asked.put(*entry(each))
            self._asked[kind] = wanted, asked
        return self._asked[kind][1]

    def _list(self, values: Sequence[Any]) -> Any:
        found = self._jvm.java.util.ArrayList()
        for each in values:
            found.add(each)
        return found

    def _ask(self, request: Callable[[], Any]) -> Any:
        """Return a request's answer."""
        with self._explaining():
            return request().get()

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Turn errors of the client into ours."""
        try:
            yield
        except Py4JJavaError as error:
            raise self._explained(error.java_exception) from None  # its text may hold properties
        except (Py4JError, OSError) as error:
            raise LogStorageError(f"Spark was lost: {type(error).__name__}") from error

    def _explained(self, thrown: Any) -> LogStorageError:
        """Return our error for one of Kafka's, by the first kind among its causes that is known."""
        kinds, at = [str(each.getClass().getSimpleName()) for each in _causes(thrown)], f"server={self._server}"
        if _GONE in kinds:
            return TopicsChangedError(f"a topic was deleted at the source: {at}")
        for kind in kinds:
            for known, problem in _KINDS.items():
                if known in kind:
                    return LogStorageError(f"{problem}: {at} ({kind})")
        return LogStorageError(f"the cluster refuses a request: {at} ({kinds[-1]})")


def _causes(thrown: Any) -> list[Any]:
    """Return a Java exception and its causes."""
    found = []
    while thrown is not None:
        found.append(thrown)
        thrown = thrown.getCause()
    return found


def _refusal(thrown: Any, properties: ClientProperties) -> str:
    """Return our text for properties that Kafka's client can't use."""
    last = _causes(thrown)[-1]
    kind = str(last.getClass().getSimpleName())
    named = _CONFIGURATION.search(str(last.getMessage()))
    problem = (
        "an address does not resolve" if kind == "ConfigException" else "a value, or the file that it names, is wrong"
    )
    what = f"property={named[1]}" if named else problem
    file = "" if properties.file is None else f" file={properties.file}"
    return f"Kafka's client can't use its properties: {what}{file} server={properties.bootstrap_server} ({kind})"


def _uuid(fields: Mapping[str, int]) -> str:
    """Return a topic id's text; empty for the id of a broker without ids."""
    high, low = (fields[name].to_bytes(8, signed=True) for name in ("mostSignificantBits", "leastSignificantBits"))
    text = base64.urlsafe_b64encode(high + low).decode().rstrip("=")
    return "" if text == _NO_ID else text


def _json_of_fields(jvm: Any) -> Callable[[Any], str]:
    """Return a function that writes a Java object's fields as JSON: Kafka's classes have no getters for Jackson."""
    jackson = jvm.com.fasterxml.jackson
    accessor, visibility = jackson.annotation.PropertyAccessor, jackson.annotation.JsonAutoDetect.Visibility
    mapper = jackson.databind.ObjectMapper()
    mapper.setVisibility(accessor.ALL, visibility.valueOf("NONE"))
    mapper.setVisibility(accessor.FIELD, visibility.valueOf("ANY"))
    return lambda value: str(mapper.writeValueAsString(value))
