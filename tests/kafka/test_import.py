"""A broker's logs in a store, maintained, mounted, and served again: Kafka's tools and clients find them unchanged."""

import base64
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import pytest

from sparklog.storage_core.checkpoint.partition_metadata import render_partition_metadata
from tests.build.golden import golden_logs, golden_root, write_cluster_metadata
from tests.build.sink_store import contents, log_directories
from tests.kafka.broker import KafkaBroker, TopicSpec, free_ports
from tests.kafka.consumed import Consumed, Log, read_with_confluent, read_with_kafka_python
from tests.kafka.judge import DUMP_CLASS, file_groups
from tests.kafka.ours import read_log
from tests.kafka.produced import ProducedRecord, produce_in_transactions, produce_with_confluent
from tests.kafka.toolbox import KafkaToolbox

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

_ROOT = Path(__file__).resolve().parents[2]
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_SMALL = {"internal.segment.bytes": 700, "index.interval.bytes": 300, "retention.ms": -1}
_TOPICS: dict[str, dict[str, object]] = {
    **{f"live.{codec}": {"compression.type": "uncompressed" if codec == "none" else codec} for codec in _CODECS},
    "live.append-time": {"message.timestamp.type": "LogAppendTime"},
    "live.transactions": {},
    "live.table": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.9, "segment.ms": 1000},
}
_START_MS = 1_700_000_000_000
_OF_SEGMENTS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


@dataclass(frozen=True)
class _Imported:
    """A store, and where its logs come from.

    Attributes:
        sources: the golden directories, and the copy of a live broker's root as a start would recover it.
        seen: what clients of the live broker found in its logs.
    """

    store: Path
    sources: dict[str, Path]
    seen: dict[Log, list[Consumed]]


