"""Loading of log directories: a real broker's start and ours make the same of them."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparklog.pipeline.verbs.recover import RecoverOptions, execute_and_close
from sparklog.storage_core.checkpoint.leader_epochs import parse_leader_epochs
from sparklog.storage_core.checkpoint.offset_checkpoint import parse_offset_checkpoint, render_offset_checkpoint
from sparklog.storage_core.checkpoint.producer_snapshot import ProducerState, parse_producer_snapshot
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.log.load.load_log import LoadedLog
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.topic_partition import TopicPartition
from tests.kafka.broker import KafkaBroker, TopicSpec
from tests.kafka.consumed import CREATE_TIME, Consumed, read_with_confluent
from tests.kafka.load_cases import CLEAN_CASES, UNCLEAN_CASES, LoadCase
from tests.kafka.ours import read_log
from tests.kafka.toolbox import KafkaToolbox

pytestmark = pytest.mark.kafka

_INTERVAL_BYTES = 200
_CONFIG = {"retention.ms": -1, "index.interval.bytes": _INTERVAL_BYTES, "message.timestamp.before.max.ms": 2**63 - 1}
_SEGMENT_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
_MARKER = ".kafka_cleanshutdown"


@dataclass(frozen=True)
class Loaded:
    """What both made of the same directories.

    Attributes:
        brokers, ours: roots, after a clean shutdown.
        logs: ours, by topic.
        read: by a client from the broker, by topic; behind the second start also from what we had loaded before.
        complaints: of the broker's start.
    """

    brokers: Path
    ours: Path
    logs: dict[str, LoadedLog]
    read: dict[str, list[Consumed]]
    complaints: list[str]


def _topic(name: str, kind: str) -> str:
    return f"{kind}." + "".join(letter if letter.isalnum() else "." for letter in name)


@pytest.fixture(scope="module")
def started(toolbox: KafkaToolbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker of its own, stopped, with a topic for each case."""
    with KafkaBroker(toolbox, tmp_path_factory.mktemp("loading")) as broker:
        broker.format()
        broker.start()
        topics = [_topic(name, kind) for kind, cases in _KINDS.items() for name in cases]
        broker.create_topics(*(TopicSpec(name=topic, config=_CONFIG) for topic in topics))
        broker.stop()
        yield broker


_KINDS: Mapping[str, Mapping[str, LoadCase]] = {"unclean": UNCLEAN_CASES, "clean": CLEAN_CASES}


