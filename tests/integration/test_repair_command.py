import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.storage_core.checkpoint.meta_properties import render_meta_properties
from sparklog.storage_core.log.read.log_reader import LogReader
from tests.build.damaged_store import DAMAGES, END, LOG, change, problems_of_repaired, segments, write_store
from tests.build.sink_store import contents, in_process, numbers, open_store, read_log, rows
from tests.build.written_log import Batch, write_log
from tests.sparklog_command import Sparklog

_ID = "q1Sh-9_ISia_zwGINzRvyQ"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound store."""
    return write_store(tmp_path_factory.mktemp("repair") / "store")


@pytest.fixture
def store(written: Path, memory_path: Path) -> Path:
    """A copy of the store that a test may damage."""
    return Path(shutil.copytree(written, memory_path / "store"))


@pytest.fixture
def log_dir(memory_path: Path) -> Path:
    """A broker's log directory with one log of three segments."""
    root = memory_path / "kafka"
    write_log(root / LOG, [[Batch([s * 1000 + b * 10, 7]) for b in range(5)] for s in range(3)])
    (root / "meta.properties").write_bytes(render_meta_properties(_ID, 1, _ID))
    return root


@pytest.mark.parametrize("damage", DAMAGES)
def test_repair_when_a_store_is_damaged_then_sound_and_nothing_silently_lost(
    sparklog: Sparklog, store: Path, damage: str
) -> None:
    """After a repair the store is sound, its ends are what they were, and each offset is there or recorded as lost."""
    DAMAGES[damage](store)

    ran = sparklog("repair", store, "--execute")

    assert problems_of_repaired(store) == []
    assert ran.code == 0, ran
    assert sparklog("repair", store).out == "nothing to repair\n"


@pytest.mark.parametrize("damage", DAMAGES)
def test_repair_when_a_store_was_repaired_then_the_sink_goes_on(store: Path, sparklog: Sparklog, damage: str) -> None:
    """A sink appends to what a repair left, and offsets go on where they ended."""
    DAMAGES[damage](store)
    sparklog("repair", store, "--execute")

    settings = {"partitions": 2, "segment.bytes": 600, "batch.size": 200, "index.interval.bytes": 100}
    writer = open_store(store, {"t": settings}, topic="t")
    writer.append("q", 4, in_process(numbers(END, END + 40)))
    writer.close()

    assert _new_values(store) == list(range(END, END + 40))
    assert sparklog("verify", store, "--deep").code == 0


def _new_values(store: Path) -> list[int]:
    values = [each.value or b"" for log in ("t-0", "t-1") for each in read_log(store / "logs" / log)]
    return sorted(int(value) for value in values if value.isdigit() and int(value) >= END)


def test_repair_when_a_disk_is_not_mounted_then_its_logs_are_left_alone(sparklog: Sparklog, memory_path: Path) -> None:
    """A root that is gone with all its logs is a lost disk, which may come back; nothing is made in its place."""
    disks = (memory_path / "a", memory_path / "b")
    log_dirs = tuple(str(disk) for disk in disks)
    writer = open_store(memory_path / "s", {"t": {"partitions": 2}}, topic="t", log_dirs=log_dirs)
    writer.append("q", 0, in_process(rows(partition=[0, 1], value=["x", "y"])))
    writer.close()
    disks[1].rename(memory_path / "away")

    ran = sparklog("repair", memory_path / "s", "--execute")

    assert ran.code == 1
    assert "not repaired: missing: t-1/t-1" in ran.out
    assert not disks[1].exists()
    (memory_path / "away").rename(disks[1])
    assert sparklog("verify", memory_path / "s").code == 0


def test_repair_when_a_file_cannot_be_read_then_its_log_is_left_alone(sparklog: Sparklog, store: Path) -> None:
    """What can't be read may be whole."""
    path = segments(store)[-1]
    content = path.read_bytes()
    path.unlink()
    path.symlink_to(path)  # reading it fails, whoever asks

    ran = sparklog("repair", store, "--execute")

    assert ran.code == 1
    path.unlink()
    path.write_bytes(content)
    assert sparklog("verify", store).code == 0


