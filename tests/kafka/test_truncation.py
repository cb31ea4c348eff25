"""Truncated logs, judged by Kafka: a broker that trusts the directory starts and ends each where our ledger does."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import pytest

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.operations.truncate_logs import truncate_fully_and_start_at
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.sink_store import in_process, open_store, rows
from tests.build.truncated import truncate_to
from tests.kafka.broker import KafkaBroker
from tests.kafka.consumed import read_with_confluent
from tests.kafka.foreign import ForeignTopic, mount
from tests.kafka.ours import read_log
from tests.kafka.toolbox import KafkaToolbox

pytestmark = pytest.mark.kafka

_COUNT = 200
_SETTINGS = {"segment.bytes": 600, "batch.size": 200, "index.interval.bytes": 100, "retention.ms": -1}


@dataclass(frozen=True)
class _Case:
    """What is done to a log.

    Attributes:
        offset: its new end.
        is_full: whether everything goes.
        appended: records that come behind.
    """

    offset: int
    is_full: bool = False
    appended: int = 0


_CASES = {
    **{f"at-{offset}": _Case(offset) for offset in (1, 20, 21, 60, 61, 75, 150, 199)},
    **{f"at-{offset}-and-on": _Case(offset, appended=30) for offset in (21, 60, 75, 199)},
    "fully-at-0": _Case(0, is_full=True),
    "fully-at-50": _Case(50, is_full=True),
    "fully-at-5000": _Case(5000, is_full=True),
    "fully-at-5000-and-on": _Case(5000, is_full=True, appended=30),
}


def _log(case: str) -> TopicPartition:
    return TopicPartition(case, 0)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every case, truncated, and appended to where that is asked for."""
    store = tmp_path_factory.mktemp("truncated") / "store"
    _append(store, 0, dict.fromkeys(_CASES, _COUNT))
    for case, each in _CASES.items():
        if each.is_full:
            truncate_fully_and_start_at(store, _log(case), each.offset, SystemClock())
        else:
            truncate_to(store, _log(case), each.offset, SystemClock())
    _append(store, 1, {case: each.appended for case, each in _CASES.items() if each.appended})
    return store


def _append(store: Path, batch_id: int, counts: dict[str, int]) -> None:
    with closing(open_store(store, dict.fromkeys(_CASES, _SETTINGS))) as writer:
        for turn, (case, count) in enumerate(counts.items()):
            frame = rows(topic=[case] * count, value=[f"{batch_id}/{n}" for n in range(count)])
            writer.append("q", batch_id * len(_CASES) + turn, in_process(frame))


@pytest.fixture(scope="module")
def judge(toolbox: KafkaToolbox, tmp_path_factory: pytest.TempPathFactory, store: Path) -> Iterator[KafkaBroker]:
    """A broker that serves the store's directories as if it had closed them itself."""
    with KafkaBroker(toolbox, tmp_path_factory.mktemp("judge")) as broker:
        broker.format()
        broker.start()
        logs = [ForeignTopic(name=case, directories=[store / "logs" / f"{case}-0"]) for case in _CASES]
        mount(broker, logs, store / "logs")
        yield broker


def _bounds(broker: KafkaBroker, topic: str) -> tuple[int, int]:
    with closing(confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "bounds"})) as consumer:
        low, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=30)
        return low, high


def test_broker_when_logs_were_truncated_then_it_starts_and_ends_them_where_the_ledger_does(
    judge: KafkaBroker, store: Path
) -> None:
    """Also where a batch reached across the cut: the next record gets the same offset from a broker as from a sink."""
    states: dict[TopicPartition, LogState] = Ledger.open(store / "ledger").states()

    assert {case: _bounds(judge, case) for case in _CASES} == {
        case: (states[_log(case)].log_start_offset, states[_log(case)].log_end_offset) for case in _CASES
    }


def test_broker_when_logs_were_truncated_then_it_serves_the_records_that_stayed(
    judge: KafkaBroker, store: Path
) -> None:
    """No record from behind the cut comes back, and none before it is missing but those of its own batch."""
    records = read_with_confluent(judge.bootstrap, dict.fromkeys(_CASES, 1))

    for case, each in _CASES.items():
        kept = read_log(store / "logs" / f"{case}-0")
        assert records.get((case, 0), []) == kept, case
        before = [record.offset for record in kept if record.offset < each.offset]
        assert before == list(range(0 if each.is_full else len(before))), case
        assert len([record for record in kept if record.offset >= each.offset]) == each.appended, case
    assert [line for line in judge.complaints() if any(case in line for case in _CASES)] == []
