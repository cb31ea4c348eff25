"""Disks that fill up, may not grow, or can't be written at all."""

import contextlib
import os
import re
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sparklog.pipeline.control.read_tables import read_rows
from sparklog.pipeline.control.schemas import LEASES
from sparklog.pipeline.control.without_spark import update_rows
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.stage.report import StageReport
from sparklog.sink.stage.stage_rows import StagePlan
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import CommitStateUnknownError, LogStorageError, StorageError
from tests.build.broker_target import make_target
from tests.build.control_tables import put_rows
from tests.build.golden import copy_broker_root
from tests.build.retained_store import write_aged
from tests.build.sink_store import (
    contents,
    in_process,
    numbers,
    open_events,
    open_store,
    read_log,
    read_store,
    rows,
    stored_numbers,
)
from tests.faults.operations import OPERATIONS, operation_work
from tests.faults.works import Append
from tests.kill.loop_disk import unmount
from tests.sparklog_command import Sparklog

_IS_LONG = bool(os.environ.get("SPARKLOG_SOAK"))
_ROOM = range(0, 60) if _IS_LONG else (0, 3, 12)
"""Free pages: each write of a micro-batch, or of maintenance, is the first that finds none left."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    yield folder
    unmount(folder)


@pytest.fixture(autouse=True)
def clean_stderr(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Libraries print nothing of their own over a full disk: what is to be said is in the error."""
    yield
    assert capfd.readouterr().err == ""


def _fill(folder: Path) -> None:
    with (folder / "filler").open("wb", buffering=0) as file:
        for size in (1 << 16, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue


_BIG = [rows(key=[f"key-{n}" for n in range(100)], value=[bytes(1000) for _ in range(100)]) for _ in range(60)]


@pytest.mark.parametrize("where", ["staging", "logs", "ledger"])
def test_append_when_the_disk_fills_up_then_says_so_and_nothing_is_visible(
    small_disk: Path, memory_path: Path, where: str
) -> None:
    """Staging, placing and committing each give up cleanly; with room again the same writer goes on."""
    store = (memory_path if where == "logs" else small_disk) / "store"
    log_dir = str((small_disk if where == "logs" else memory_path) / "logs")

    def run_stage(plan: StagePlan) -> list[StageReport]:
        reports = in_process(_BIG[: 5 if where == "ledger" else 60])(plan)
        if where == "ledger":
            _fill(small_disk)
        return reports

    with closing(open_store(store, {"big": {"partitions": 2}}, topic="big", log_dirs=(log_dir,))) as writer:
        writer.append("query", 0, in_process(numbers(0, 10)))
        before, committed = contents(Path(log_dir)), read_store(store)

        with pytest.raises(StorageError, match=r"(?i)no space left") as refusal:
            writer.append("query", 1, run_stage)

        assert "\n" not in str(refusal.value)
        (small_disk / "filler").unlink(missing_ok=True)
        assert (contents(Path(log_dir)), read_store(store)) == (before, committed)
        assert contents(store / "staging") == {}
        assert writer.append("query", 1, in_process(numbers(10, 20))).records == 10
    assert stored_numbers(store) == list(range(20))


def test_open_when_the_disk_is_full_then_says_so_and_works_once_there_is_room(small_disk: Path) -> None:
    """A store that could not be made is no obstacle to making it later."""
    _fill(small_disk)
    with pytest.raises(LogStorageError, match=r"(?i)no space left"):
        open_events(small_disk / "store")
    (small_disk / "filler").unlink()

    with closing(open_events(small_disk / "store")) as writer:
        writer.append("query", 0, in_process(numbers(0, 10)))
    assert stored_numbers(small_disk / "store") == list(range(10))


def test_append_when_files_may_not_grow_then_fails_as_on_a_full_disk(memory_path: Path) -> None:
    """The first sign of a limit is a short write; needs no leave to mount anything."""
    with closing(open_store(memory_path / "store", {"big": {"partitions": 1}}, topic="big")) as writer:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
        try:
            with pytest.raises(StorageError, match=r"File too large"):
                writer.append("query", 0, in_process(_BIG[:5]))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        writer.append("query", 0, in_process(_BIG[:5]))

    assert len(read_log(memory_path / "store" / "logs" / "big-0")) == 500


def test_open_when_the_folder_is_read_only_then_says_so(small_disk: Path) -> None:
    """Nothing can be written, so nothing is."""
    with closing(open_events(small_disk / "store")) as writer:
        writer.append("query", 0, in_process(numbers(0, 10)))
    before = contents(small_disk)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)

    with pytest.raises(StorageError, match=r"Read-only file system: path=.*writer.lock"):
        open_events(small_disk / "store")

    assert contents(small_disk) == before


