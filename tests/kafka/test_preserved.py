"""Preserved offsets with gaps and far jumps, by a sink that is closed and opened again between micro-batches."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import sparklog
from tests.kafka.broker import KafkaBroker
from tests.kafka.cases import Row, frame_table, matrix_rows
from tests.kafka.consumed import (
    CREATE_TIME,
    Consumed,
    Log,
    lookup_times_with_confluent,
    read_with_confluent,
    read_with_kafka_python,
)
from tests.kafka.foreign import foreign_topics, mount
from tests.kafka.judge import judge_directory

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

_TOPIC = "preserved"
_SETTINGS = {
    "segment.bytes": 20_000,
    "batch.size": 800,
    "index.interval.bytes": 500,
    "compression.type": "lz4",
    "partitions": 2,
}
_FIRST_OFFSET = 5
_FAR = {60: 2**31 - 200, 61: 2**31 + 7, 120: 2**40, 200: 2**62}
"""Row numbers before which the offset jumps there: up to what a segment can hold, and beyond it."""


@pytest.fixture(scope="module")
def records() -> list[Consumed]:
    """What was written, and must be read: an offset in three is missing, and four jumps are far."""
    rows = [row for row in matrix_rows() if (row.topic, row.partition) == ("m.rolled-by-time", 1)]
    offset = _FIRST_OFFSET
    found = []
    for number, row in enumerate(rows):
        offset = _FAR.get(number, offset)
        found.append(Consumed(offset, row.timestamp, CREATE_TIME, row.key, row.value, row.headers))
        offset += 1 + number % 2 + number // 50
    return found


@pytest.fixture(scope="module")
def log_dir(spark: SparkSession, records: list[Consumed], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs that the sink made of the records, in four micro-batches by four sinks; partition 1 gets none."""
    store = tmp_path_factory.mktemp("preserved") / "store"
    size = -(-len(records) // 4)
    for number in range(4):
        part = records[number * size : (number + 1) * size]
        rows = [Row(_TOPIC, 0, each.timestamp, each.key, each.value, each.headers) for each in part]
        table = frame_table(rows).append_column("offset", pa.array([each.offset for each in part], pa.int64()))
        with sparklog.LogSink(store, topics={_TOPIC: _SETTINGS}, offsets="preserved") as sink:
            sink.write(spark.createDataFrame(table), query_id="preserved", batch_id=number)
    return store / "logs"


@pytest.fixture(scope="module")
def served(broker: KafkaBroker, log_dir: Path) -> KafkaBroker:
    """The broker with the logs; indexes are taken on trust."""
    mount(broker, foreign_topics(log_dir))
    return broker


def test_dump_log_when_offsets_jump_then_finds_nothing_but_gaps(broker: KafkaBroker, log_dir: Path) -> None:
    """Every record and index entry is sound, and the far jumps each start a segment."""
    verdict = judge_directory(log_dir, broker.toolbox, gaps_allowed=True)

    assert verdict.findings == []
    assert len(verdict.gaps) > 50
    bases = {int(path.stem) for path in (log_dir / f"{_TOPIC}-0").glob("*.log")}
    assert min(bases) == _FIRST_OFFSET
    assert {2**40, 2**62} <= bases


def test_clients_when_offsets_jump_then_read_every_record(served: KafkaBroker, records: list[Consumed]) -> None:
    """Offsets come out as they went in, over every gap and into every segment."""
    expected: Mapping[Log, list[Consumed]] = {(_TOPIC, 0): records, (_TOPIC, 1): []}

    assert read_with_confluent(served.bootstrap, {_TOPIC: 2}) == expected
    assert read_with_kafka_python(served.bootstrap, {_TOPIC: 2}) == expected


def test_offsets_for_times_when_the_sink_was_reopened_then_finds_the_first_record(
    served: KafkaBroker, records: list[Consumed]
) -> None:
    """Time entries written at each close, in the middle of a segment, do not lead a lookup astray."""
    wrong = []
    for timestamp in sorted({each.timestamp + step for each in records[::9] for step in (0, 1)} - {-1, 0}):
        found = lookup_times_with_confluent(served.bootstrap, {(_TOPIC, 0): timestamp})[_TOPIC, 0]
        truth = next((each.offset for each in records if each.timestamp >= timestamp), None)
        if found != truth:
            wrong.append((timestamp, truth, found))

    assert wrong == []
