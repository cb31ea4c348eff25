"""Retention and deleted records, judged by Kafka: a broker serves what we leave, and deletes the same segments itself.

Each case is a topic of one store. A copy from before our retention lies beside it under another name, with the same
settings: that one is left to the broker's own retention, and to its own delete-records.
"""

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from sparklog.sink.ledger.rows import LogState
from sparklog.sink.opening.access import maintaining
from sparklog.sink.operations.retain_logs import execute_plans, plan_logs, remove_deleted
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.log.files.names import LOG, parse_base_offset
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.retention.plan_retention import plan_record_deletion
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.retained_store import state_of
from tests.build.sink_store import in_process, open_store, rows
from tests.kafka.broker import KafkaBroker
from tests.kafka.consumed import lookup_times_with_confluent, read_with_confluent
from tests.kafka.foreign import ForeignTopic, mount
from tests.kafka.ours import read_log
from tests.kafka.toolbox import KafkaToolbox

pytestmark = pytest.mark.kafka

_DAY_MS = 86_400_000
_COUNT = 200
_TIMEOUT_S = 60.0
_UNCLEANED = {"min.cleanable.dirty.ratio": 1.0}
"""Nothing is dirty enough for a cleaner."""
_BROKER = {"log.retention.check.interval.ms": 300, "log.initial.task.delay.ms": 300}


@dataclass(frozen=True, kw_only=True)
class _Case:
    """A log.

    Attributes:
        settings: of its topic.
        days: age of each fifth of its records.
        delete_before: offset that records are deleted up to; -1 is the log's end.
    """

    settings: Mapping[str, object] = field(default_factory=dict)
    days: tuple[float, ...] = (40, 30, 20, 10, 0)
    delete_before: int | None = None


_CASES = {
    "untouched": _Case(),
    "size": _Case(settings={"retention.bytes": 1200}),
    "exact": _Case(settings={"retention.bytes": 343}),
    "zero": _Case(settings={"retention.bytes": 0}),
    "age": _Case(settings={"retention.ms": 15 * _DAY_MS}),
    "emptied": _Case(settings={"retention.ms": 5 * _DAY_MS}, days=(40, 30, 20, 10, 9)),
    "future": _Case(settings={"retention.ms": 5 * _DAY_MS}, days=(-30, 30, 20, 10, 9)),
    "both": _Case(settings={"retention.ms": 25 * _DAY_MS, "retention.bytes": 3000}, days=(-30, 40, 20, 10, 0)),
    "inside": _Case(delete_before=50),
    "border": _Case(delete_before=60),
    "end": _Case(delete_before=-1),
    "end.by.age": _Case(settings={"retention.ms": 5 * _DAY_MS}, days=(40, 30, 20, 10, 9), delete_before=-1),
    "compact": _Case(settings={"cleanup.policy": "compact", **_UNCLEANED, "retention.ms": 1, "retention.bytes": 0}),
    "compact.delete": _Case(settings={"cleanup.policy": "compact,delete", **_UNCLEANED, "retention.bytes": 1200}),
}


def _ours(case: str) -> TopicPartition:
    return TopicPartition(f"ours.{case}", 0)


def _theirs(case: str) -> str:
    return f"theirs.{case}"


@dataclass(frozen=True)
class _Retained:
    """The store after our retention, and the copies of its logs from before."""

    store: Path
    before: dict[str, Path]

    def state(self, case: str) -> LogState:
        return state_of(self.store, _ours(case))

    def directory(self, case: str) -> Path:
        return self.store / "logs" / _ours(case).directory_name


@pytest.fixture(scope="module")
def retained(tmp_path_factory: pytest.TempPathFactory) -> _Retained:
    """Every case, written and retained by us."""
    store, copies = tmp_path_factory.mktemp("retention") / "store", tmp_path_factory.mktemp("before")
    _write(store)
    before = {
        case: Path(shutil.copytree(store / "logs" / _ours(case).directory_name, copies / case)) for case in _CASES
    }
    clock = SystemClock()
    for case, each in _CASES.items():
        if each.delete_before is not None:
            _delete_records(store, _ours(case), each.delete_before)
    with maintaining(store) as maintained:
        run = execute_plans(maintained, plan_logs(maintained.store, clock), clock)
    assert [each.failure for each in run.logs] == [None] * len(_CASES)
    assert remove_deleted(run, clock) == {}
    return _Retained(store, before)


def _write(store: Path) -> None:
    now_ms = SystemClock().now_ms()
    common = {"segment.bytes": 600, "batch.size": 200, "index.interval.bytes": 100, "retention.ms": -1}
    topics = {
        _ours(case).topic: {**common, "file.delete.delay.ms": 0, **each.settings} for case, each in _CASES.items()
    }
    fifth = _COUNT // 5
    with closing(open_store(store, topics)) as writer:
        for number in range(5):
            for turn, (case, each) in enumerate(_CASES.items()):
                records = range(number * fifth, (number + 1) * fifth)
                at = now_ms - int(each.days[number] * _DAY_MS)
                frame = rows(
                    topic=[_ours(case).topic for _ in records],
                    key=[str(each) for each in records],
                    value=[f"value {each}" for each in records],
                    timestamp=[at + each for each in records],
                )
                writer.append("q", number * len(_CASES) + turn, in_process(frame))


