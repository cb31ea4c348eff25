"""Log directories on disks of their own that are unmounted, read-only or full, or that may not be entered."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sparklog.sink.opening.access import writing
from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.errors import LogDirOfflineError, StorageError
from tests.build.sink_store import contents, in_process, open_store, rows, stored_numbers
from tests.kill.loop_disk import LoopDisk
from tests.sparklog_command import Sparklog

_TOPICS = {"events": {"partitions": 2, "file.delete.delay.ms": 0}}
_NOBODY = 65534


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB, for `events-1`."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or _mount(folder).returncode:
        pytest.skip("FAILING DISKS WERE NOT TESTED: mounting a small tmpfs needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=False, capture_output=True)


def _mount(folder: Path) -> subprocess.CompletedProcess[bytes]:
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    return subprocess.run(command, check=False, capture_output=True)


def _remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)


@pytest.fixture
def store(memory_path: Path, disk: Path) -> Path:
    """A closed store: `events-0` in `logs`, `events-1` on the disk, ten records each."""
    with closing(_open(memory_path / "store", disk)) as writer:
        writer.append("query", 0, in_process(_rows(range(20))))
    return memory_path / "store"


def _open(store: Path, disk: Path) -> StoreWriter:
    return open_store(store, _TOPICS, topic="events", log_dirs=("logs", str(disk / "kafka")))


def _rows(values: range, partition: int | None = None) -> object:
    numbers = list(values)
    return rows(
        partition=[number % 2 if partition is None else partition for number in numbers],
        value=[str(number) for number in numbers],
    )


def test_sink_when_a_disk_becomes_read_only_then_its_logs_are_offline_until_it_is_not(
    store: Path, disk: Path, sparklog: Sparklog
) -> None:
    """Also under a running sink; readers read on."""
    with closing(_open(store, disk)) as writer:
        subprocess.run(["mount", "-o", "bind,ro", str(disk), str(disk)], check=True)  # a file of it is open for writing
        with pytest.raises(LogDirOfflineError, match=r"reason=is on a read-only filesystem logs=events-1"):
            writer.append("query", 1, in_process(_rows(range(20, 30))))
        writer.append("query", 1, in_process(_rows(range(20, 30), 0)))
    with (
        closing(_open(store, disk)) as writer,
        pytest.raises(LogDirOfflineError, match=r"reason=is on a read-only filesystem logs=events-1"),
    ):
        writer.append("query", 2, in_process(_rows(range(30, 40))))
    assert sparklog("read", store, "events:1").code == sparklog("verify", store).code == 0
    subprocess.run(["umount", str(disk)], check=True)

    with closing(_open(store, disk)) as writer:
        writer.append("query", 2, in_process(_rows(range(30, 40))))

    assert stored_numbers(store) == list(range(40))
    assert sparklog("verify", store).code == 0


def test_sink_when_a_disk_dies_then_its_logs_are_offline_and_those_of_others_are_written(
    memory_path: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """Every write to it is an I/O error from some moment on: the running sink says so, and so does the next one."""
    disk = LoopDisk(tmp_path)
    problem = disk.make()
    if problem is not None:
        pytest.skip(f"A DYING DISK WAS NOT TESTED: {problem}")
    store = memory_path / "store"
    try:
        with closing(_open(store, disk.folder)) as writer:
            writer.append("query", 0, in_process(_rows(range(20))))
            disk.cut_power()
            with pytest.raises(LogDirOfflineError, match=r"reason=.*(Input/output|read-only).* logs=events-1"):
                writer.append("query", 1, in_process(_rows(range(20, 30))))
            writer.append("query", 1, in_process(_rows(range(20, 30), 0)))
        with closing(_open(store, disk.folder)) as writer:
            with pytest.raises(LogDirOfflineError, match=r"logs=events-1"):
                writer.append("query", 2, in_process(_rows(range(30, 40), 1)))
            writer.append("query", 2, in_process(_rows(range(30, 40), 0)))
        disk.plug_in()

        with closing(_open(store, disk.folder)) as writer:
            writer.append("query", 3, in_process(_rows(range(40, 50))))

        assert stored_numbers(store) == list(range(50))
        assert sparklog("verify", store).code == 0
    finally:
        disk.remove()


def test_sink_when_a_disk_is_not_mounted_then_nothing_is_made_below_its_mount_point(
    store: Path, disk: Path, sparklog: Sparklog
) -> None:
    """Files there would be hidden once the disk is back."""
    subprocess.run(["umount", "-l", str(disk)], check=True)

    with closing(_open(store, disk)) as writer:
        writer.append("query", 1, in_process(_rows(range(20, 30), 0)))
        with pytest.raises(LogDirOfflineError, match=r"reason=does not exist logs=events-1"):
            writer.append("query", 2, in_process(_rows(range(30, 40))))
    with writing(store):
        pass
    for command in ("describe", "verify", "repair"):
        assert "does not exist" in sparklog(command, store, *(["--execute"] if command == "repair" else [])).out

    assert contents(disk) == {}
    assert os.listdir(disk) == []


def test_sink_when_a_disk_is_full_then_the_micro_batch_fails_and_the_next_one_may_not(store: Path, disk: Path) -> None:
    """A full disk is not offline: with room again the same writer goes on."""
    with closing(_open(store, disk)) as writer:
        (disk / "filler").write_bytes(bytes((os.statvfs(disk).f_bavail - 1) * 4096))
        big = rows(partition=[1] * 60, value=[os.urandom(1000) for _ in range(60)])
        with pytest.raises(StorageError, match=r"no space left on the disk") as refusal:
            writer.append("query", 1, in_process(big))
        assert not isinstance(refusal.value, LogDirOfflineError)
        writer.append("query", 1, in_process(_rows(range(20, 30), 0)))
        (disk / "filler").unlink()
        writer.append("query", 2, in_process(_rows(range(30, 40))))

    assert stored_numbers(store) == list(range(40))


def test_move_log_when_the_target_fills_up_while_it_is_copied_then_the_log_stays(
    store: Path, disk: Path, memory_path: Path, sparklog: Sparklog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody reserved the room that was there when it was looked at; nothing is left of the copy."""
    with closing(_open(store, disk)) as writer:
        big = rows(partition=[0] * 3000, value=[os.urandom(1000) for _ in range(3000)])
        writer.append("query", 1, in_process(big))
    (disk / "filler").write_bytes(bytes(2 << 20))
    monkeypatch.setattr("sparklog.sink.operations.move_log.check_rooms", lambda _needed: None)

    ran = sparklog("move-log", store, "events:0", "--to", disk / "kafka", "--execute")

    assert ran.code == 1
    assert "no space left on the disk" in ran.err
    assert sorted(path.name for path in (disk / "kafka").iterdir() if path.is_dir()) == ["events-1"]
    assert sparklog("verify", store).code == 0


