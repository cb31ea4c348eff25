"""Every codec, level and shape of record, written by the sink: judged by the dump tool, a broker and three clients."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sparklog
from tests.kafka.broker import KafkaBroker
from tests.kafka.cases import (
    PARTITIONS,
    TOPICS,
    broker_settings,
    expected_logs,
    frame_table,
    matrix_rows,
    micro_batches,
    topic_settings,
)
from tests.kafka.console import console_lines, print_like_console
from tests.kafka.consumed import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    Consumed,
    Log,
    lookup_times_with_confluent,
    lookup_times_with_kafka_python,
    read_with_confluent,
    read_with_kafka_python,
)
from tests.kafka.foreign import foreign_topics, mount
from tests.kafka.judge import judge_directory
from tests.kafka.produced import ProducedRecord, produce_with_confluent, produce_with_kafka_python
from tests.kafka.toolbox import KafkaToolbox

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

_TWINS = {f"twin.{name}": name for name in ("m.none", "m.gzip", "m.snappy", "m.lz4", "m.zstd", "m.append-time.lz4")}
"""A second set of topics over the same directories: the one that producers append to."""

_COUNTS = dict.fromkeys(TOPICS, PARTITIONS)
_AFTER_MS = 1_700_100_000_000
_MONTH_MS = 30 * 24 * 3_600_000
_TWIN_COUNTS = dict.fromkeys(_TWINS, PARTITIONS)

_Logs = Mapping[Log, list[Consumed]]
_Read = Callable[[str, Mapping[str, int]], _Logs]
_Lookup = Callable[[str, Mapping[Log, int]], Mapping[Log, int | None]]


@dataclass(frozen=True, slots=True)
class Written:
    """What the sink was given and where it put it.

    Attributes:
        log_dir: the store's log directory.
        logs: what clients must read; times that the log sets itself are 0.
        windows: per micro-batch, ms before and after it.
        ends: per micro-batch, the end offset of each log.
    """

    log_dir: Path
    logs: _Logs
    windows: list[tuple[int, int]]
    ends: list[dict[Log, int]]


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """The matrix, written by the sink in three micro-batches."""
    store = tmp_path_factory.mktemp("matrix") / "store"
    rows = matrix_rows()
    windows: list[tuple[int, int]] = []
    ends: list[dict[Log, int]] = []
    done = 0
    with sparklog.LogSink(store, topics=topic_settings()) as sink:
        for number, batch in enumerate(micro_batches(rows, 3)):
            before = _now_ms()
            sink.write(spark.createDataFrame(frame_table(batch)), query_id="matrix", batch_id=number)
            windows.append((before, _now_ms()))
            done += len(batch)
            ends.append({log: len(records) for log, records in expected_logs(rows[:done]).items()})
    return Written(store / "logs", expected_logs(rows), windows, ends)


@pytest.fixture(scope="module")
def served(broker: KafkaBroker, written: Written) -> KafkaBroker:
    """The broker with the written directories, some of them twice; indexes and checkpoints are taken on trust."""
    topics = {each.name: each for each in foreign_topics(written.log_dir, broker_settings())}
    twins = [replace(topics[name], name=twin) for twin, name in _TWINS.items()]
    mount(broker, [*topics.values(), *twins], checkpoints=written.log_dir)
    return broker


@pytest.fixture(scope="module")
def seen(served: KafkaBroker) -> _Logs:
    """Every record of the matrix, as librdkafka reads it."""
    return read_with_confluent(served.bootstrap, _COUNTS)


@pytest.fixture(scope="module")
def appended(served: KafkaBroker, seen: _Logs) -> _Logs:
    """What the twins must hold, after two producers added to each log."""
    logs = {(twin, number): list(seen[name, number]) for twin, name in _TWINS.items() for number in range(PARTITIONS)}
    produced = [
        ProducedRecord(*log, timestamp, key, value, (("by", b"producer"),))
        for timestamp, key, value in (
            (_AFTER_MS, b"after", b"into our segment"),
            (_AFTER_MS + _MONTH_MS, None, b"into a new segment"),
        )
        for log in logs
    ]
    half = len(produced) // 2
    produce_with_confluent(served.bootstrap, produced[:half])
    produce_with_kafka_python(served.bootstrap, produced[half:])
    for each in produced:
        log = logs[each.topic, each.partition]
        kind = LOG_APPEND_TIME if "append-time" in each.topic else CREATE_TIME
        log.append(Consumed(len(log), each.timestamp, kind, each.key, each.value, each.headers))
    return logs


@pytest.fixture(scope="module")
def recovered(served: KafkaBroker, appended: _Logs) -> KafkaBroker:
    """The broker after it was killed: it had to recover every log."""
    served.kill()
    served.start()
    return served


def test_dump_log_when_the_sink_wrote_the_matrix_then_finds_nothing(toolbox: KafkaToolbox, written: Written) -> None:
    """Kafka's dump tool reads every record of every segment and agrees with every index entry."""
    verdict = judge_directory(written.log_dir, toolbox)

    assert verdict.findings == []
    assert verdict.records == sum(map(len, written.logs.values()))
    assert verdict.logs > 4 * len(TOPICS) * (PARTITIONS - 1)


def test_storage_tool_when_it_reads_our_log_directory_then_finds_an_identity(
    toolbox: KafkaToolbox, written: Written, tmp_path: Path
) -> None:
    """`meta.properties` is what Kafka's storage tool takes for a formatted log directory."""
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker\nnode.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.voters=2@127.0.0.1:1\n"
        f"log.dirs={written.log_dir}\n"
    )
    found = toolbox.run("kafka.tools.StorageTool", "info", "--config", str(properties)).stdout.decode()

    assert re.search(r"Found metadata: \{cluster\.id=\S{22}, directory\.id=\S{22}, node\.id=1, version=1\}", found), (
        found
    )