@pytest.mark.parametrize(("free_bytes", "code"), [(0, 1), (65_536, 0)])
def test_retain_when_the_disk_is_full_then_done_or_nothing_changed(
    small_disk: Path, sparklog: Sparklog, free_bytes: int, code: int
) -> None:
    """A full disk is when retention is called for: it needs room for locks and a commit, and says so without it."""
    store = write_aged(small_disk / "store", {"retention.bytes": 1200}, count=500)
    before = contents(store / "logs")
    _fill(small_disk)
    os.truncate(small_disk / "filler", (small_disk / "filler").stat().st_size - free_bytes)
    ran = sparklog("retain", store, "--execute")

    assert ran.code == code, ran.err
    assert ("no space left on the disk" in ran.err) == (code == 1)
    assert (contents(store / "logs") == before) == (code == 1)
    assert sparklog("verify", store).code == 0


_PAGE_BYTES = 4096


def _leave_room(folder: Path, pages: int) -> None:
    """Fill a disk but for so many pages."""
    free = os.statvfs(folder)
    (folder / "filler").write_bytes(bytes(max(free.f_bavail - pages, 0) * free.f_bsize))


def test_append_when_the_disk_is_full_at_any_of_its_writes_then_fails_as_a_whole_and_goes_on_later(
    small_disk: Path,
) -> None:
    """Whichever write meets the end of the disk: nothing of the micro-batch is visible, and it is there once later."""
    work, place = Append, small_disk / "copy"
    prepared = small_disk.parent / "prepared"
    prepared.mkdir()
    work.prepare(prepared)
    refused: list[str] = []
    found: list[str] | None
    for pages in range(400):
        shutil.rmtree(place, ignore_errors=True)
        job = work(Path(shutil.copytree(prepared, place)))
        job.arrange()
        _leave_room(small_disk, pages)
        try:
            for step in job.steps():
                step()
        except LogStorageError as error:
            refused.append(f"{pages}: {error}")
            found = [] if isinstance(error, CommitStateUnknownError) else job.problems_of_refused(0)
        else:
            found = None
        (small_disk / "filler").unlink()

        assert not found, (pages, refused[-1])
        assert job.finish() == [], pages
        if found is None:
            break

    assert found is None
    assert len(refused) > 2
    assert all("no space left" in each.lower() for each in refused)


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_when_the_disk_is_full_then_can_be_done_again_once_there_is_room(small_disk: Path, name: str) -> None:
    """Maintenance makes room, and does not need what it has not got: it is refused as a whole or ends well."""
    work = operation_work(name)
    prepared = small_disk.parent / "prepared"
    prepared.mkdir()
    work.prepare(prepared)
    for pages in _ROOM:
        shutil.rmtree(small_disk / "copy", ignore_errors=True)
        job = work(Path(shutil.copytree(prepared, small_disk / "copy")))
        job.arrange()
        _leave_room(small_disk, pages)
        with contextlib.suppress(LogStorageError):
            for step in job.steps():
                step()

        (small_disk / "filler").unlink()

        assert job.finish() == [], pages


def test_leases_when_the_disk_is_full_at_any_of_their_writes_then_one_error_of_ours(small_disk: Path) -> None:
    """A run that holds leases prolongs them on a full disk, too: that is refused as a whole, or done."""
    store, refused = small_disk / "store", list[str]()
    rows = [{"topic": "t", "partition": number, "owner": "me", "machine": "m"} for number in range(500)]
    times = {"epoch": 1, "acquired_ms": 0, "expires_ms": 0}
    put_rows(store, LEASES, [{**row, **times} for row in rows])
    for pages in range(60):
        _leave_room(small_disk, pages)
        try:
            is_done = update_rows(store, LEASES, {"expires_ms": pages + 1}, "me")
        except LogStorageError as error:
            refused.append(str(error))
            is_done = False
        (small_disk / "filler").unlink()

        assert {row["expires_ms"] for row in read_rows(store, LEASES)} == {pages + 1 if is_done else 0}
        if is_done:
            break

    assert is_done
    assert len(refused) > 2
    assert all("no space left" in each.lower() and "\n" not in each for each in refused)


