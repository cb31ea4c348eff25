"""A mirror ends where its source does: a group that goes over to it reads exactly the next record."""

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from tests.kafka.broker import KafkaBroker, TopicSpec
from tests.kafka.consumed import Log
from tests.kafka.foreign import ForeignTopic, foreign_topics, mount
from tests.kafka.judge import judge_directory
from tests.kafka.mirrored import stream_mirror
from tests.kafka.produced import ProducedRecord, produce_in_transactions, produce_with_confluent

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

_MARKERS, _ABORTED, _DELETED, _LATER = "ends.markers", "ends.aborted", "ends.deleted", "ends.later"
_BEGUN = "ends.begun"
_ENDS: Mapping[Log, int] = {(_MARKERS, 0): 12, (_ABORTED, 0): 6, (_DELETED, 0): 10, (_LATER, 0): 13, (_BEGUN, 0): 10}
"""Where the sources end once everything below was produced."""

_STARTS: Mapping[Log, int] = {(_MARKERS, 0): 0, (_ABORTED, 0): 0, (_DELETED, 0): 10, (_LATER, 0): 0, (_BEGUN, 0): 2}
_TIMEOUT_S = 60.0
_START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def mirror(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs of a mirror of five topics whose last offsets hold no record that is left, brought up to date twice.

    One ends in markers and aborted records, one has nothing else, of one all records were deleted. The fourth ends in
    records at first; a marker is all that comes between the two runs. The fifth begins with aborted records, of which
    the first two were deleted.
    """
    broker.create_topics(*(TopicSpec(name=topic, config={"retention.ms": -1}) for topic, _ in _ENDS))
    produce_in_transactions(broker.bootstrap, [(_records(_MARKERS, 8), "commit"), (_records(_MARKERS, 2), "abort")])
    produce_in_transactions(broker.bootstrap, [(_records(_ABORTED, 5), "abort")])
    produce_with_confluent(broker.bootstrap, _records(_DELETED, 10))
    _delete_records(broker, _DELETED, confluent_kafka.OFFSET_END)
    produce_in_transactions(broker.bootstrap, [(_records(_BEGUN, 5), "abort"), (_records(_BEGUN, 3), "commit")])
    _delete_records(broker, _BEGUN, _STARTS[_BEGUN, 0])
    produce_with_confluent(broker.bootstrap, _records(_LATER, 10))
    _await_ends(broker.bootstrap, {**_ENDS, (_LATER, 0): 10})
    folder = tmp_path_factory.mktemp("mirror")
    topics = {topic: {"partitions": 1} for topic, _ in _ENDS}
    stream_mirror(folder, broker.bootstrap, topics)
    produce_in_transactions(broker.bootstrap, [(_records(_LATER, 2), "abort")])
    _await_ends(broker.bootstrap, _ENDS)
    return stream_mirror(folder, broker.bootstrap, topics)


@pytest.fixture(scope="module")
def served(broker: KafkaBroker, mirror: Path) -> KafkaBroker:
    """The broker with the mirror's logs under names of their own; indexes are taken on trust."""
    mount(
        broker,
        [ForeignTopic(name=f"moved.{each.name}", directories=each.directories) for each in foreign_topics(mirror)],
    )
    return broker


def test_broker_when_it_serves_a_mirror_then_its_logs_end_where_the_sources_do(served: KafkaBroker) -> None:
    """No offset of the source is given out again."""
    _await_ends(served.bootstrap, {(f"moved.{topic}", number): end for (topic, number), end in _ENDS.items()})


def test_broker_when_it_serves_a_mirror_then_its_logs_start_where_the_sources_do(
    broker: KafkaBroker, served: KafkaBroker
) -> None:
    """Also where the first offsets hold no record; a log whose source has no offset left starts below its end."""
    of_sources, of_mirror = (
        _spans(served.bootstrap, [(f"{prefix}{topic}", 0) for topic, _ in _ENDS]) for prefix in ("", "moved.")
    )

    assert of_sources == {log: (_STARTS[log], _ENDS[log]) for log in _ENDS}
    assert of_mirror == {
        (f"moved.{topic}", number): (min(_STARTS[topic, number], end - 1), end)
        for (topic, number), end in _ENDS.items()
    }


def test_group_below_the_sources_first_record_then_reads_that(served: KafkaBroker) -> None:
    """A group that waits at offsets without records knows an offset that the mirror knows."""
    for offset in range(_STARTS[_BEGUN, 0], 7):
        with _Group(served.bootstrap, f"begun.{offset}", (f"moved.{_BEGUN}", 0), offset) as group:
            assert group.read(3, patience_s=10) == [(6, b"key 0"), (7, b"key 1"), (8, b"key 2")], offset


def test_group_at_the_sources_end_when_the_log_is_idle_then_waits_without_an_error(served: KafkaBroker) -> None:
    """A group that had read its source to the end has an offset that the mirror knows."""
    for topic, number in _ENDS:
        with _Group(served.bootstrap, f"idle.{topic}", (f"moved.{topic}", number), _ENDS[topic, number]) as group:
            assert group.read(1, patience_s=3) == [], topic


def test_group_at_the_sources_end_when_a_record_comes_then_reads_exactly_that(served: KafkaBroker) -> None:
    """The next record gets the offset at which the group goes on."""
    for (topic, number), end in _ENDS.items():
        moved = f"moved.{topic}"
        produce_with_confluent(served.bootstrap, [ProducedRecord(moved, number, _START_MS, b"next", b"record")])
        with _Group(served.bootstrap, f"next.{topic}", (moved, number), end) as group:
            assert group.read(2, patience_s=10) == [(end, b"next")], topic


def test_dump_log_when_a_mirror_ends_without_records_then_finds_nothing_but_gaps(
    broker: KafkaBroker, mirror: Path
) -> None:
    """The batches that hold the ends are what Kafka's tools take for sound."""
    verdict = judge_directory(mirror, broker.toolbox, gaps_allowed=True)

    assert verdict.findings == []


class _Group:
    """A consumer of a group that has committed an offset of a log, and takes no other one for it."""

    def __init__(self, bootstrap: str, name: str, log: Log, offset: int) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
        }
        self._consumer = confluent_kafka.Consumer(settings)
        place = confluent_kafka.TopicPartition(*log, offset)
        self._consumer.commit(offsets=[place], asynchronous=False)
        self._consumer.assign([confluent_kafka.TopicPartition(*log)])  # goes on where the group has committed

    def __enter__(self) -> "_Group":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(self, at_most: int, patience_s: float) -> list[tuple[int | None, bytes | None]]:
        """Return offsets and keys of what comes, at most so many; an error of the broker fails the test."""
        messages: list[confluent_kafka.Message] = []
        deadline = time.monotonic() + patience_s
        while len(messages) < at_most and time.monotonic() < deadline:
            messages += self._consumer.consume(at_most, timeout=0.2)
        failed = [each.error() for each in messages if each.error() is not None]
        assert not failed, failed
        return [(each.offset(), each.key()) for each in messages]


