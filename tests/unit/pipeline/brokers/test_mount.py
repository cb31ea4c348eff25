"""`sparklog mount`: what it plans, makes and refuses; brokers judge it in `tests/kafka/test_mount.py`."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from sparklog.sink.ledger.lost_ranges import LostRange, LostRangeTable
from sparklog.sink.store.store_folder import random_id
from sparklog.storage_core.kraft.group_offsets import GroupOffset, offsets_partition
from tests.build.sink_store import (
    contents,
    in_process,
    log_directories,
    numbers,
    open_events,
    open_store,
    read_store,
    rows,
)
from tests.plain.model_source import ModelLog, ModelSource, model_mirror
from tests.sparklog_command import Sparklog


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A closed store of one log in several segments."""
    path = tmp_path / "store"
    with closing(open_events(path)) as writer:
        for turn in range(4):
            writer.append("q", turn, in_process(numbers(turn * 40, (turn + 1) * 40)))
    return path


def test_mount_when_it_is_not_executed_then_a_plan_and_nothing_is_made(
    store: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """Topic, partitions, offsets and bytes; the folder is not there."""
    before = contents(store)

    ran = sparklog("mount", store, "--new-cluster", "--out", tmp_path / "out")

    assert ran.code == 0
    assert "160 offsets" in ran.out
    assert "--execute" in ran.out
    assert not (tmp_path / "out").exists()
    assert contents(store) == before


def test_mount_when_it_is_executed_then_log_directories_of_the_committed_records(
    store: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """The same bytes; the active segment is a file of its own; no marker of a clean end."""
    ran = sparklog("mount", store, "--new-cluster", "--out", tmp_path / "out", "--execute", "--json")

    data = tmp_path / "out" / "data"
    assert ran.code == 0, ran.err
    assert ran.objects[0]["executed"] is True
    expected = read_store(store)
    for name, directory in log_directories(store).items():
        segments = sorted(directory.glob("*.log"))
        placed = [data / name / each.name for each in segments]
        assert [each.read_bytes() for each in placed] == [each.read_bytes() for each in segments]
        assert not placed[-1].samefile(segments[-1])
        assert expected[name]
    assert not (data / ".kafka_cleanshutdown").exists()
    assert sparklog("verify", data).code == 0


def test_mount_when_a_writer_is_at_work_then_what_it_has_committed(
    store: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """Bytes that a writer appended and did not commit are left out."""
    with closing(open_events(store)) as writer:
        writer.append("q", 4, in_process(numbers(160, 200)))
        active = sorted(log_directories(store)["events-0"].glob("*.log"))[-1]
        with active.open("ab") as file:
            file.write(b"not committed")
        ran = sparklog("mount", store, "--new-cluster", "--out", tmp_path / "out", "--execute")
        with active.open("ab") as file:
            file.truncate(file.tell() - len(b"not committed"))

    assert ran.code == 0, ran.err
    assert "200 offsets" in ran.out
    assert sparklog("verify", tmp_path / "out" / "data").code == 0


def test_mount_when_the_folder_is_in_use_then_refused_and_kept(store: Path, tmp_path: Path, sparklog: Sparklog) -> None:
    """A broker's directory is never written over."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "meta.properties").write_text("version=1\n")

    ran = sparklog("mount", store, "--new-cluster", "--out", out, "--execute")

    assert ran.code == 2
    assert "not an empty folder" in ran.err
    assert contents(out) == {"meta.properties": b"version=1\n"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--topics", "other"), "no topic to mount: topics=other known=events"),
        (("--topics", "("), "no regular expression: topics=("),
        (("--broker", "localhost:9092"), "name a broker as ID@HOST:PORT: broker=localhost:9092"),
        (("--replication-factor", "2"), "the replication factor is outside 1..1"),
        (("--broker", "9999999999@h:1"), "a node id is outside"),
    ],
)
def test_mount_when_an_option_can_not_be_met_then_said_in_one_line(
    store: Path, tmp_path: Path, sparklog: Sparklog, arguments: tuple[str, str], message: str
) -> None:
    """Nothing is made."""
    ran = sparklog("mount", store, "--new-cluster", "--out", tmp_path / "out", *arguments, "--execute")

    assert ran.code in (1, 2)
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_mount_when_replicas_are_assigned_then_each_broker_has_its_own_and_the_only_ones_are_links(
    tmp_path: Path, sparklog: Sparklog
) -> None:
    """A file as for kafka-reassign-partitions."""
    store, out = tmp_path / "store", tmp_path / "out"
    topics = {"events": {"partitions": 2, "segment.bytes": 600, "batch.size": 200}}
    with closing(open_store(store, topics=topics, topic="events")) as writer:
        writer.append("q", 0, in_process(numbers(0, 300)))
    _reassign(tmp_path, {0: [2, 1], 1: [2]})
    brokers = ("--broker", "1@localhost:9010", "--broker", "2@localhost:9020")

    ran = sparklog("mount", store, "--new-cluster", "--out", out, *brokers, *_given(tmp_path), "--execute")

    assert ran.code == 0, ran.err
    data = {node: out / f"broker-{node}" / "data" for node in (1, 2)}
    logs = {node: sorted(each.name for each in folder.iterdir() if each.is_dir()) for node, folder in data.items()}
    assert logs == {1: ["events-0"], 2: ["events-0", "events-1"]}
    name = f"{0:020}.log"
    for log, is_link in (("events-0", False), ("events-1", True)):
        assert (store / "logs" / log / name).samefile(data[2] / log / name) == is_link


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "another form than"),
        ({"version": 2, "partitions": []}, "version is 2, not 1"),
        ({"partitions": [{"topic": "events", "partition": "0", "replicas": [1]}]}, "'0' is no integer"),
        ({"partitions": [{"topic": "events", "partition": 0, "replicas": [1]}] * 2}, "names a partition twice: "),
        ({"partitions": [{"topic": "events", "partition": 0, "replicas": [7]}]}, "events-0 replicas=[7] brokers=[1]"),
        ({"partitions": [{"topic": "evnts", "partition": 0, "replicas": [1]}]}, "that are not mounted: evnts-0"),
    ],
)
@pytest.mark.parametrize("way", [(), ("--execute",)])
def test_mount_when_a_file_of_reassignments_is_wrong_then_said_and_nothing_is_made(
    store: Path, tmp_path: Path, sparklog: Sparklog, content: object, message: str, way: tuple[str, ...]
) -> None:
    """A plan says so, too."""
    (tmp_path / "r.json").write_text(json.dumps(content))

    ran = sparklog("mount", store, "--new-cluster", "--out", tmp_path / "out", *_given(tmp_path), *way)

    assert ran.code == 2
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def _reassign(folder: Path, replicas: dict[int, list[int]]) -> None:
    entries = [{"topic": "events", "partition": number, "replicas": nodes} for number, nodes in replicas.items()]
    (folder / "r.json").write_text(json.dumps({"version": 1, "partitions": entries}))


def _given(folder: Path) -> tuple[str, Path]:
    return "--reassignment-json-file", folder / "r.json"


def test_mount_when_a_repair_lost_offsets_then_refused_unless_gaps_are_allowed(
    store: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """The log and its first lost offset are named."""
    lost = LostRange(topic="events", partition=0, first_offset=7, last_offset=9, file="x.log", reason="crc", found_ms=1)
    LostRangeTable(store / "control" / "lost_ranges").add([lost])

    refused = sparklog("mount", store, "--new-cluster", "--out", tmp_path / "out", "--execute")
    allowed = sparklog("mount", store, "--new-cluster", "--out", tmp_path / "out", "--allow-gaps", "--execute")

    assert refused.code == 2
    assert "events:0 from offset 7" in refused.err
    assert allowed.code == 0, allowed.err


def test_mount_when_retention_would_delete_what_is_mounted_then_a_warning_with_the_setting(
    tmp_path: Path, sparklog: Sparklog
) -> None:
    """Kafka's default of seven days is in force, and the records are older."""
    path = tmp_path / "store"
    with closing(open_events(path)) as writer:
        writer.append("q", 0, in_process(rows(value=["old"], timestamp=[1_700_000_000_000], partition=[0])))

    ran = sparklog("mount", path, "--new-cluster", "--out", tmp_path / "out", "--json")

    (warning,) = json.loads(ran.out)["warnings"]
    assert warning.startswith("warning: events-0: the brokers will delete 1 segments")
    assert "retention.ms" in warning


def test_mount_when_the_folder_lies_in_the_store_then_refused(store: Path, sparklog: Sparklog) -> None:
    """The next opening of the store would remove it, or take it for a log."""
    for out in (store / "staging" / "out", store / "logs" / "new-1", store.parent):
        ran = sparklog("mount", store, "--new-cluster", "--out", out)

        assert ran.code == 2
        assert "lie in each other" in ran.err


def test_mount_when_a_partition_has_no_record_then_its_log_is_empty(tmp_path: Path, sparklog: Sparklog) -> None:
    """A log of preserved offsets has no file until its first record."""
    path = tmp_path / "store"
    with closing(open_store(path, {"t": {"partitions": 2}}, topic="t", offsets="preserved")) as writer:
        writer.append("q", 0, in_process(rows(value=["v"], partition=[0], offset=[7])))

    ran = sparklog("mount", path, "--new-cluster", "--out", tmp_path / "out", "--execute")

    assert ran.code == 0, ran.err
    assert (tmp_path / "out" / "data" / "t-1" / "partition.metadata").exists()


def test_mount_when_a_log_is_damaged_then_refused_and_nothing_is_left(
    store: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """The file of the store is named."""
    first = sorted(log_directories(store)["events-0"].glob("*.log"))[0]
    data = bytearray(first.read_bytes())
    data[100] ^= 1
    first.write_bytes(data)

    ran = sparklog("mount", store, "--new-cluster", "--out", tmp_path / "out", "--execute")

    assert ran.code == 1
    assert "damaged" in ran.err
    assert sorted(each.name for each in tmp_path.iterdir()) == ["store"]


def test_mount_when_a_replacement_of_segments_is_not_finished_then_refused(
    store: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """Its records are under another name: they would be left out."""
    first = sorted(log_directories(store)["events-0"].glob("*.log"))[0]
    first.rename(first.with_name(first.name + ".swap"))

    ran = sparklog("mount", store, "--new-cluster", "--out", tmp_path / "out", "--execute")

    assert ran.code == 1
    assert "not finished" in ran.err
    assert not (tmp_path / "out").exists()


def test_mount_when_it_is_refused_then_the_store_has_no_mark_of_a_crash(
    store: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """It changes nothing in the store."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "file").touch()

    assert sparklog("mount", store, "--new-cluster", "--out", out, "--execute").code == 2

    assert (store / "maintenance.lock").read_bytes() == b""


def test_mount_when_a_mirror_has_offsets_of_groups_then_the_cluster_has_those_of_its_logs(
    memory_path: Path, sparklog: Sparklog
) -> None:
    """In the partition of `__consumer_offsets` that is the group's; those that would skip records are listed."""
    store, out, log = memory_path / "store", memory_path / "out", ModelLog([0, 1, 2], end=3)
    groups = [GroupOffset(group=f"g{offset}", topic="t", partition=0, offset=offset, metadata="m") for offset in (2, 4)]
    with closing(model_mirror(store, ModelSource({"t": random_id()}, {("t", 0): log}, groups=groups))) as mirror:
        mirror.advance()

    ran = sparklog("mount", store, "--new-cluster", "--out", out, "--execute")

    assert ran.code == 0, ran.err
    assert "consumer groups: 1, 1 offsets" in ran.out
    assert "warning: not given to its group: g4: t-0 offset 4 is above the log's end 3" in ran.out
    made = sorted((out / "data").glob("__consumer_offsets-*"))
    assert len(made) == 50
    sizes = {each.name: (each / f"{0:020}.log").stat().st_size for each in made}
    assert [name for name, size in sizes.items() if size] == [f"__consumer_offsets-{offsets_partition('g2')}"]
    assert b"__consumer_offsets" in (out / "data" / "bootstrap.checkpoint").read_bytes()