def _sparklog(*arguments: object) -> str:
    command = [sys.executable, "-m", "sparklog", *map(str, arguments)]
    ran = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def _golden_broker(root: Path) -> Path:
    """Put every golden log into one root, each as a topic of its own that keeps its records."""
    root.mkdir()
    settings: dict[str, dict[str, str]] = {}
    shutil.copy2(golden_root() / "log-start-offset-checkpoint", root)
    for number, golden in enumerate(each.values[0] for each in golden_logs()):
        directory = Path(shutil.copytree(golden.directory, root / f"{golden.name}-0"))
        topic_id = base64.urlsafe_b64encode((number + 1).to_bytes(16)).decode().rstrip("=")
        (directory / "partition.metadata").write_bytes(render_partition_metadata(topic_id))
        is_compacted = "compact" in golden.name
        settings[golden.name] = {"cleanup.policy": "compact"} if is_compacted else {"retention.ms": "-1"}
    write_cluster_metadata(root, settings)
    (root / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    return root


def _produce(bootstrap: str, turn: int) -> None:
    numbers = range(turn * 20, (turn + 1) * 20)
    for topic in _TOPICS.keys() - {"live.transactions"}:
        records = [
            ProducedRecord(topic, 0, _START_MS + each, f"key-{each % 9}".encode(), b"value %d" % each, (("n", b"h"),))
            for each in numbers
        ]
        produce_with_confluent(bootstrap, records)
    ends = ("commit", "abort", "commit")
    produce_in_transactions(
        bootstrap,
        [
            ([ProducedRecord("live.transactions", 0, _START_MS + turn, b"k", b"%d" % each)], ends[each])
            for each in range(3)
        ],
    )


def _copy_beside(broker: KafkaBroker, copy: Path) -> None:
    """Copy the broker's root by `cp -a`, while records are produced."""
    has_ended = threading.Event()

    def go_on() -> None:
        turn = 3
        while not has_ended.is_set():
            _produce(broker.bootstrap, turn)
            turn += 1

    producing = threading.Thread(target=go_on)
    producing.start()
    try:
        subprocess.run(["cp", "-a", broker.log_dir, copy], check=True)
    finally:
        has_ended.set()
        producing.join()


@pytest.fixture(scope="module")
def imported(toolbox: KafkaToolbox, tmp_path_factory: pytest.TempPathFactory) -> _Imported:
    """Every golden directory, and a copy of a live broker's root, in one store."""
    folder = tmp_path_factory.mktemp("import")
    goldens, copy, store = _golden_broker(folder / "goldens"), folder / "copy", folder / "store"
    with KafkaBroker(toolbox, folder / "broker") as broker:
        broker.format()
        broker.start({"log.cleaner.backoff.ms": 3_600_000})  # the store is to compact
        broker.create_topics(*(TopicSpec(name=name, config={**_SMALL, **own}) for name, own in _TOPICS.items()))
        for turn in range(3):
            _produce(broker.bootstrap, turn)
        _copy_beside(broker, copy)
        seen = read_with_confluent(broker.bootstrap, dict.fromkeys(_TOPICS, 1))
        broker.stop()
    before = contents(copy)
    _sparklog("import", goldens, store, "--execute")
    _sparklog("import", copy, store, "--execute")
    assert contents(copy) == before
    _sparklog("recover", copy, "--execute")
    return _Imported(store, {"goldens": goldens, "copy": copy}, seen)


def _dumps(toolbox: KafkaToolbox, directories: dict[str, Path], without: set[Path]) -> dict[str, str]:
    """Return what Kafka's dump tool says of each file of segments, by log and name."""
    files = [
        path
        for directory in directories.values()
        for path in sorted(directory.iterdir())
        if path.suffix in _OF_SEGMENTS and path not in without
    ]
    found: dict[str, str] = {}
    for group in file_groups(files):
        arguments = ("--deep-iteration", "--print-data-log", "--files", ",".join(map(str, group)))
        text = toolbox.run(DUMP_CLASS, *arguments).stdout.decode(errors="replace")
        for part in text.split("Dumping ")[1:]:
            path, _, said = part.partition("\n")
            name = Path(path.strip())
            found[f"{name.parent.name}/{name.name}"] = said.replace(path.strip(), name.name)
    return found


def test_import_when_goldens_and_a_live_copy_are_taken_then_the_dump_tool_says_the_same_of_both(
    toolbox: KafkaToolbox, imported: _Imported
) -> None:
    """Batches, records, index entries, aborted transactions and producers; beyond that only an empty segment."""
    placed = log_directories(imported.store)
    sources = {name: each / name for each in imported.sources.values() for name in placed if (each / name).is_dir()}
    active = {max(directory.glob("*.log")) for directory in placed.values()}
    empty = {path.with_suffix(suffix) for path in active for suffix in (".log", ".index", ".timeindex")}
    assert all(path.stat().st_size == 0 for path in empty)

    of_store = _dumps(toolbox, placed, empty)
    of_source = _dumps(toolbox, sources, set())

    assert len(placed) == len(golden_logs()) + len(_TOPICS)
    assert {name: said for name, said in of_source.items() if not name.endswith(".snapshot")} == {
        name: said for name, said in of_store.items() if not name.endswith(".snapshot")
    }
    assert {name: of_source.get(name) for name in of_store if name.endswith(".snapshot")} == {
        name: said for name, said in of_store.items() if name.endswith(".snapshot")
    }


def test_import_when_a_broker_was_copied_while_it_ran_then_a_prefix_of_what_its_clients_read(
    imported: _Imported,
) -> None:
    """No record is missing before the end of any log."""
    placed = log_directories(imported.store)

    for (topic, partition), expected in imported.seen.items():
        found = read_log(placed[f"{topic}-{partition}"])
        assert len(found) >= (3 * 20 if topic != "live.transactions" else 6)
        assert found == expected[: len(found)]


@pytest.fixture(scope="module")
def served(toolbox: KafkaToolbox, imported: _Imported) -> Iterator[tuple[KafkaBroker, dict[Log, list[Consumed]]]]:
    """A broker on a mount of the store after maintenance, and what the store has then."""
    folder = imported.store.parent
    _sparklog("maintain", imported.store, "--execute")
    _sparklog("verify", imported.store, "--deep")
    expected: dict[Log, list[Consumed]] = {}
    for name, directory in log_directories(imported.store).items():
        start = 70 if name == "v2-deleted-records-0" else 0
        expected[name.rpartition("-")[0], 0] = [each for each in read_log(directory) if each.offset >= start]
    [port] = free_ports(1)
    _sparklog(
        "mount",
        imported.store,
        "--new-cluster",
        "--out",
        folder / "cluster",
        "--broker",
        f"1@127.0.0.1:{port}",
        "--execute",
    )
    with KafkaBroker(toolbox, folder / "served") as broker:
        broker.serve(folder / "cluster" / "server.properties", f"127.0.0.1:{port}")
        yield broker, expected
        broker.stop()


def _content(logs: dict[Log, list[Consumed]]) -> dict[Log, list[tuple[object, ...]]]:
    """Return the records without what clients say in place of a timestamp of v0."""
    return {log: [(each.offset, each.key, each.value, each.headers) for each in found] for log, found in logs.items()}


def test_broker_when_it_serves_what_was_imported_and_maintained_then_every_record_as_before(
    imported: _Imported, served: tuple[KafkaBroker, dict[Log, list[Consumed]]]
) -> None:
    """Of all formats and codecs, with two clients; a compacted topic has the last value of each key."""
    broker, expected = served
    counts = {topic: 1 for topic, _ in expected}

    assert _content(read_with_confluent(broker.bootstrap, counts)) == _content(expected)
    del counts["v0-lz4"]  # kafka-python needs one more library for the checksum of that time
    others = {log: found for log, found in expected.items() if log[0] in counts}
    assert _content(read_with_kafka_python(broker.bootstrap, counts)) == _content(others)
    for log, records in imported.seen.items():
        if log != ("live.table", 0):
            assert expected[log] == records[: len(expected[log])]
    table = expected["live.table", 0]
    seen = [each for each in imported.seen["live.table", 0] if each.offset <= table[-1].offset]
    assert {each.key: each.value for each in table} == {each.key: each.value for each in seen}


def test_broker_when_producers_go_on_behind_an_import_then_their_records_are_behind(
    served: tuple[KafkaBroker, dict[Log, list[Consumed]]],
) -> None:
    """Idempotent and transactional ones, behind logs of each format."""
    broker, expected = served
    topics = ("live.transactions", "live.zstd", "v0-gzip", "v2-idempotent")
    ends = dict[str, int | None]()
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for topic in topics:
        producer.produce(
            topic, b"new", partition=0, on_delivery=lambda _, each: ends.update({str(each.topic()): each.offset()})
        )
    assert producer.flush(60) == 0
    del producer
    produce_in_transactions(broker.bootstrap, [([ProducedRecord("live.lz4", 0, _START_MS, b"k", b"new")], "commit")])

    found = read_with_confluent(broker.bootstrap, {topic: 1 for topic, _ in expected}, "read_uncommitted")

    assert all(found[topic, 0][-1].value == b"new" for topic in (*topics, "live.lz4"))
    assert {topic: (end or 0) > expected[topic, 0][-1].offset for topic, end in ends.items()} == dict.fromkeys(
        topics, True
    )


def test_broker_when_it_goes_on_with_what_was_imported_then_the_store_keeps_its_bytes(
    toolbox: KafkaToolbox, imported: _Imported, tmp_path: Path
) -> None:
    """Closed segments are one file under two names: the broker appends, rolls, deletes and compacts, and cuts none."""
    broker = KafkaBroker(toolbox, tmp_path)
    shutil.copytree(imported.sources["copy"], broker.log_dir, copy_function=os.link)
    (broker.log_dir / ".lock").unlink()
    before = contents(imported.store, without=("writer.lock", "maintenance.lock"))

    with broker:
        broker.start()
        _produce(broker.bootstrap, 1000)
        broker.kill()

    assert contents(imported.store, without=("writer.lock", "maintenance.lock")) == before
