"""Who may work on a log's files beside whom."""

import threading
from pathlib import Path

import pytest

from sparklog.storage_core.cleaner.hold_log import held_alone, held_group
from sparklog.storage_core.errors import StorageError, StoreLockedError


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the first files of two groups; nobody waits."""
    monkeypatch.setattr("sparklog.storage_core.cleaner.hold_log._PATIENCE_S", 0.0)
    for base in (0, 10):
        (tmp_path / f"{base:020}.log").write_bytes(b"x")
    return tmp_path


def _take_alone(directory: Path) -> None:
    with held_alone(directory):
        pass


def _take_group(directory: Path, base_offset: int) -> None:
    with held_group(directory, base_offset):
        pass


def test_hold_when_another_has_all_of_the_log_then_refused_until_it_ends(log: Path) -> None:
    """One cleaning of a whole log at a time, and no group beside it."""
    with held_alone(log):
        with pytest.raises(StoreLockedError, match="still at work"):
            _take_alone(log)
        with pytest.raises(StoreLockedError, match="still at work"):
            _take_group(log, 0)
    _take_alone(log)
    _take_group(log, 0)


def test_hold_when_groups_are_cleaned_then_others_are_let_in_and_nobody_twice(log: Path) -> None:
    """Groups go side by side, each once; who wants all of the log stays out as long as one is at work."""
    with held_alone(log) as let_parts_in:
        let_parts_in()
        with held_group(log, 0):
            _take_group(log, 10)
            with pytest.raises(StoreLockedError, match=r"00000\.log"):
                _take_group(log, 0)
            with pytest.raises(StoreLockedError):
                _take_alone(log)
        _take_group(log, 0)
        with pytest.raises(StoreLockedError):
            _take_alone(log)
    with held_group(log, 10), pytest.raises(StoreLockedError):
        _take_alone(log)


def test_hold_when_the_other_ends_soon_then_waits_for_it(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that Spark gave up has some seconds to end."""
    monkeypatch.setattr("sparklog.storage_core.cleaner.hold_log._PATIENCE_S", 30.0)
    is_held, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with held_alone(log):
            is_held.set()
            may_end.wait(30)

    other = threading.Thread(target=hold)
    other.start()
    is_held.wait(30)
    threading.Timer(0.1, may_end.set).start()
    _take_alone(log)

    assert may_end.is_set()
    other.join()


def test_hold_when_the_segment_was_replaced_meanwhile_then_refused(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waited for a group and finds another file in its place does not clean what was cleaned."""
    path = log / f"{0:020}.log"

    def flock(_descriptor: int, _mode: int) -> None:
        (log / "new").write_bytes(b"y")
        (log / "new").replace(path)

    monkeypatch.setattr("sparklog.storage_core.cleaner.hold_log.fcntl.flock", flock)
    with pytest.raises(StoreLockedError, match="has replaced this segment"):
        _take_group(log, 0)


def test_hold_when_there_is_no_such_log_then_a_storage_error(tmp_path: Path) -> None:
    """What the disk says is told as its refusal."""
    with pytest.raises(StorageError, match="gone-0"):
        _take_alone(tmp_path / "gone-0")
    with pytest.raises(StorageError, match=r"00007\.log"):
        _take_group(tmp_path, 7)