def test_librdkafka_when_a_broker_opened_the_matrix_then_reads_every_record(seen: _Logs, written: Written) -> None:
    """Offset, timestamp and its type, key, value and headers are what the sink was given."""
    assert _differing(_blank_append_times(seen), written.logs) == []


def test_kafka_python_when_a_broker_opened_the_matrix_then_reads_every_record(served: KafkaBroker, seen: _Logs) -> None:
    """kafka-python agrees with librdkafka on every field."""
    assert _differing(read_with_kafka_python(served.bootstrap, _COUNTS), seen) == []


def test_console_consumer_when_a_broker_opened_the_matrix_then_prints_every_record(
    served: KafkaBroker, seen: _Logs
) -> None:
    """Java's consumer prints each record as it was given."""
    lines = console_lines(served.toolbox, served.bootstrap, TOPICS, sum(map(len, seen.values())))

    assert lines == print_like_console(seen)


def test_append_time_when_the_log_sets_it_then_lies_in_its_micro_batch(seen: _Logs, written: Written) -> None:
    """Records of a LogAppendTime topic carry the time of the micro-batch that wrote them, one time each."""
    logs = [log for log in seen if "append-time" in log[0]]
    starts = [dict.fromkeys(logs, 0), *written.ends]

    assert len(logs) == 2 * PARTITIONS
    for start, end, (before, after) in zip(starts, written.ends, written.windows, strict=False):
        times = {record.timestamp for log in logs for record in seen[log][start[log] : end[log]]}
        assert len(times) == 1
        assert before <= times.pop() <= after


@pytest.mark.parametrize("lookup", [lookup_times_with_confluent, lookup_times_with_kafka_python])
def test_offsets_for_times_when_indexes_are_trusted_then_finds_the_first_record(
    served: KafkaBroker, seen: _Logs, lookup: _Lookup
) -> None:
    """The broker, which came up without rebuilding an index, finds the first record at or after a time through ours."""
    wrong = []
    for asked in _times_to_ask(seen):
        found = lookup(served.bootstrap, asked)
        truth = {log: _first_at_or_after(seen[log], timestamp) for log, timestamp in asked.items()}
        wrong += [(log, asked[log], truth[log], found[log]) for log in asked if found[log] != truth[log]]

    assert wrong == []


def test_broker_when_it_opened_the_matrix_then_has_no_complaint(served: KafkaBroker) -> None:
    """A start over our directories and checkpoint files logs no warning of a log or a file.

    The controller tells that a node alone elects itself, and on a busy machine of requests that took too long.
    """
    assert [line for line in served.complaints() if "Controller" not in line and "TIMED_OUT" not in line] == []


def test_producer_when_the_log_is_foreign_then_appends_behind_it(served: KafkaBroker, appended: _Logs) -> None:
    """New records get the offsets behind ours, from an idempotent producer and a plain one."""
    found = read_with_confluent(served.bootstrap, _TWIN_COUNTS)

    assert _differing(_blank_append_times(found), _blank_append_times(appended)) == []


@pytest.mark.parametrize("read", [read_with_confluent, read_with_kafka_python])
def test_restart_when_the_broker_was_killed_then_every_record_is_still_there(
    recovered: KafkaBroker, appended: _Logs, read: _Read
) -> None:
    """An unclean start reads every batch of ours again, checks it, and keeps it."""
    found = read(recovered.bootstrap, _TWIN_COUNTS)

    assert _differing(_blank_append_times(found), _blank_append_times(appended)) == []


def test_recovery_when_segments_are_closed_then_rebuilds_our_bytes(recovered: KafkaBroker, written: Written) -> None:
    """Log, offset index and time index of a closed segment are byte for byte what the broker makes of the batches."""
    ours = [
        segment.with_suffix(suffix)
        for directory in written.log_dir.glob("m.*-*")
        for segment in sorted(directory.glob("*.log"))[:-1]
        for suffix in (".log", ".index", ".timeindex")
    ]
    differing = [
        f"{file.parent.name}/{file.name}"
        for file in ours
        if file.read_bytes() != (recovered.log_dir / file.parent.name / file.name).read_bytes()
    ]

    assert len(ours) > 200
    assert differing == []


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _differing(found: _Logs, expected: _Logs) -> list[tuple[Log, str]]:
    """Return the logs that differ, each with the first place: thousands of records make no readable diff."""
    return [
        (log, _first_difference(found.get(log, []), expected[log]))
        for log in expected
        if found.get(log) != expected[log]
    ]


def _first_difference(found: list[Consumed], expected: list[Consumed]) -> str:
    for one, other in zip(found, expected, strict=False):
        if one != other:
            return f"found {one}, expected {other}"
    return f"found {len(found)} records, expected {len(expected)}"


def _blank_append_times(logs: _Logs) -> _Logs:
    return {
        log: [each._replace(timestamp=0) if each.timestamp_type == LOG_APPEND_TIME else each for each in records]
        for log, records in logs.items()
    }


def _times_to_ask(logs: _Logs) -> Iterator[dict[Log, int]]:
    """Yield times to look up, one per log and turn: around its first, middle, last and largest."""
    times = {log: sorted({each.timestamp for each in records if each.timestamp > 0}) for log, records in logs.items()}
    for place in (0.0, 0.1, 0.5, 0.9, 1.0):
        for step in (-1, 0, 1):
            yield {
                log: (found[round(place * (len(found) - 1))] if found else _AFTER_MS) + step
                for log, found in times.items()
            }


def _first_at_or_after(records: list[Consumed], timestamp: int) -> int | None:
    return next((each.offset for each in records if each.timestamp >= timestamp), None)
