"""The same query over a live topic through Spark's Kafka connector, and over its files through `kafka-log`."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparklog.pipeline.spark.jars import obtain_jars
from sparklog.storage_core.errors import InvalidConfigError
from tests.kafka.broker import KafkaBroker, TopicSpec
from tests.kafka.produced import ProducedRecord, produce_in_transactions, produce_with_confluent

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

_PLAIN, _TRANSACTIONS, _APPEND_TIME = "reader.plain", "reader.transactions", "reader.append-time"
_TOPICS = {_PLAIN: 3, _TRANSACTIONS: 2, _APPEND_TIME: 1}
_ROOT = Path(__file__).resolve().parents[2]
_START_MS = 1_700_000_000_000
_TIMEOUT_S = 400

_Found = dict[str, dict[str, list[Any]]]


@pytest.fixture(scope="module")
def found(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> _Found:
    """What both formats say of the topics: live, of a copy of the broker's folder, and of a store that mirrors them."""
    try:
        obtain_jars()
    except InvalidConfigError as error:
        pytest.skip(f"KAFKA DID NOT JUDGE: {error}")
    _fill(broker)
    folder = tmp_path_factory.mktemp("reader")
    copied = folder / "copied"
    copied.mkdir()
    for path in broker.log_dir.glob("reader.*"):
        shutil.copytree(path, copied / path.name)
    told = {
        "bootstrap": broker.bootstrap,
        "topics": _TOPICS,
        "live": str(broker.log_dir),
        "copied": str(copied),
        "folder": str(folder),
        "result": str(folder / "found.json"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.kafka.reader_job", json.dumps(told)],
        cwd=_ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    loaded: _Found = json.loads((folder / "found.json").read_text())
    return loaded


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("files", ["live", "copied"])
@pytest.mark.parametrize("what", ["rows", "windows"])
def test_kafka_log_when_a_brokers_folder_is_read_then_it_equals_the_connector(
    found: _Found, level: str, files: str, what: str
) -> None:
    """Each column of each row, and a query over windows of time, under both isolation levels."""
    expected = found[f"{level} connector"][what]

    assert len(expected) > 10
    assert found[f"{level} {files}"][what] == expected


def test_kafka_log_when_levels_differ_then_so_do_the_rows(found: _Found) -> None:
    """Aborted records make the levels worth comparing."""
    uncommitted, committed = (found[f"{level} connector"]["rows"] for level in ("read_uncommitted", "read_committed"))

    assert set(committed) < set(uncommitted)


def test_kafka_log_when_a_store_mirrors_the_topics_then_it_equals_the_connector(found: _Found) -> None:
    """A store that a stream has filled, offsets preserved, gives the same rows and windows.

    Times that the log set are times that a producer gave, in a mirror.
    """
    expected = [json.loads(row) | {"timestampType": 0} for row in found["read_committed connector"]["rows"]]

    assert [json.loads(row) for row in found["store"]["rows"]] == expected
    assert found["store"]["windows"] == found["read_committed connector"]["windows"]


def test_kafka_log_when_a_stream_follows_the_store_then_it_counts_each_record_once(found: _Found) -> None:
    """A stream over the store, begun before its first record, has counted all at the end."""
    rows = [json.loads(row) for row in found["store"]["rows"]]
    wanted = [
        [topic, len(offsets), max(offsets)]
        for topic in sorted(_TOPICS)
        if (offsets := [row["offset"] for row in rows if row["topic"] == topic])
    ]

    assert found["store"]["followed"] == wanted


def _fill(broker: KafkaBroker) -> None:
    broker.create_topics(
        TopicSpec(name=_PLAIN, partitions=3, config={"retention.ms": -1, "compression.type": "lz4"}),
        TopicSpec(name=_TRANSACTIONS, partitions=2, config={"retention.ms": -1}),
        TopicSpec(name=_APPEND_TIME, config={"message.timestamp.type": "LogAppendTime"}),
    )
    produce_with_confluent(broker.bootstrap, _records(_PLAIN, 0, 400))
    produce_with_confluent(broker.bootstrap, _records(_APPEND_TIME, 0, 60))
    for turn in range(3):
        committed, aborted = _records(_TRANSACTIONS, turn, 40), _records(_TRANSACTIONS, turn + 10, 25)
        produce_in_transactions(broker.bootstrap, [(committed, "commit"), (aborted, "abort")])
        produce_with_confluent(broker.bootstrap, _records(_TRANSACTIONS, turn + 20, 10))


def _records(topic: str, turn: int, count: int) -> list[ProducedRecord]:
    """Return records whose times go back now and then; keys and values are null now and then."""
    return [
        ProducedRecord(
            topic,
            number % _TOPICS[topic],
            _START_MS + turn * 5_000 + number * 250 - (number % 5) * 700,
            None if number % 11 == 10 else f"key {number % 17}".encode(),
            None if number % 13 == 12 else f"turn {turn} number {number}".encode(),
            ((), (("trace", f"{number}".encode()),), (("trace", None), ("trace", b"\xff")))[number % 3],
        )
        for number in range(count)
    ]