def test_repair_when_not_told_to_execute_then_nothing_is_changed(sparklog: Sparklog, store: Path) -> None:
    """A plan says what would be done, step by step, and touches nothing."""
    for name in ("payload", "index removed", "epochs changed", "leftover"):
        DAMAGES[name](store)
    before = contents(store)

    ran, as_json = sparklog("repair", store), sparklog("repair", store, "--json")

    assert contents(store) == before
    assert (ran.code, as_json.code) == (1, 1)
    assert ran.out.endswith("--execute does them\n")
    assert as_json.objects[-1]["steps"] == len(as_json.objects) - 1
    assert {"log", "file", "step"} == as_json.objects[0].keys()


def test_repair_when_store_is_sound_then_nothing_to_do(sparklog: Sparklog, store: Path) -> None:
    """A sound store is left as it is, once its log directories name it: a copy's name the other one."""
    open_store(store, {"t": {"partitions": 2}}, topic="t").close()
    before = contents(store, without=("writer.lock",))

    assert sparklog("repair", store) == (0, "nothing to repair\n", "")
    assert sparklog("repair", store, "--execute").code == 0
    after = contents(store, without=("writer.lock",))
    assert {name: data for name, data in after.items() if name in before} == before


def test_repair_when_a_writer_holds_the_store_then_refused(sparklog: Sparklog, store: Path) -> None:
    """A store is repaired under its writer lock."""
    DAMAGES["index removed"](store)
    writer = open_store(store, {"t": {"partitions": 2}}, topic="t")
    try:
        ran = sparklog("repair", store, "--execute")
    finally:
        writer.close()

    assert ran.code == 3
    assert "another writer holds the store" in ran.err


def test_repair_when_offsets_are_lost_then_describe_shows_them_for_ever(sparklog: Sparklog, store: Path) -> None:
    """What was lost is shown with its log, and verify knows it."""
    DAMAGES["payload"](store)
    sparklog("repair", store, "--execute")

    (described,) = sparklog("describe", store, "--json").objects
    lost = described["lost_ranges"][0]
    findings = sparklog("verify", store, "--json").objects

    assert (lost["topic"], lost["partition"], "wrong CRC" in lost["reason"]) == ("t", 0, True)
    assert f"lost: t-0 offsets {lost['first_offset']}..{lost['last_offset']}" in sparklog("describe", store).out
    assert [(each["kind"], each["first_offset"]) for each in findings[:-1]] == [("known", lost["first_offset"])]


@pytest.mark.parametrize("torn_bytes", [0, 40])
def test_repair_when_a_power_cut_tore_the_list_of_lost_offsets_then_they_are_written_down_again(
    sparklog: Sparklog, store: Path, torn_bytes: int
) -> None:
    """What nobody was told of refuses verify, which names the remedy, but never the repair itself."""
    DAMAGES["payload"](store)
    sparklog("repair", store, "--execute")
    (described,) = sparklog("describe", store, "--json").objects
    entry = max((store / "control" / "lost_ranges" / "_delta_log").glob("*.json"))
    entry.write_bytes(entry.read_bytes()[:torn_bytes])

    refused = sparklog("verify", store)
    repaired = sparklog("repair", store, "--execute")
    (again,) = sparklog("describe", store, "--json").objects

    assert (refused.code, "repair --execute" in refused.err) == (1, True)
    assert repaired.code == 0, repaired.err
    places = [
        [(lost["first_offset"], lost["last_offset"]) for lost in each["lost_ranges"]] for each in (described, again)
    ]
    assert places[0] == places[1]
    assert len(places[0]) == 1


def test_repair_when_bytes_are_left_out_then_kept_beside(sparklog: Sparklog, store: Path) -> None:
    """The damaged bytes are in a file named after their place."""
    path = segments(store)[1]
    DAMAGES["payload"](store)
    damaged = path.read_bytes()

    sparklog("repair", store, "--execute")

    (kept,) = (store / "control" / "cut" / LOG).iterdir()
    start, end = map(int, kept.name.removeprefix(f"{path.name}.").split("-"))
    assert kept.read_bytes() == damaged[start:end]
    assert end == len(damaged)