@pytest.fixture(scope="module")
def unclean(started: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """Directories that both loaded without the marker of a clean shutdown."""
    return _load(started, "unclean", tmp_path_factory.mktemp("unclean"))


@pytest.fixture(scope="module")
def clean(started: KafkaBroker, unclean: Loaded, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """Directories that both loaded with the marker, at a start that also finds what we made of the others."""
    for topic in unclean.logs:
        _put(unclean.ours / f"{topic}-0", started.log_dir / f"{topic}-0")
    return _load(started, "clean", tmp_path_factory.mktemp("clean"), tuple(unclean.read))


def _load(broker: KafkaBroker, kind: str, folder: Path, carried: tuple[str, ...] = ()) -> Loaded:
    """Put the cases into a stopped broker's root, copy that, and let both load and close their own.

    Args:
        broker: the stopped broker.
        kind: of the cases.
        folder: for what is written.
        carried: further topics to read.
    """
    cases = {_topic(name, kind): case for name, case in _KINDS[kind].items()}
    points, starts = (_offsets(broker.log_dir / f"{name}-checkpoint") for name in _CHECKPOINTS)
    for topic, case in cases.items():
        log = TopicPartition(topic, 0)
        _put(case.write(folder / topic / log.directory_name), broker.log_dir / log.directory_name)
        for offsets, offset in ((points, case.recovery_point), (starts, case.log_start_offset)):
            offsets.pop(log, None)
            if offset is not None:
                offsets[log] = offset
    for name, offsets in zip(_CHECKPOINTS, (points, starts), strict=True):
        (broker.log_dir / f"{name}-checkpoint").write_bytes(render_offset_checkpoint(offsets))
    if kind == "unclean":
        broker.forget_clean_shutdown()
    assert (broker.log_dir / _MARKER).exists() == (kind == "clean")
    ours = Path(shutil.copytree(broker.log_dir, folder / "ours"))
    result = execute_and_close([ours], RecoverOptions(index_interval_bytes=_INTERVAL_BYTES), SystemClock())
    broker.start()
    readable = [*carried, *(topic for topic, case in cases.items() if case.is_readable)]
    read = read_with_confluent(broker.bootstrap, dict.fromkeys(readable, 1))
    complaints = broker.complaints()
    broker.stop()
    brokers = Path(shutil.copytree(broker.log_dir, folder / "brokers"))
    logs = {each.log.topic: each for each in result.logs if each.log.topic in cases}
    return Loaded(brokers, ours, logs, {topic: records for (topic, _), records in read.items()}, complaints)


_CHECKPOINTS = ("recovery-point-offset", "log-start-offset")


def _offsets(path: Path) -> dict[TopicPartition, int]:
    return dict(parse_offset_checkpoint(path.read_bytes()))


def _put(source: Path, target: Path) -> None:
    for each in target.iterdir():
        if each.name != "partition.metadata":
            each.unlink()
    for each in source.iterdir():
        shutil.copy2(each, target / each.name)


def _segments(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name.endswith(_SEGMENT_SUFFIXES)}


def _snapshots(directory: Path) -> dict[str, set[ProducerState]]:
    return {path.name: set(parse_producer_snapshot(path.read_bytes())) for path in directory.glob("*.snapshot")}


@pytest.fixture
def loaded(request: pytest.FixtureRequest, kind: str) -> Loaded:
    """Both roots of a kind."""
    found: Loaded = request.getfixturevalue(kind)
    return found


_EVERY = [(kind, name) for kind, cases in _KINDS.items() for name in cases]


@pytest.mark.parametrize(("kind", "name"), _EVERY)
def test_load_when_a_broker_loads_the_same_then_segments_are_the_same(loaded: Loaded, kind: str, name: str) -> None:
    """The same files, the same bytes: logs, offset, time and transaction indexes."""
    directory = f"{_topic(name, kind)}-0"

    assert _segments(loaded.ours / directory) == _segments(loaded.brokers / directory)


@pytest.mark.parametrize(("kind", "name"), _EVERY)
def test_load_when_a_broker_loads_the_same_then_snapshots_say_the_same(loaded: Loaded, kind: str, name: str) -> None:
    """Snapshots at the same offsets, with the same producers in them."""
    directory = f"{_topic(name, kind)}-0"

    assert _snapshots(loaded.ours / directory) == _snapshots(loaded.brokers / directory)


@pytest.mark.parametrize(("kind", "name"), _EVERY)
def test_load_when_a_broker_loads_the_same_then_offsets_are_the_same(loaded: Loaded, kind: str, name: str) -> None:
    """Where the log starts and ends, as the checkpoints of both say after a clean shutdown."""
    log = TopicPartition(_topic(name, kind), 0)

    for checkpoint in _CHECKPOINTS:
        ours, brokers = (_offsets(root / f"{checkpoint}-checkpoint") for root in (loaded.ours, loaded.brokers))
        assert ours.get(log) == brokers.get(log), checkpoint


@pytest.mark.parametrize(("kind", "name"), [each for each in _EVERY if _KINDS[each[0]][each[1]].is_readable])
def test_load_when_a_broker_loads_the_same_then_records_are_the_same(loaded: Loaded, kind: str, name: str) -> None:
    """What a client reads from the broker is what our reader finds in our copy."""
    topic = _topic(name, kind)
    log = loaded.logs[topic]

    ours = [
        each._replace(timestamp_type=max(each.timestamp_type, CREATE_TIME))  # v0 has none, which no client tells
        for each in read_log(loaded.ours / f"{topic}-0")
        if each.offset >= log.log_start_offset
    ]
    assert loaded.read[topic] == ours
    assert LogReader(loaded.ours / f"{topic}-0").log_end_offset == log.log_end_offset


@pytest.mark.parametrize(("kind", "name"), _EVERY)
def test_load_when_a_broker_loads_the_same_then_epochs_are_the_same(loaded: Loaded, kind: str, name: str) -> None:
    """The broker's own, new epoch aside, which starts at the log's end."""
    topic = _topic(name, kind)
    end = loaded.logs[topic].log_end_offset
    epochs = [_epochs(root / f"{topic}-0") for root in (loaded.ours, loaded.brokers)]

    ours, brokers = ([each for each in entries if each[1] < end] for entries in epochs)
    assert ours == brokers


def _epochs(directory: Path) -> list[tuple[int, int]]:
    path = directory / "leader-epoch-checkpoint"
    return parse_leader_epochs(path.read_bytes()) if path.exists() else []


def test_load_when_done_by_us_then_a_broker_takes_it_on_trust(unclean: Loaded, clean: Loaded) -> None:
    """With the marker, it starts on what we recovered without a word, and a client reads the same records."""
    assert {topic: clean.read[topic] for topic in unclean.read} == unclean.read
    assert [line for line in clean.complaints if "unclean." in line] == []