def test_import_when_the_log_directories_share_a_disk_then_all_logs_need_room_on_it(
    small_disk: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """What each directory gets would fit, both together do not; said before anything is copied."""
    broker, store = copy_broker_root(tmp_path / "broker", "v2-segments"), small_disk / "store"
    for partition in range(1, 8):
        shutil.copytree(broker / "v2-segments-0", broker / f"v2-segments-{partition}")
    open_store(store, {"events": {"partitions": 2}}, topic="events", log_dirs=("logs", "more")).close()
    copied = (broker.rglob(f"*.{suffix}") for suffix in ("log", "index", "timeindex", "snapshot"))
    needed = sum(path.stat().st_size for found in copied for path in found)
    free = shutil.disk_usage(small_disk).free
    (small_disk / "filler").write_bytes(bytes(free - needed * 3 // 4))

    ran = sparklog("import", broker, store, "--copy")

    assert (ran.code, ran.out) == (1, "")
    assert f"no space left on the disk: log_dir={store / 'logs'} needed={needed} free=" in ran.err


def test_import_when_the_kernel_refuses_links_then_copies_need_room(
    small_disk: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """As between two mounts of one disk; a link of each log is tried, and no trial stays."""
    store, bound = small_disk / "store", tmp_path / "bound"
    copy_broker_root(small_disk / "broker", "v2-segments")
    bound.mkdir()
    subprocess.run(["mount", "--bind", small_disk, bound], check=True)
    needed = sum(path.stat().st_size for path in (small_disk / "broker").rglob("*.log"))
    (small_disk / "filler").write_bytes(bytes(shutil.disk_usage(small_disk).free - needed // 2))
    before = contents(small_disk)

    copied = sparklog("import", bound / "broker", store)
    shared = sparklog("import", small_disk / "broker", store)
    after = contents(small_disk)
    unmount(bound)

    assert copied.code == 1
    assert f"no space left on the disk: log_dir={store / 'logs'} needed=" in copied.err
    assert shared.code == 0, shared.err
    assert after == before


def test_mount_into_when_the_brokers_disk_has_no_room_then_said_before_anything_is_copied(
    small_disk: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """Bytes needed, with indexes, and free; where only small files find no room, what was copied goes again."""
    store = tmp_path / "store"
    with closing(open_events(store)) as writer:
        writer.append("q", 0, in_process(numbers(0, 4000)))
    states = Ledger.open(Store.find(store).ledger_path).states()
    ids = {log.topic: state.topic_id for log, state in states.items()}
    target = make_target(small_disk / "target", {"events": 2}, ids)
    needed = sum(path.stat().st_size for path in (store / "logs").rglob("*.log"))
    (small_disk / "filler").write_bytes(bytes(shutil.disk_usage(small_disk).free - needed // 2))
    before = contents(target)

    planned = sparklog("mount", store, "--into", target)
    with (small_disk / "filler").open("rb+") as file:
        file.truncate(file.seek(0, os.SEEK_END) - needed)
    executed = sparklog("mount", store, "--into", target, "--execute")

    assert (planned.code, executed.code) == (1, 1)
    found = re.search(f"no space left on the disk: log_dir={target} needed=([0-9]+) free=", planned.err)
    assert found is not None
    assert int(found[1]) > needed
    assert "no space left on the disk: path=" in executed.err
    assert contents(target, without=(".lock",)) == before
    assert [path.name for path in target.iterdir() if path.name.endswith("-delete")] == []


def test_mount_of_a_new_cluster_when_its_disk_has_no_room_then_said_before_anything_is_copied(
    small_disk: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """Each replica is a copy, with its indexes; a sink on the same disk goes on."""
    store, out = tmp_path / "store", small_disk / "out"
    with closing(open_events(store)) as writer:
        writer.append("q", 0, in_process(numbers(0, 4000)))
    copied = (path for suffix in ("log", "index", "timeindex") for path in (store / "logs").rglob(f"*.{suffix}"))
    active = [max(each.glob("*.log")) for each in (store / "logs").glob("events-*")]
    unused = [path.with_suffix(suffix) for path in active for suffix in (".index", ".timeindex")]
    needed = 2 * sum(path.stat().st_size for path in {*copied} - {*unused})
    (small_disk / "filler").write_bytes(bytes(shutil.disk_usage(small_disk).free - needed * 3 // 4))
    before = contents(small_disk)
    brokers = ("--broker", "1@localhost:9092", "--broker", "2@localhost:9094", "--replication-factor", 2)

    ran = sparklog("mount", store, "--new-cluster", "--out", out, *brokers, "--execute")

    assert ran.code == 1
    assert f"no space left on the disk: log_dir={out} needed={needed} free=" in ran.err
    assert contents(small_disk) == before
