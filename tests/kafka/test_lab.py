"""The lab judges itself: a broker's own files pass, damaged ones do not, and directories can change hands."""

import shutil
from pathlib import Path

import confluent_kafka
import pytest

from tests.kafka.broker import KafkaBroker, TopicSpec
from tests.kafka.console import console_lines, print_like_console
from tests.kafka.consumed import CREATE_TIME, Consumed, read_with_confluent, read_with_kafka_python
from tests.kafka.foreign import ForeignTopic, mount
from tests.kafka.judge import Verdict, judge_directory

pytestmark = pytest.mark.kafka

_RECORDS = [
    Consumed(
        offset,
        1_700_000_000_000 + offset * 10 if offset % 5 else 1_600_000_000_000,
        CREATE_TIME,
        (None, b"", f"kéy-{offset}".encode())[offset % 3],
        (b"value " * (offset % 7), None)[offset % 11 == 0],
        (("trace", b"\x00\xff"), ("trace", None), ("näme", b""))[: offset % 4],
    )
    for offset in range(300)
]


@pytest.fixture(scope="module")
def broker_log(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of several closed segments that the broker itself wrote."""
    config = {"internal.segment.bytes": 2000, "index.interval.bytes": 100, "retention.ms": -1}
    broker.create_topics(TopicSpec(name="lab.written", config=config))
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 3})
    for record in _RECORDS:
        producer.produce(
            "lab.written", record.value, record.key, timestamp=record.timestamp, headers=list(record.headers)
        )
        if record.offset % 6 == 5:
            producer.flush()
    producer.flush()
    broker.stop()
    copy = tmp_path_factory.mktemp("written") / "lab.written-0"
    shutil.copytree(broker.log_dir / "lab.written-0", copy)
    broker.start()
    return copy


def test_mount_when_a_broker_wrote_the_log_then_every_client_reads_it(broker: KafkaBroker, broker_log: Path) -> None:
    """Foreign directories are served as they are: what went in comes out of all three clients."""
    mount(broker, [ForeignTopic(name="lab.mounted", directories=[broker_log])])

    expected = {("lab.mounted", 0): _RECORDS}
    assert read_with_confluent(broker.bootstrap, {"lab.mounted": 1}) == expected
    assert read_with_kafka_python(broker.bootstrap, {"lab.mounted": 1}) == expected
    lines = console_lines(broker.toolbox, broker.bootstrap, ["lab.mounted"], len(_RECORDS))
    assert lines == print_like_console(expected)


def test_judge_when_a_broker_wrote_the_log_then_finds_nothing(broker: KafkaBroker, broker_log: Path) -> None:
    """A broker's own files pass, and each of them was looked at."""
    verdict = judge_directory(broker_log, broker.toolbox)

    segments = len(list(broker_log.glob("*.log")))
    assert segments > 5
    assert (verdict.findings, verdict.logs, verdict.indexes) == ([], segments, 2 * segments)
    assert verdict.records == len(_RECORDS)
    assert verdict.false_alarms == segments - 1


@pytest.mark.parametrize(
    ("pattern", "position", "complaint"),
    [
        ("*.log", -1, "invalid batch"),
        ("*.index", 3, "Mismatches in"),
        ("*.timeindex", 7, "timestamp mismatch"),
        ("*.timeindex", None, "CorruptIndexException"),
        ("*.log", None, "invalid bytes"),
    ],
)
def test_judge_when_a_file_is_damaged_then_says_so(
    broker: KafkaBroker, broker_log: Path, tmp_path: Path, pattern: str, position: int | None, complaint: str
) -> None:
    """One changed byte (or five lost ones) in the second segment is found, so silence means something."""
    damaged = tmp_path / "damaged-0"
    shutil.copytree(broker_log, damaged)
    victim = sorted(damaged.glob(pattern))[1]
    data = bytearray(victim.read_bytes())
    if position is None:
        del data[-5:]
    else:
        data[position] ^= 0x01
    victim.write_bytes(data)

    findings = judge_directory(damaged, broker.toolbox).findings

    assert any(complaint in finding for finding in findings), findings


def test_judge_when_there_is_no_segment_then_says_so(broker: KafkaBroker, tmp_path: Path) -> None:
    """An empty folder is not a clean one."""
    verdict: Verdict = judge_directory(tmp_path, broker.toolbox)

    assert verdict.findings == [f"there is no segment below {tmp_path}"]
