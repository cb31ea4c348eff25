"""A log directory that fails takes its own logs offline, and no others."""

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sparklog.pipeline.places.store_view import open_logs
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.opening.access import maintaining, writing
from sparklog.sink.stage.report import StageReport
from sparklog.sink.stage.stage_rows import StagePlan
from sparklog.sink.store.log_dirs import check_log_dirs
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.checkpoint.meta_properties import render_meta_properties
from sparklog.storage_core.checkpoint.offset_checkpoint import parse_offset_checkpoint
from sparklog.storage_core.errors import CorruptFileError, InvalidConfigError, LogDirOfflineError, StorageError
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import contents, in_process, open_store, read_log, rows, stored_numbers

_TOPICS = {"events": {"partitions": 2, "segment.bytes": 600, "batch.size": 200}}
_DISK = "disk"


@pytest.fixture
def store(memory_path: Path) -> Path:
    """A closed store: `events-0` in `logs`, `events-1` on a disk, 50 records each."""
    with closing(_open(memory_path / "store")) as writer:
        writer.append("query", 0, _to(0, range(50)))
        writer.append("query", 1, _to(1, range(50, 100)))
    return memory_path / "store"


def _open(store: Path, **options: Any) -> StoreWriter:
    return open_store(store, _TOPICS, topic="events", log_dirs=("logs", str(store.parent / _DISK)), **options)


def _to(partition: int, values: range) -> Callable[[StagePlan], list[StageReport]]:
    return in_process(rows(partition=[partition] * len(values), value=[str(n) for n in values]))


def _disk(store: Path) -> Path:
    return store.parent / _DISK


def _gone(disk: Path) -> None:
    disk.rename(disk.with_name("unplugged"))


def _unmounted(disk: Path) -> None:
    _gone(disk)
    disk.mkdir()


def _file(disk: Path) -> None:
    _gone(disk)
    disk.write_text("")


def _anothers(disk: Path) -> None:
    (disk / "meta.properties").write_bytes(render_meta_properties("another-cluster", 1, "x" * 22))


def _damaged(disk: Path) -> None:
    (disk / "meta.properties").write_bytes(b"\xff\x00")


_FAILURES = {
    "gone": (_gone, "does not exist"),
    "unmounted": (_unmounted, r"holds neither meta.properties nor any of its logs"),
    "a file": (_file, "is not a folder"),
    "another's": (_anothers, "belongs to another store or broker, its cluster.id is another-cluster"),
    "damaged": (_damaged, "meta.properties has version"),
}


@pytest.mark.parametrize("case", _FAILURES)
def test_open_when_a_log_dir_fails_then_others_are_written_and_its_logs_are_refused(store: Path, case: str) -> None:
    """The error names directory, reason and logs; nothing is made, cut or written where the disk should be."""
    fail, reason = _FAILURES[case]
    fail(_disk(store))
    before = contents(_disk(store)) if _disk(store).is_dir() else None

    with closing(_open(store)) as writer:
        writer.append("query", 2, _to(0, range(100, 120)))
        with pytest.raises(LogDirOfflineError, match=rf"log_dir=.*disk reason={reason}.* logs=events-1"):
            writer.append("query", 3, in_process(rows(partition=[0, 1], value=["x", "y"])))
        writer.append("query", 3, _to(0, range(120, 130)))

    assert len(read_log(store / "logs" / "events-0")) == 80
    ends = parse_offset_checkpoint((store / "logs" / "replication-offset-checkpoint").read_bytes())
    assert list(ends.values()) == [80]
    assert (contents(_disk(store)) if _disk(store).is_dir() else None) == before
    assert contents(store / "staging") == {}


@pytest.mark.parametrize("case", ["gone", "unmounted"])
def test_open_when_a_log_dir_is_back_then_its_logs_go_on_as_committed(store: Path, case: str) -> None:
    """Also where a crash had left bytes there that nobody could cut while it was away."""
    log = max((_disk(store) / "events-1").glob("*.log"))
    with log.open("ab") as file:
        file.write(b"half a batch")
    base = f"{int(log.name[:20]) + 1000:020}"
    (_disk(store) / "events-1" / f"{base}.log").write_bytes(b"behind a gap")
    _FAILURES[case][0](_disk(store))
    (store / "writer.lock").write_text('{"pid": 1}')
    _open(store).close()
    _open(store).close()
    _plug_in(_disk(store))

    with closing(_open(store)) as writer:
        writer.append("query", 2, _to(1, range(100, 120)))

    assert stored_numbers(store) == list(range(120))
    assert not (_disk(store) / "events-1" / f"{base}.log").exists()
    assert {state.owes for state in Ledger.open(store / "ledger").all_states()} == {""}