def _delete_records(store: Path, log: TopicPartition, before: int) -> None:
    clock = SystemClock()
    offset = state_of(store, log).log_end_offset if before < 0 else before
    with maintaining(store) as maintained:
        plans = plan_logs(Store.find(store), clock, {log}, lambda facts, _: plan_record_deletion(facts, offset))
        assert remove_deleted(execute_plans(maintained, plans, clock), clock) == {}


@pytest.fixture(scope="module")
def judge(
    toolbox: KafkaToolbox, tmp_path_factory: pytest.TempPathFactory, retained: _Retained
) -> Iterator[KafkaBroker]:
    """A broker with both copies of every log, whose own retention runs all the time."""
    with KafkaBroker(toolbox, tmp_path_factory.mktemp("judge")) as broker:
        broker.format()
        broker.start()
        theirs = [
            ForeignTopic(name=_theirs(case), directories=[retained.before[case]], config=_broker_config(each))
            for case, each in _CASES.items()
        ]
        ours = [ForeignTopic(name=_ours(case).topic, directories=[retained.directory(case)]) for case in _CASES]
        mount(broker, [*ours, *theirs], retained.store / "logs", _BROKER)
        _delete_theirs(broker)
        yield broker


def _broker_config(case: _Case) -> dict[str, object]:
    return {"retention.ms": -1, **case.settings}


def _delete_theirs(broker: KafkaBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = [
        confluent_kafka.TopicPartition(_theirs(case), 0, each.delete_before)
        for case, each in _CASES.items()
        if each.delete_before is not None
    ]
    deadline = time.monotonic() + _TIMEOUT_S
    while failed := [each for each, result in admin.delete_records(wanted).items() if result.exception(30)]:
        assert time.monotonic() < deadline, failed  # it is not the leader of everything as soon as it answers
        time.sleep(0.2)


def _bounds(broker: KafkaBroker, topic: str) -> tuple[int, int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "bounds"})
    try:
        low, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=30)
        return low, high
    finally:
        consumer.close()


def _segments(directory: Path) -> list[int]:
    bases = [parse_base_offset(path.name) for path in directory.iterdir() if path.name.endswith(LOG)]
    return sorted(base for base in bases if base is not None)


def test_retention_when_compared_with_a_brokers_own_then_the_same_segments_are_left(
    judge: KafkaBroker, retained: _Retained
) -> None:
    """Of the same log under the same settings a broker keeps the same segments, and starts and ends it where we do."""
    ours = {case: _segments(retained.directory(case)) for case in _CASES}
    deadline = time.monotonic() + _TIMEOUT_S
    while (theirs := {case: _segments(judge.log_dir / f"{_theirs(case)}-0") for case in _CASES}) != ours:
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)

    assert theirs == ours
    states = {case: retained.state(case) for case in _CASES}
    assert {case: _bounds(judge, _theirs(case)) for case in _CASES} == {
        case: (state.log_start_offset, state.log_end_offset) for case, state in states.items()
    }
    assert ours["untouched"][0] == 0
    assert ours["emptied"] == ours["zero"] == ours["end.by.age"] == [_COUNT]


def test_broker_when_it_serves_what_we_left_then_the_same_bounds_records_and_times(
    judge: KafkaBroker, retained: _Retained
) -> None:
    """Clients see the log start and end of our ledger, the records between, and find times where we do."""
    logs = {case: retained.directory(case) for case in _CASES}
    states = {case: retained.state(case) for case in _CASES}
    records = read_with_confluent(judge.bootstrap, {_ours(case).topic: 1 for case in _CASES})

    for case, state in states.items():
        start, end = state.log_start_offset, state.log_end_offset
        assert _bounds(judge, _ours(case).topic) == (start, end), case
        kept = [each for each in read_log(logs[case]) if each.offset >= start]
        assert records[_ours(case).topic, 0] == kept, case
        assert [each.offset for each in kept] == list(range(start, _COUNT)), case
        reader = LogReader(logs[case], log_start_offset=start, log_end_offset=end)
        for timestamp in {0, *(each.timestamp for each in kept[::37]), 2**60}:
            found = reader.offset_for_time(timestamp)
            asked = {(_ours(case).topic, 0): timestamp}
            (theirs,) = lookup_times_with_confluent(judge.bootstrap, asked).values()
            assert theirs == (found[0] if found else None), (case, timestamp)


def test_broker_when_it_starts_on_what_we_left_then_no_complaint(judge: KafkaBroker) -> None:
    """No log is recovered, no file is missing."""
    assert [line for line in judge.complaints() if "ours." in line] == []
