"""Who may work on a store at the same time, and what an owner's death is known by."""

import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.opening.access import maintaining, writing
from sparklog.sink.opening.undo import find_torn
from sparklog.sink.operations.raise_offsets import raise_log_starts
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.cleaner.hold_log import held_alone
from sparklog.storage_core.errors import (
    CorruptFileError,
    InvalidConfigError,
    LedgerDamagedError,
    OffsetOutOfRangeError,
    StoreLockedError,
    UnknownTopicError,
    WriterFencedError,
)
from sparklog.storage_core.log.append import segment_writer
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.storage.copy_range import copy_range
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import in_process, log_directories, numbers, open_events, open_store, stored_numbers

_LOG = TopicPartition("events", 0)


@pytest.fixture
def path(memory_path: Path) -> Path:
    """A store with a hundred records whose sink ended well."""
    sink = open_events(memory_path)
    sink.append("q", 0, in_process(numbers(0, 100)))
    sink.close()
    return memory_path


def _states(path: Path) -> dict[TopicPartition, int]:
    return {log: each.log_start_offset for log, each in Ledger.open(path / "ledger").states().items()}


def test_maintaining_when_a_sink_runs_then_both_commit(path: Path) -> None:
    """Log starts rise beside a sink, and its next micro-batch takes them over."""
    sink = open_events(path)

    with maintaining(path) as maintained, maintained.try_writer() as written:
        assert written is None
        raised = raise_log_starts(maintained.store, {_LOG: 7}, ManualClock(5))
    sink.append("q", 1, in_process(numbers(100, 200)))
    sink.close()

    assert (raised[_LOG].log_start_offset, raised[_LOG].updated_ms) == (7, 5)
    assert _states(path)[_LOG] == 7
    assert stored_numbers(path) == list(range(200))


def test_maintaining_when_another_one_runs_then_is_refused(path: Path) -> None:
    """The message says that it is no sink."""
    with maintaining(path), pytest.raises(StoreLockedError, match="another maintenance run holds the store"):
        maintaining(path).__enter__()


def test_maintaining_when_there_is_no_store_then_is_refused(memory_path: Path) -> None:
    """And leaves no lock file behind."""
    with pytest.raises(InvalidConfigError, match="no store here"), maintaining(memory_path):
        pass
    assert not any(memory_path.iterdir())


def _die_behind_a_commit(path: Path) -> None:
    def maintain() -> None:
        with maintaining(path) as maintained:
            raise_log_starts(maintained.store, {_LOG: 7}, ManualClock())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        maintain()


def test_maintaining_when_it_fails_then_the_next_opening_looks_closely(path: Path) -> None:
    """Its signature stays: the newest commit may be its own, and torn; then it never counted."""
    _die_behind_a_commit(path)
    newest = max((path / "ledger" / "_delta_log").glob("*.json"))
    newest.write_bytes(b"\0" * 100)

    open_events(path).close()

    assert _states(path)[_LOG] == 0
    assert stored_numbers(path) == list(range(100))


@pytest.mark.parametrize("access", [maintaining, writing, lambda path: closing(open_events(path))])
def test_access_when_the_one_before_ended_well_then_a_torn_ledger_is_refused_each_time(
    path: Path, access: Callable[[Path], AbstractContextManager[object]]
) -> None:
    """Nobody died: a newest entry that can't be read is damage, and a refusal makes no crash of it."""
    with maintaining(path):
        pass
    max((path / "ledger" / "_delta_log").glob("*.json")).write_bytes(b"\0" * 100)

    for opened in (access, access, maintaining, writing, access):
        with pytest.raises(LedgerDamagedError), opened(path):
            pass


def test_maintaining_when_the_one_before_died_then_drops_what_it_tore(path: Path) -> None:
    """Without a sink that runs it is the first to see it."""
    _die_behind_a_commit(path)
    version = Ledger.open(path / "ledger").version
    max((path / "ledger" / "_delta_log").glob("*.json")).write_bytes(b"\0" * 100)

    with maintaining(path) as maintained:
        assert Ledger.open(maintained.store.ledger_path).version == version - 1
    assert not WriterLock.owner_crashed(path / "maintenance.lock")