def test_move_log_when_the_source_is_read_only_then_refused_and_named(
    store: Path, disk: Path, sparklog: Sparklog
) -> None:
    """Its old directory could not be set aside."""
    _remount(disk, "ro")

    ran = sparklog("move-log", store, "events:1", "--to", "logs", "--execute")

    assert ran.code == 1
    assert "reason=is on a read-only filesystem logs=events-1" in ran.err


def test_delete_topic_when_a_disk_is_away_then_its_part_goes_once_it_is_back(
    store: Path, disk: Path, sparklog: Sparklog
) -> None:
    """A new topic of the name is not mixed up with what comes back."""
    source = disk.with_name("source")
    source.mkdir()
    subprocess.run(["mount", "--bind", str(disk), str(source)], check=True)
    try:
        subprocess.run(["umount", str(disk)], check=True)
        ran = sparklog("delete-topic", store, "events", "--execute")
        assert (ran.code, "; 1 of them offline" in ran.out) == (0, True)
        with closing(open_store(store, _TOPICS, topic="events", log_dirs=("logs",))) as writer:
            writer.append("query", 1, in_process(_rows(range(100, 110))))
        subprocess.run(["mount", "--bind", str(source), str(disk)], check=True)
        assert (disk / "kafka" / "events-1").is_dir()

        with closing(_open(store, disk)) as writer:
            writer.append("query", 2, in_process(_rows(range(110, 120))))

        assert stored_numbers(store) == list(range(100, 120))
        assert [path.name for path in (disk / "kafka").iterdir() if path.is_dir()] == []
    finally:
        subprocess.run(["umount", str(source)], check=False)


def test_open_when_a_log_dir_may_not_be_entered_or_written_then_it_is_offline(tmp_path: Path) -> None:
    """Permissions count for everybody but root."""
    ran = subprocess.run(
        [sys.executable, "-c", _WITHOUT_PERMISSION, str(tmp_path)], check=False, capture_output=True, text=True
    )

    assert ran.stdout.split("\n") == ["0 True True", "1 True True", "done", ""], ran.stderr


_WITHOUT_PERMISSION = f"""
import os
import sys
from contextlib import closing
from pathlib import Path

import sparklog.storage_core.record.reading_kernels  # while it may still read their files
from sparklog.storage_core.errors import LogDirOfflineError
from tests.build.sink_store import in_process, open_store, rows

def opened(root):
    return open_store(root / "store", {{"t": {{"partitions": 2}}}}, topic="t", log_dirs=("logs", str(root / "disk")))

def write(root, batch_id, *partitions):
    with closing(opened(root)) as writer:
        writer.append("q", batch_id, in_process(rows(partition=partitions, value=["x"] * len(partitions))))

root = Path(sys.argv[1])
write(root / "warm", 0, 0, 1)  # from here on every module is loaded
if os.geteuid() == 0:
    for folder in (root, *root.parents):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(0o755)
    os.chown(root, {_NOBODY}, {_NOBODY})
    os.setegid({_NOBODY})
    os.seteuid({_NOBODY})
write(root / "cold", 0, 0, 1)
for number, (mode, reason) in enumerate(((0o000, "Permission denied"), (0o500, "may not be written"))):
    (root / "cold" / "disk").chmod(mode)
    write(root / "cold", 1 + number, 0)
    try:
        write(root / "cold", 9, 1)
    except LogDirOfflineError as error:
        print(number, reason in str(error), "logs=t-1" in str(error))
    (root / "cold" / "disk").chmod(0o700)
write(root / "cold", 9, 1)
print("done")
"""