def test_repair_when_a_plain_log_has_a_torn_tail_then_cut_as_a_broker_does(sparklog: Sparklog, log_dir: Path) -> None:
    """A torn batch at the end goes, is kept beside, and nothing foreign lies in the log directory."""
    path = sorted((log_dir / LOG).glob("*.log"))[-1]
    size = path.stat().st_size
    change(path, lambda data: data.extend(data[:50]))

    assert sparklog("repair", log_dir, "--execute").code == 0

    assert path.stat().st_size == size
    assert [each.name for each in (log_dir.parent / "kafka-cut" / LOG).iterdir()] == [f"{path.name}.{size}-{size + 50}"]
    assert sorted(each.name for each in log_dir.iterdir()) == [".lock", "meta.properties", LOG]
    assert sparklog("verify", log_dir).code == 0


@pytest.mark.parametrize("whole", [True, False])
def test_repair_when_a_plain_log_is_damaged_in_the_middle_then_the_rest_stays(
    sparklog: Sparklog, log_dir: Path, whole: bool
) -> None:
    """One damaged batch costs its own records, not those behind it; a single log is repaired like a folder of logs."""
    path = sorted((log_dir / LOG).glob("*.log"))[1]
    change(path, lambda data: data.__setitem__(70, data[70] ^ 1))
    place = log_dir if whole else log_dir / LOG

    ran = sparklog("repair", place, "--execute", "--json")

    reader = LogReader(log_dir / LOG)
    there = [offset for batch in reader.read(0) for offset in batch.column("offset").to_pylist()]
    assert there == [offset for offset in range(30) if offset not in (10, 11)]
    assert ran.objects[-1]["kept_in"] == str(log_dir.parent / "kafka-cut")
    (lost,) = (log_dir.parent / "kafka-cut" / "lost-ranges.jsonl").read_text().splitlines()
    assert (json.loads(lost)["first_offset"], json.loads(lost)["last_offset"]) == (10, 11)
    assert sparklog("verify", place).out.startswith("known: ")


def test_repair_when_told_where_to_keep_then_there(sparklog: Sparklog, log_dir: Path, tmp_path: Path) -> None:
    """The folder of what is cut off can be named."""
    path = sorted((log_dir / LOG).glob("*.log"))[1]
    change(path, lambda data: data.__setitem__(70, data[70] ^ 1))

    assert sparklog("repair", log_dir, "--execute", "--keep-cut-in", tmp_path / "cut").code == 0

    assert sorted(each.name for each in (tmp_path / "cut").iterdir()) == ["lost-ranges.jsonl", LOG]
    assert not (log_dir.parent / "kafka-cut").exists()
    assert sparklog("verify", log_dir, "--keep-cut-in", tmp_path / "cut").code == 0