def test_maintaining_when_the_sink_before_died_then_drops_what_it_tore(path: Path) -> None:
    """Nobody has to start the sink first: a power cut tore a commit that nobody was told of."""
    sink = open_events(path)
    sink.append("q", 1, in_process(numbers(100, 150)))
    sink._abandon()
    max((path / "ledger" / "_delta_log").glob("*.json")).write_bytes(b"{")

    with maintaining(path) as maintained:
        raise_log_starts(maintained.store, {_LOG: 7}, ManualClock())

    assert _states(path)[_LOG] == 7
    assert stored_numbers(path) == list(range(100))
    assert not WriterLock.owner_crashed(path / "writer.lock")


def test_maintaining_when_a_dead_sinks_log_is_damaged_then_the_others_are_maintained_and_the_sink_looks_again(
    path: Path,
) -> None:
    """The damage is for a repair; until then the writer lock goes on saying that somebody died."""
    sink = open_events(path)
    sink._abandon()
    state = Ledger.open(path / "ledger").states()[TopicPartition("events", 1)]
    active = log_directories(path)["events-1"] / segment_file_name(state.active_base_offset, LOG)
    active.write_bytes(active.read_bytes()[:-1])

    with maintaining(path) as maintained:
        raise_log_starts(maintained.store, {_LOG: 7}, ManualClock())

    assert _states(path)[_LOG] == 7
    assert WriterLock.owner_crashed(path / "writer.lock")


def test_ledger_when_it_cannot_be_read_then_the_message_is_the_librarys_without_its_backtrace(path: Path) -> None:
    """Its frames say nothing to whoever reads the message."""
    max((path / "ledger" / "_delta_log").glob("*.json")).write_bytes(b'{"add":{}}')

    with pytest.raises(LedgerDamagedError, match=r"\(Kernel error: Json error: whilst decoding field 'add': [^<]*\)$"):
        Ledger.open(path / "ledger")


def _leave_swap(directory: Path) -> Path:
    """Take the names of a log's first segment away, as a cleaning does that stops in the middle; return its `.log`."""
    closed = sorted(directory.glob("*.log"))[0]
    for each in directory.glob(f"{closed.stem}.*"):
        each.rename(f"{each}.swap")
    return closed


def _die(path: Path) -> None:
    with pytest.raises(ZeroDivisionError), maintaining(path):
        raise ZeroDivisionError


@pytest.mark.parametrize("access", [maintaining, writing])
@pytest.mark.parametrize("leave", [lambda _: None, _die], ids=["signed off", "died"])
def test_access_when_a_cleaning_stopped_half_way_then_its_segments_get_their_names(
    path: Path, access: Callable[[Path], AbstractContextManager[object]], leave: Callable[[Path], None]
) -> None:
    """Otherwise who plans what to delete would not see them; a run may end well, and a task of it not."""
    leave(path)
    directory = log_directories(path)["events-0"]
    closed = _leave_swap(directory)

    with access(path):
        assert closed.exists()
        assert list(directory.glob("*.swap")) == []
    assert stored_numbers(path) == list(range(100))