def _records(topic: str, count: int) -> Iterator[ProducedRecord]:
    for number in range(count):
        yield ProducedRecord(topic, 0, _START_MS + number, f"key {number}".encode(), b"value")


def _delete_records(broker: KafkaBroker, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    place = confluent_kafka.TopicPartition(topic, 0, before)
    for result in admin.delete_records([place]).values():
        result.result(_TIMEOUT_S)


def _await_ends(bootstrap: str, wanted: Mapping[Log, int]) -> None:
    """Wait for a broker that has just started, and for markers, which it writes after it has answered the producer."""
    deadline = time.monotonic() + _TIMEOUT_S
    while (found := _ends(bootstrap, wanted)) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def _ends(bootstrap: str, logs: Iterable[Log]) -> dict[Log, int] | str:
    """Return where logs end; what the broker says as long as it leads none."""
    found = _spans(bootstrap, logs)
    return found if isinstance(found, str) else {log: end for log, (_, end) in found.items()}


def _spans(bootstrap: str, logs: Iterable[Log]) -> dict[Log, tuple[int, int]] | str:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "ends", "isolation.level": "read_committed"}
    )
    try:
        return {
            log: consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*log), timeout=_TIMEOUT_S)
            for log in logs
        }
    except confluent_kafka.KafkaException as error:
        return str(error)
    finally:
        consumer.close()