def test_repair_when_a_broker_runs_then_refused(sparklog: Sparklog, log_dir: Path) -> None:
    """A broker holds a lock on its log directory as long as it runs."""
    (log_dir / ".lock").touch()
    (log_dir / LOG / f"{0:020d}.index").unlink()
    program = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX); print(); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(log_dir / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        ran = sparklog("repair", log_dir, "--execute")
        assert holder.stdin is not None
        holder.stdin.close()

    assert ran.code == 3
    assert "a broker runs on this folder" in ran.err
    assert sparklog("repair", log_dir, "--execute").code == 0


def _swap_names(directory: Path, base: int, suffix: str) -> Iterator[Path]:
    for kind in (".log", ".index", ".timeindex"):
        yield directory / f"{base:020d}{kind}{suffix}"


@pytest.mark.parametrize("is_complete", [True, False])
def test_repair_when_a_replacement_was_interrupted_then_as_a_broker_loads_it(
    sparklog: Sparklog, log_dir: Path, is_complete: bool
) -> None:
    """Complete `.swap` files take the place of what they cover; where one is still `.cleaned`, all of them go."""
    directory = log_dir / LOG
    before = contents(directory)
    merged = b"".join((directory / f"{base:020d}.log").read_bytes() for base in (0, 10))
    log_swap, index_swap, time_swap = _swap_names(directory, 0, ".swap")
    log_swap.write_bytes(merged)
    if is_complete:
        index_swap.write_bytes(b"")
        time_swap.write_bytes((directory / f"{10:020d}.timeindex").read_bytes()[-12:])
    else:
        (directory / f"{0:020d}.index.cleaned").write_bytes(b"")

    assert sparklog("repair", log_dir, "--execute").code == 0

    if is_complete:
        assert (directory / f"{0:020d}.log").read_bytes() == merged
        assert not (directory / f"{10:020d}.log").exists()
    else:
        assert contents(directory) == before
    assert sparklog("verify", log_dir).code == 0


def test_repair_when_a_replacement_is_damaged_then_nothing_goes_for_it(sparklog: Sparklog, log_dir: Path) -> None:
    """Originals are given up only for a replacement whose every CRC is right."""
    directory = log_dir / LOG
    swap = directory / f"{0:020d}.log.swap"
    swap.write_bytes((directory / f"{0:020d}.log").read_bytes()[:-1])
    before = contents(directory)

    ran = sparklog("repair", log_dir, "--execute")

    assert (ran.code, contents(directory)) == (1, before)
    assert "replacement of segments is torn" in ran.err


@pytest.fixture
def transactional(memory_path: Path) -> Path:
    """A copy of a broker's log with aborted transactions."""
    source = Path(__file__).resolve().parent.parent / "data" / "golden" / "v2-transactional"
    return Path(shutil.copytree(source, memory_path / "golden"))


@pytest.mark.parametrize("damage", ["removed", "emptied", "changed"])
def test_repair_when_index_of_aborted_transactions_is_wrong_then_rebuilt_to_the_byte(
    sparklog: Sparklog, transactional: Path, damage: str
) -> None:
    """The index of aborted transactions comes back as the broker wrote it."""
    (path,) = transactional.rglob("*.txnindex")
    before = path.read_bytes()
    if damage == "removed":
        path.unlink()
    else:
        path.write_bytes(b"" if damage == "emptied" else before[:5] + b"\x01" + before[6:])

    assert sparklog("verify", transactional).code == 1
    assert sparklog("repair", transactional, "--execute").code == 0

    assert path.read_bytes() == before


def test_repair_when_epoch_file_is_wrong_then_the_batches_stay(sparklog: Sparklog, log_dir: Path) -> None:
    """A parseable but wrong epoch file contradicts every batch; then it goes, not the batches' epochs."""
    before = {path.name: path.read_bytes() for path in (log_dir / LOG).glob("*.log")}
    (log_dir / LOG / "leader-epoch-checkpoint").write_bytes(b"0\n1\n7 0\n")

    assert sparklog("repair", log_dir, "--execute").code == 0

    assert {path.name: path.read_bytes() for path in (log_dir / LOG).glob("*.log")} == before
    assert (log_dir.parent / "kafka-cut" / LOG / "leader-epoch-checkpoint").exists()


def test_repair_when_a_brokers_tail_was_cut_then_checkpoints_behind_it_are_sound(
    sparklog: Sparklog, log_dir: Path
) -> None:
    """A broker takes the log's end for a recovery point or high watermark behind it: that is no damage."""
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (log_dir / name).write_bytes(b"0\n1\nt 0 30\n")
    active = sorted((log_dir / LOG).glob("*.log"))[-1]
    active.write_bytes(active.read_bytes()[:-7])

    ran = sparklog("repair", log_dir, "--execute")

    assert (ran.code, ran.out.splitlines()[-1].partition(":")[0]) == (0, "sound")
    assert sparklog("verify", log_dir).code == 0


def test_repair_when_a_brokers_root_is_wrong_then_said(sparklog: Sparklog, log_dir: Path) -> None:
    """What no repair does anything about in a broker's root is named: the folder is not sound."""
    (log_dir / "log-start-offset-checkpoint").write_bytes(b"0\n1\nt 0 9000\n")
    (log_dir / "no-log").mkdir()

    ran = sparklog("repair", log_dir, "--execute")

    assert ran.code == 1
    assert [line.split(" ")[3] for line in ran.out.splitlines() if line.startswith("not repaired")] == [
        "kafka/no-log",
        "kafka/log-start-offset-checkpoint",
    ]