def _plug_in(disk: Path) -> None:
    shutil.rmtree(disk, ignore_errors=True)
    disk.with_name("unplugged").rename(disk)


def test_open_by_force_when_a_log_dir_was_offline_then_its_files_are_new_once_it_is_back(store: Path) -> None:
    """The writer that lost the store may still hold descriptors of the old ones."""
    active = max((_disk(store) / "events-1").glob("*.log"))
    inode = active.stat().st_ino
    _gone(_disk(store))
    _open(store, take_lock_by_force=True).close()
    _plug_in(_disk(store))
    with active.open("ab") as held:
        _open(store).close()
        held.write(b"from a writer that woke up")

    assert active.stat().st_ino != inode
    assert stored_numbers(store) == list(range(100))


def test_open_by_force_when_it_fails_behind_the_renewal_then_offline_logs_are_renewed_once_they_are_back(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock does not say any more that it was taken by force: the rows of the offline logs do."""
    active = max((_disk(store) / "events-1").glob("*.log"))
    inode = active.stat().st_ino
    _gone(_disk(store))
    monkeypatch.setattr("sparklog.sink.opening.open_store.renew_returned", _refuse)
    with pytest.raises(StorageError, match="no answer"):
        _open(store, take_lock_by_force=True)
    monkeypatch.undo()
    assert _owes(store) == {"events-0": "", "events-1": "renew"}
    _plug_in(_disk(store))

    _open(store).close()

    assert active.stat().st_ino != inode
    assert _owes(store) == {"events-0": "", "events-1": ""}
    assert stored_numbers(store) == list(range(100))


def _refuse(*_arguments: object) -> None:
    raise StorageError("no answer")


def _owes(store: Path) -> dict[str, str]:
    return {str(log): state.owes for log, state in Ledger.open(store / "ledger").states().items()}


def test_sink_when_a_log_dir_fails_then_its_rows_say_what_its_logs_owe(store: Path) -> None:
    """The sink ends well, so its lock says nothing of them."""
    with closing(_open(store)) as writer:
        _gone(_disk(store))
        with pytest.raises(LogDirOfflineError):
            writer.append("query", 2, _to(1, range(100, 120)))
        assert _owes(store) == {"events-0": "", "events-1": "look"}
        writer.append("query", 2, _to(0, range(100, 120)))

    assert _owes(store) == {"events-0": "", "events-1": "look"}
    _plug_in(_disk(store))
    _open(store).close()
    assert _owes(store) == {"events-0": "", "events-1": ""}


def test_open_when_no_log_dir_is_left_then_refused(memory_path: Path) -> None:
    """There is nothing to open."""
    store = memory_path / "store"
    open_store(store, {"t": {}}).close()
    (store / "logs").rename(store / "away")

    with pytest.raises(LogDirOfflineError, match=r"log_dir=.*logs reason=does not exist logs=t-0"):
        open_store(store, {"t": {}})

    assert not (store / "logs").exists()


def test_open_when_topics_are_new_then_their_logs_go_where_a_disk_is(store: Path) -> None:
    """Never below a mount point."""
    _unmounted(_disk(store))
    topics = {**_TOPICS, "new": {"partitions": 3}}

    open_store(store, topics, log_dirs=("logs", str(_disk(store)))).close()

    states = Ledger.open(store / "ledger").states()
    assert {state.log_dir for log, state in states.items() if log.topic == "new"} == {"logs"}
    assert os.listdir(_disk(store)) == []


def test_open_when_new_logs_have_no_place_then_refused(store: Path) -> None:
    """The other directory is none of those that the settings name."""
    _gone(_disk(store))

    with pytest.raises(LogDirOfflineError, match=r"no log directory can be used for new logs.*log=new-0"):
        open_store(store, {**_TOPICS, "new": {}}, log_dirs=(str(_disk(store)),))

    assert not _disk(store).exists()


def test_append_when_a_log_dir_goes_meanwhile_then_the_micro_batch_fails_as_a_whole_and_others_go_on(
    store: Path,
) -> None:
    """A disk may fail while a sink runs; its checkpoint files are not written under the mount point either."""
    with closing(_open(store)) as writer:
        writer.append("query", 2, _to(1, range(100, 110)))
        before = contents(store / "logs" / "events-0")
        _unmounted(_disk(store))
        with pytest.raises(LogDirOfflineError, match=r"logs=events-1"):
            writer.append("query", 3, in_process(rows(partition=[0, 1], value=["110", "111"])))
        assert contents(store / "logs" / "events-0") == before
        writer.append("query", 3, _to(0, range(110, 120)))
        assert os.listdir(_disk(store)) == []
    assert os.listdir(_disk(store)) == []
    _plug_in(_disk(store))

    _open(store).close()

    assert stored_numbers(store) == list(range(120))


def test_append_when_a_log_waits_to_be_synced_on_a_disk_that_went_then_others_go_on(store: Path) -> None:
    """What the flush policy left to the page cache there is looked at when the disk is back."""
    clock = ManualClock(1_700_000_000_000)
    topics = {"events": {**_TOPICS["events"], "flush.ms": 1000}}
    log_dirs = ("logs", str(_disk(store)))
    with closing(open_store(store, topics, topic="events", log_dirs=log_dirs, clock=clock)) as writer:
        writer.append("query", 2, _to(1, range(100, 103)))
        clock.advance(2000)
        _gone(_disk(store))
        with pytest.raises(LogDirOfflineError, match=r"reason=does not exist logs=events-1"):
            writer.append("query", 3, in_process())
        writer.append("query", 3, in_process())
        writer.append("query", 4, _to(0, range(103, 110)))
    assert _recovery_point(store, "events-1") == 50
    _plug_in(_disk(store))

    _open(store).close()

    assert stored_numbers(store) == list(range(110))
    assert _recovery_point(store, "events-1") == 53


def _recovery_point(store: Path, name: str) -> int:
    states = Ledger.open(store / "ledger").states()
    return next(state.recovery_point for log, state in states.items() if str(log) == name)


def test_maintenance_when_a_log_dir_is_offline_then_the_store_can_be_opened(store: Path) -> None:
    """What works on a store without a sink leaves the offline logs alone."""
    _gone(_disk(store))

    with writing(store) as written:
        assert len(written.ledger.states()) == 2

    assert not _disk(store).exists()


@pytest.mark.parametrize("name", ["lost+found", "events", "events-x", "events-0-delete", "events-0.abc"])
def test_open_when_a_folder_among_logs_is_no_log_then_refused_and_nothing_changed(store: Path, name: str) -> None:
    """A broker refuses to start on it."""
    (store / "logs" / name).mkdir()
    before = contents(store, without=("writer.lock",))

    with pytest.raises(InvalidConfigError, match=r"is not a topic-partition: path=.*move it away"):
        _open(store)

    assert contents(store, without=("writer.lock",)) == before


@pytest.mark.parametrize("name", ["events-0", "events-00", "events-01"])
def test_open_when_a_log_has_two_directories_then_refused_and_nothing_changed(store: Path, name: str) -> None:
    """Nobody can tell which one is the log."""
    twin = (_disk(store) if name == "events-0" else store / "logs") / name
    shutil.copytree(store / "logs" / "events-0", twin)
    before = contents(store.parent, without=("writer.lock",))

    with pytest.raises(InvalidConfigError, match=rf"a log has two directories: log=events-\d path={twin}"):
        _open(store)

    assert contents(store.parent, without=("writer.lock",)) == before


def test_open_when_a_log_dir_has_two_names_then_its_logs_are_not_taken_for_twins(store: Path) -> None:
    """By a link, or by settings that name it in another way later."""
    link = store.parent / "link"
    link.symlink_to(store / "logs")
    topics = {**_TOPICS, "new": {}, "more": {}}

    open_store(store, {**_TOPICS, "new": {}}, log_dirs=(str(link),)).close()
    open_store(store, topics, log_dirs=(f"{store}/logs",)).close()

    view = open_logs(store)
    assert sorted(str(each.log) for each in view.logs) == ["events-0", "events-1", "more-0", "new-0"]
    assert (view.unknown, view.set_aside) == ((), ())
    assert all(each.directory.is_dir() for each in view.logs)


@pytest.mark.parametrize(
    "name", [f"events-0.{'a' * 32}-stray", f"events-0.{'b' * 32}-future", "remote-log-index-cache", "foreign-3"]
)
def test_open_when_a_broker_left_directories_then_they_stay(store: Path, name: str) -> None:
    """A stray log is somebody's; a move that a broker began is a broker's to finish."""
    (store / "logs" / name).mkdir()
    (store / "logs" / name / f"{0:020}.log").write_bytes(b"records")

    _open(store).close()

    assert contents(store / "logs" / name) == {f"{0:020}.log": b"records"}


def test_open_when_a_deleted_directory_is_left_then_it_is_removed(store: Path) -> None:
    """As a broker does when it starts."""
    left = store / "logs" / f"gone-0.{'c' * 32}-delete"
    left.mkdir()
    (left / f"{0:020}.log").write_bytes(b"records")

    _open(store).close()

    assert not left.exists()
    assert stored_numbers(store) == list(range(100))


def test_open_when_a_deleted_directory_can_not_be_removed_then_the_store_is_opened(
    store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is no log, and keeps nobody from working."""
    left = store / "logs" / f"gone-0.{'c' * 32}-delete"
    left.mkdir()

    def refuse(path: Path, **_options: object) -> None:
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr("shutil.rmtree", refuse)
    _open(store).close()

    assert left.exists()
    assert "A log directory was not tidied, the next opening retries: Input/output error" in caplog.text


def test_open_when_a_configured_directory_belongs_to_another_then_refused(store: Path) -> None:
    """It holds none of our logs: the setting is wrong, not the disk."""
    other = store.parent / "other"
    other.mkdir()
    _anothers(other)

    with pytest.raises(InvalidConfigError, match=r"belongs to another store or broker"):
        open_store(store, _TOPICS, log_dirs=("logs", str(other)))


def test_open_when_a_configured_directory_has_damaged_properties_then_refused_and_named(store: Path) -> None:
    """Whose it is can't be told."""
    (store.parent / "other").mkdir()
    _damaged(store.parent / "other")

    with pytest.raises(CorruptFileError, match=r"meta.properties has version .* log_dir=.*other"):
        open_store(store, _TOPICS, log_dirs=("logs", str(store.parent / "other")))


def test_open_when_a_further_directory_can_not_be_made_then_the_others_do(store: Path) -> None:
    """A store that has logs goes on with them; a new one has to be told."""
    (store.parent / "blocked").write_text("")
    bad = str(store.parent / "blocked" / "disk")

    open_store(store, _TOPICS, log_dirs=("logs", bad)).close()
    with pytest.raises(StorageError, match=r"blocked"):
        open_store(store.parent / "new", _TOPICS, log_dirs=("logs", bad))


@pytest.mark.parametrize("reason", [errno.EROFS, errno.EACCES, errno.EIO])
def test_maintenance_when_a_lock_file_cannot_be_opened_to_write_then_goes_on(
    store: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    """A sink goes on without such a log directory, too."""
    opened = os.open

    def failing(path: str | Path, flags: int, *args: int, **options: int) -> int:
        if str(path).endswith(".lock") and str(_disk(store)) in str(path) and flags & os.O_RDWR:
            raise OSError(reason, os.strerror(reason), str(path))
        return opened(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", failing)
    with maintaining(store) as maintained:
        assert maintained.store.root == store


def test_check_log_dirs_when_the_disk_is_full_then_it_is_no_reason(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What does not fit fails by itself, and goes on once there is room."""
    found = Store.find(store)
    states: list[LogState] = list(Ledger.open(found.ledger_path).states().values())

    def fail(code: int) -> Callable[..., int]:
        def refuse(*_arguments: object) -> int:
            raise OSError(code, os.strerror(code))

        return refuse

    monkeypatch.setattr("os.fsync", fail(28))
    assert check_log_dirs(found, states) == {}
    monkeypatch.setattr("os.fsync", fail(5))
    assert check_log_dirs(found, states) == dict.fromkeys(("logs", str(_disk(store))), "Input/output error")
