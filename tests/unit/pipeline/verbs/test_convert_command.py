"""`sparklog convert`: what it writes, prints and refuses."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.storage_core.checkpoint.offset_checkpoint import parse_offset_checkpoint
from sparklog.storage_core.record.batch_scan import scan_batches
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.sink_store import contents, in_process, open_store, read_log, rows
from tests.sparklog_command import Sparklog

_GOLDEN = Path(__file__).resolve().parents[3] / "data" / "golden"


def _golden(target: Path, *cases: str) -> Path:
    """Copy golden logs into one folder of logs."""
    for case in cases:
        source = next(path for path in (_GOLDEN / case).iterdir() if path.is_dir())
        shutil.copytree(source, target / source.name)
    return target


def test_convert_when_folder_of_logs_then_writes_them_all_and_says_what_is_lost(
    sparklog: Sparklog, tmp_path: Path
) -> None:
    """A line per log, a line per loss, and every directory under its own name."""
    ran = sparklog(
        "convert", _golden(tmp_path / "in", "v2-headers", "v1-none"), "--to", "v1", "--out", tmp_path / "out"
    )

    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["v1-none-0", "v2-headers-0", "v2-headers-0"]
    assert "records lost their headers" in lines[2]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["v1-none-0", "v2-headers-0"]


def test_convert_when_json_asked_then_prints_one_object(sparklog: Sparklog, tmp_path: Path) -> None:
    """Every count is there, under its name."""
    source = _golden(tmp_path / "in", "v2-transactional")
    ran = sparklog("convert", source, "--to", "v0", "--out", tmp_path / "out", "--json")
    found = json.loads(ran.out)

    assert found["format"] == "v0"
    assert found["logs"][0]["log"] == "v2-transactional-0"
    assert found["logs"][0]["control_batches"] > 0


def test_convert_when_one_log_directory_given_then_out_holds_it(sparklog: Sparklog, tmp_path: Path) -> None:
    """A log directory keeps its name, which says its topic and partition."""
    source = _golden(tmp_path / "in", "v0-gzip") / "v0-gzip-0"
    assert sparklog("convert", source, "--to", "v2", "--out", tmp_path / "out").code == 0

    assert sparklog("verify", tmp_path / "out").code == 0
    assert len(read_log(tmp_path / "out" / "v0-gzip-0")) == 46


def test_convert_when_store_given_then_takes_what_is_committed(sparklog: Sparklog, tmp_path: Path) -> None:
    """Of a store the ledger says where each log ends."""
    store = tmp_path / "store"
    writer = open_store(store, {"t": {"partitions": 2, "batch.size": 200}}, topic="t")
    frame = rows(partition=[0, 1] * 20, value=[str(number) for number in range(40)])
    writer.append("q", 0, in_process(frame))
    writer.close()
    active = store / "logs" / "t-0" / "00000000000000000000.log"
    committed = active.read_bytes()
    with active.open("ab") as file:
        file.write(committed)
    (store / "writer.lock").write_text('{"pid": 1}')
    before = contents(store)
    ran = sparklog("convert", store, "--to", "v1", "--out", tmp_path / "out")

    assert ran.code == 0
    assert [record.value for record in read_log(tmp_path / "out" / "t-0")] == [b"%d" % n for n in range(0, 40, 2)]
    assert contents(store) == before


def test_convert_when_log_starts_inside_a_segment_then_checkpoint_says_so(sparklog: Sparklog, tmp_path: Path) -> None:
    """Records below the log's start stay in their segment, and stay deleted."""
    source = _golden(tmp_path / "in", "v2-deleted-records")
    (source / "log-start-offset-checkpoint").write_bytes(b"0\n1\nv2-deleted-records 0 70\n")
    assert sparklog("convert", source, "--to", "v1", "--out", tmp_path / "a").code == 0
    assert sparklog("convert", source / "v2-deleted-records-0", "--to", "v1", "--out", tmp_path / "b").code == 0

    for out in (tmp_path / "a", tmp_path / "b"):
        starts = parse_offset_checkpoint((out / "log-start-offset-checkpoint").read_bytes())
        assert starts == {TopicPartition("v2-deleted-records", 0): 70}


def test_convert_when_codec_given_then_rebuilt_batches_have_it(sparklog: Sparklog, tmp_path: Path) -> None:
    """Zstd can go down only under another codec; without one the error names file and offset, and nothing is left."""
    source = _golden(tmp_path / "in", "v2-zstd")
    refused = sparklog("convert", source, "--to", "v1", "--out", tmp_path / "out")
    assert refused.code == 1
    assert "00000000000000000000.log" in refused.err
    assert "offset=0" in refused.err
    assert [path.name for path in tmp_path.iterdir()] == ["in"]

    assert (
        sparklog("convert", source, "--to", "v1", "--out", tmp_path / "out", "--compression-type", "snappy").code == 0
    )
    scan = scan_batches((tmp_path / "out" / "v2-zstd-0" / "00000000000000000000.log").read_bytes())
    assert set((scan.attributes & 7).tolist()) == {2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["in", "--to", "v1", "--out", "in"], "lies inside"),
        (["in", "--to", "v1", "--out", "in/new"], "lies inside"),
        (["in", "--to", "v1", "--out", "full"], "not an empty folder"),
        (["in", "--to", "v1", "--out", "out", "--compression-type", "zstd"], "codec='zstd'"),
        (["in", "--to", "v3", "--out", "out"], "v3"),
        (["nowhere", "--to", "v1", "--out", "out"], "nowhere"),
    ],
)
def test_convert_when_use_is_wrong_then_says_so_and_writes_nothing(
    sparklog: Sparklog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    """Exit code 2, one line, and no file anywhere."""
    _golden(tmp_path / "in", "v1-none")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    before = contents(tmp_path)
    monkeypatch.chdir(tmp_path)
    ran = sparklog("convert", *arguments)

    assert ran.code == 2
    assert message in ran.err
    assert contents(tmp_path) == before


def test_convert_when_there_is_no_log_then_fails(sparklog: Sparklog, tmp_path: Path) -> None:
    """A folder without logs is no success."""
    (tmp_path / "in").mkdir()
    ran = sparklog("convert", tmp_path / "in", "--to", "v1", "--out", tmp_path / "out")

    assert (ran.code, ran.out) == (1, "")
    assert "no log" in ran.err


def test_convert_when_damage_is_met_then_leaves_nothing_behind(sparklog: Sparklog, tmp_path: Path) -> None:
    """The logs before the damaged one are not published either."""
    source = _golden(tmp_path / "in", "v1-none", "v2-none")
    path = source / "v2-none-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    ran = sparklog("convert", source, "--to", "v1", "--out", tmp_path / "out")

    assert ran.code == 1
    assert ran.err.startswith("error: batch has a wrong CRC")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_convert_when_killed_then_no_half_made_folder_has_the_name(sparklog: Sparklog, tmp_path: Path) -> None:
    """A kill in the middle leaves a folder of another name, which the next run clears."""
    source = _golden(tmp_path / "in", "v1-none", "v2-none")
    segment = source / "v2-none-0" / "00000000000000000000.log"
    kept = segment.read_bytes()
    segment.unlink()
    os.mkfifo(segment)  # the command waits here, with the first log written
    command = ["convert", str(source), "--to", "v2", "--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, "-m", "sparklog", *command], stdout=subprocess.PIPE, cwd=Path(__file__).resolve().parents[4]
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"v1-none-0: ")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out.unfinished"]

    segment.unlink()
    segment.write_bytes(kept)
    assert sparklog(*command).code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]