@pytest.mark.parametrize("access", [maintaining, writing])
def test_access_when_a_paused_task_of_a_dead_run_holds_a_log_then_the_others_are_finished(
    path: Path, access: Callable[[Path], AbstractContextManager[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps nobody from the rest of the store, and its own log waits until it has ended."""
    monkeypatch.setattr("sparklog.storage_core.cleaner.hold_log._PATIENCE_S", 0.0)
    _die(path)
    directories = log_directories(path)
    held, free = (_leave_swap(directories[name]) for name in ("events-0", "events-1"))

    with held_alone(held.parent), access(path):
        assert (held.exists(), free.exists()) == (False, True)
    with access(path):
        assert held.exists()
    assert stored_numbers(path) == list(range(100))


def test_maintaining_when_a_disk_refuses_one_log_then_the_others_are_finished(path: Path) -> None:
    """One failing log never stops the others."""
    _die(path)
    directories = log_directories(path)
    closed = _leave_swap(directories["events-1"])
    shutil.rmtree(directories["events-0"])

    with maintaining(path):
        assert closed.exists()


def test_writing_when_a_sink_runs_then_is_refused(path: Path) -> None:
    """What changes the set of logs needs the store for itself."""
    sink = open_events(path)
    with pytest.raises(StoreLockedError, match="another writer holds the store"), writing(path):
        pass
    sink.close()


def test_writing_when_a_sink_died_then_its_uncommitted_bytes_are_cut_off_first(path: Path) -> None:
    """Otherwise they would count once the active segment is not active any more."""
    directory = log_directories(path)["events-0"]
    state = Ledger.open(path / "ledger").states()[_LOG]
    active = directory / segment_file_name(state.active_base_offset, LOG)
    with active.open("ab") as file:
        file.write(b"unfinished")
    (path / "writer.lock").write_text('{"pid": 1}')

    with writing(path) as written:
        assert active.stat().st_size == state.active_size_bytes
        assert find_torn(written.store, written.ledger.states(), follows_crash=True) == []
        assert state.committed_end.size_bytes == state.active_size_bytes


def _inodes(path: Path) -> dict[str, int]:
    """Return the inode of each log's active segment."""
    store = Store.find(path)
    states = Ledger.open(store.ledger_path).states()
    segments = {log: segment_file_name(state.active_base_offset, LOG) for log, state in states.items()}
    return {str(log): (store.log_path(states[log]) / name).stat().st_ino for log, name in segments.items()}


def _open_sink(path: Path) -> None:
    open_events(path).close()


def _write(path: Path) -> None:
    with writing(path):
        pass


def _maintain(path: Path) -> None:
    with maintaining(path) as maintained, maintained.try_writer():
        pass


@pytest.mark.parametrize("access", [_open_sink, _write, _maintain])
def test_access_when_committed_bytes_are_gone_then_no_crash_is_noted(
    path: Path, access: Callable[[Path], None]
) -> None:
    """It is refused before it changes anything, so the next opening must not cut off what it finds above an end."""
    state = Ledger.open(path / "ledger").states()[_LOG]
    active = log_directories(path)["events-0"] / segment_file_name(state.active_base_offset, LOG)
    os.truncate(active, state.active_size_bytes - 1)

    with pytest.raises(CorruptFileError, match="committed bytes are gone"):
        access(path)

    assert not WriterLock.owner_crashed(path / "writer.lock")


@pytest.mark.parametrize("access", [_open_sink, _write, _maintain])
def test_access_when_a_taking_by_force_came_to_nothing_then_the_next_one_locks_the_old_writer_out(
    path: Path, access: Callable[[Path], None]
) -> None:
    """It may sleep with a log's file open, so files and version are new; who comes then has nothing to copy."""
    WriterLock.take_by_force(path / "writer.lock").release()
    before, version = _inodes(path), Ledger.open(path / "ledger").version

    access(path)

    renewed = _inodes(path)
    assert not set(renewed.values()) & set(before.values())
    assert Ledger.open(path / "ledger").version > version
    access(path)
    assert _inodes(path) == renewed


def test_append_when_a_taking_by_force_was_refused_and_the_store_taken_since_then_its_last_copy_goes_nowhere(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sleeps inside a copy, behind its last look at the lock: what counts then must be in other files."""
    asleep, wake = threading.Event(), threading.Event()

    def copy_late(*args: int) -> None:
        monkeypatch.setattr(segment_writer, "copy_range", copy_range)
        asleep.set()
        wake.wait(60)
        copy_range(*args)

    monkeypatch.setattr(segment_writer, "copy_range", copy_late)
    old = open_events(path)
    with ThreadPoolExecutor(1) as pool:
        appended = pool.submit(old.append, "q", 1, in_process(numbers(1000, 1060)))
        assert asleep.wait(60)
        with pytest.raises(InvalidConfigError, match="can't shrink"):
            open_store(path, {"events": {"partitions": 1}}, take_lock_by_force=True)
        with closing(open_events(path)) as new:
            new.append("q", 1, in_process(numbers(100, 120)))
            wake.set()
            with pytest.raises(WriterFencedError):
                appended.result()

    assert stored_numbers(path) == list(range(120))


def test_raise_log_starts_when_lower_than_now_then_nothing_is_committed(path: Path) -> None:
    """A start never goes back."""
    store = Store.find(path)
    raise_log_starts(store, {_LOG: 9}, ManualClock())
    version = Ledger.open(store.ledger_path).version

    states = raise_log_starts(store, {_LOG: 3}, ManualClock())

    assert states[_LOG].log_start_offset == 9
    assert Ledger.open(store.ledger_path).version == version


@pytest.mark.parametrize(
    ("log", "error"), [(_LOG, OffsetOutOfRangeError), (TopicPartition("other", 0), UnknownTopicError)]
)
def test_raise_log_starts_when_it_fits_no_log_then_nothing_is_changed(
    path: Path, log: TopicPartition, error: type[Exception]
) -> None:
    """Neither the log that is wrong nor the others."""
    with pytest.raises(error, match=str(log)):
        raise_log_starts(Store.find(path), {TopicPartition("events", 1): 2, log: 10_000}, ManualClock())
    assert set(_states(path).values()) == {0}
