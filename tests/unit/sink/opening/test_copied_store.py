"""Two folders with one store's id: each has its logs, or one of them is refused."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparklog.pipeline.verbs.repair import RepairOptions, execute_repair
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.opening.access import maintaining, writing
from sparklog.sink.opening.adopt_roots import adopt_roots, plan_adoption
from sparklog.sink.operations.delete_topic import delete_topic
from sparklog.sink.operations.move_log import move_log
from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import InvalidConfigError, LedgerDamagedError, LogStorageError, StoreLockedError
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import contents, in_process, numbers, open_events, stored_numbers
from tests.programs.own_process import ROOT

_REFUSAL = r"belongs to another copy of this store: log_dir={root} store={copy} other={store}; .*sparklog adopt {copy}"
_BROKER = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # what Java's FileLock does
    except OSError:
        print("refused", flush=True)
    else:
        print("held", flush=True)
        sys.stdin.read()
"""


class _Place:
    """A store with a hundred records whose log directory lies elsewhere, and an older copy of its folder alone."""

    def __init__(self, folder: Path, *, linked: bool) -> None:
        self.store, self.copy, self.root = folder / "a", folder / "b", folder / "elsewhere"
        self.options = {} if linked else {"log_dirs": (str(self.root),)}
        if linked:
            self.store.mkdir()
            self.root.mkdir()
            (self.store / "logs").symlink_to(self.root)
        self.write(self.store, 0, 50)
        shutil.copytree(self.store, self.copy, symlinks=True)
        self.write(self.store, 50, 100)

    def open(self, store: Path) -> StoreWriter:
        return open_events(store, **self.options)

    def write(self, store: Path, first: int, last: int) -> None:
        with closing(self.open(store)) as sink:
            sink.append("q", first, in_process(numbers(first, last)))

    def logs(self) -> dict[str, bytes]:
        return contents(self.root)

    @property
    def refusal(self) -> str:
        root = self.copy / "logs" if not self.options else self.root
        return _REFUSAL.format(root=root, copy=self.copy, store=self.store)


@pytest.fixture(params=[False, True], ids=["absolute", "linked"])
def place(memory_path: Path, request: pytest.FixtureRequest) -> _Place:
    return _Place(memory_path, linked=request.param)


def test_copy_when_its_logs_are_those_of_the_original_then_refused_and_no_byte_changes(place: _Place) -> None:
    """An older copy would cut off what the original has committed since."""
    before = place.logs()

    with pytest.raises(InvalidConfigError, match=place.refusal):
        place.open(place.copy).close()

    assert place.logs() == before
    assert stored_numbers(place.store) == list(range(100))


def test_copy_when_a_sink_of_the_original_runs_then_refused(place: _Place) -> None:
    """The original goes on."""
    with closing(place.open(place.store)) as sink:
        with pytest.raises(InvalidConfigError, match=place.refusal):
            place.open(place.copy)
        sink.append("q", 100, in_process(numbers(100, 150)))

    assert stored_numbers(place.store) == list(range(150))


def _sink(copy: Path) -> None:
    log_dirs = ("logs",) if (copy / "logs").is_symlink() else (str(copy.parent / "elsewhere"),)
    open_events(copy, log_dirs=log_dirs)


def _adopt_too_early(copy: Path) -> None:
    adopt_roots(copy)


def _maintain(copy: Path) -> None:
    with maintaining(copy):
        pass


def _delete(copy: Path) -> None:
    with writing(copy) as written:
        delete_topic(written, "events", SystemClock())


def _move(copy: Path) -> None:
    with writing(copy) as written:
        move_log(written, TopicPartition("events", 0), "more")


def _repair(copy: Path) -> None:
    execute_repair(copy, RepairOptions(), ManualClock(0), lambda _step: None)


@pytest.mark.parametrize("change", [_maintain, _delete, _move, _repair])
def test_copy_when_it_is_changed_without_a_sink_then_refused(place: _Place, change: Callable[[Path], None]) -> None:
    """Whatever changes a store asks first whose its log directories are."""
    before = place.logs()

    with pytest.raises(InvalidConfigError, match=place.refusal):
        change(place.copy)

    assert place.logs() == before


def test_copy_when_it_adopts_the_logs_then_opens_and_the_original_is_refused(place: _Place) -> None:
    """A plan changes nothing; a repair cuts off what only the original had committed."""
    before = place.logs()

    planned = plan_adoption(place.copy)
    assert place.logs() == before
    assert adopt_roots(place.copy) == planned
    _repair(place.copy)
    place.write(place.copy, 50, 60)

    assert [(each.path.resolve(), each.other) for each in planned] == [(place.root, place.store)]
    assert stored_numbers(place.copy) == list(range(60))
    with pytest.raises(InvalidConfigError, match=f"store={place.store} other={place.copy}"):
        place.open(place.store)


@pytest.mark.parametrize("adoption", [plan_adoption, adopt_roots])
def test_adoption_when_it_names_a_folder_that_is_not_there_then_refused(
    place: _Place, adoption: Callable[[Path, list[str]], object]
) -> None:
    """A mistyped name is no log directory that no other copy has."""
    before = place.logs()

    with pytest.raises(InvalidConfigError, match=f"log_dir={place.copy / 'nowhere'}"):
        adoption(place.copy, ["nowhere"])

    assert place.logs() == before


def test_adoption_when_a_sink_of_the_original_runs_then_refused(place: _Place) -> None:
    """Its lock of the log directory says so."""
    with closing(place.open(place.store)), pytest.raises(StoreLockedError, match=r"another store has it.*\.lock"):
        adopt_roots(place.copy)

    place.write(place.store, 100, 110)
    assert stored_numbers(place.store) == list(range(110))


def test_store_when_it_was_moved_then_opens_and_its_logs_name_the_new_place(place: _Place, memory_path: Path) -> None:
    """What is not there any more claims nothing."""
    shutil.rmtree(place.copy)
    moved = Path(place.store.rename(memory_path / "moved"))

    place.write(moved, 100, 110)

    assert stored_numbers(moved) == list(range(110))
    assert f"sparklog.store={moved}" in (place.root / "meta.properties").read_text()


def test_store_when_its_former_place_cannot_be_looked_at_then_refused_until_it_adopts(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dying disk, or another user's folder: nobody can tell whether the store is there, so its owner has to say."""
    store, moved = memory_path / "old" / "a", memory_path / "b"
    with closing(open_events(store)) as sink:
        sink.append("q", 0, in_process(numbers(0, 50)))
    store.rename(moved)
    stat = os.stat

    def failing(path: Any, *args: Any, **options: Any) -> os.stat_result:
        if str(path).startswith(str(store)):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return stat(path, *args, **options)

    monkeypatch.setattr(os, "stat", failing)
    with pytest.raises(InvalidConfigError, match=f"store={moved} other={store}; .*sparklog adopt {moved} --execute"):
        open_events(moved)
    assert [(each.path, each.other) for each in adopt_roots(moved)] == [(moved / "logs", store)]
    open_events(moved).close()

    assert stored_numbers(moved) == list(range(50))


def test_copy_when_it_has_logs_of_its_own_then_both_go_on(memory_path: Path) -> None:
    """That is what a copy of a store with its log directories in it is."""
    store, copy = memory_path / "a", memory_path / "b"
    with closing(open_events(store)) as sink:
        sink.append("q", 0, in_process(numbers(0, 50)))
    shutil.copytree(store, copy)
    with closing(open_events(store)) as one, closing(open_events(copy)) as other:
        one.append("q", 1, in_process(numbers(50, 60)))
        other.append("q", 1, in_process(numbers(50, 70)))

    assert (stored_numbers(store), stored_numbers(copy)) == (list(range(60)), list(range(70)))


@pytest.mark.parametrize("change", [_sink, _maintain, _delete, _repair, _adopt_too_early])
def test_copy_when_it_was_refused_then_what_it_has_not_committed_is_still_no_leftover(
    place: _Place, change: Callable[[Path], None]
) -> None:
    """Who was refused before he changed anything has not crashed: the next opening must not cut off the rest."""
    with closing(place.open(place.store)), pytest.raises(LogStorageError):
        change(place.copy)
    adopt_roots(place.copy)
    before = place.logs()

    with pytest.raises(LedgerDamagedError, match="bytes lie past a log's committed end"):
        place.open(place.copy)

    assert place.logs() == before


def test_store_when_another_broke_off_for_a_maintenance_then_it_has_not_crashed(place: _Place) -> None:
    """It had the writer lock by then."""
    with maintaining(place.store), pytest.raises(StoreLockedError):
        _repair(place.store)

    assert not WriterLock.owner_crashed(place.store / "writer.lock")


@pytest.mark.parametrize("change", [_sink, _delete])
def test_store_when_a_maintenance_died_then_bytes_above_a_committed_end_are_still_no_leftovers(
    place: _Place, change: Callable[[Path], None]
) -> None:
    """Its writer ended well, and a maintenance leaves none."""
    adopt_roots(place.copy)
    (place.copy / "maintenance.lock").write_text('{"pid": 1}\n')
    before = place.logs()

    with pytest.raises(LedgerDamagedError, match="bytes lie past a log's committed end"):
        change(place.copy)

    assert place.logs() == before


def test_root_when_a_broker_wrote_it_beside_a_refused_sink_then_its_records_are_no_leftovers(memory_path: Path) -> None:
    """The sink that tried changed nothing."""
    store, twin = memory_path / "a", memory_path / "b"
    with closing(open_events(store)) as sink:
        sink.append("q", 0, in_process(numbers(0, 50)))
    shutil.copytree(store, twin)
    with closing(open_events(twin)) as sink:
        sink.append("q", 1, in_process(numbers(50, 100)))
    with _broker(store / "logs") as said:
        assert said == "held"
        with pytest.raises(StoreLockedError):
            open_events(store)
        for log in (store / "logs").glob("events-*"):
            shutil.rmtree(log)
            shutil.copytree(twin / "logs" / log.name, log)
    before = contents(store / "logs")

    with pytest.raises(LedgerDamagedError, match="bytes lie past a log's committed end"):
        open_events(store)

    assert contents(store / "logs") == before


@contextmanager
def _broker(root: Path) -> Iterator[str]:
    """Lock a root in another process as a broker does; yields what came of it."""
    command = [sys.executable, "-c", _BROKER, str(root / ".lock")]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate()


def test_root_when_a_sink_is_open_then_a_broker_is_refused_until_its_end(memory_path: Path) -> None:
    """Also beside a maintenance of this process, which comes and goes."""
    with closing(open_events(memory_path)) as sink:
        sink.append("q", 0, in_process(numbers(0, 50)))
        with maintaining(memory_path), _broker(memory_path / "logs") as said:
            assert said == "refused"
        with _broker(memory_path / "logs") as said:
            assert said == "refused"
    with _broker(memory_path / "logs") as said:
        assert said == "held"


def test_root_when_a_broker_has_it_then_sinks_are_refused_also_by_force_and_so_is_maintenance(
    memory_path: Path,
) -> None:
    """A broker can't be fenced."""
    open_events(memory_path).close()
    with _broker(memory_path / "logs") as said:
        assert said == "held"
        for options in ({}, {"take_lock_by_force": True}):
            with pytest.raises(StoreLockedError, match=r"a broker runs on this folder.*logs/\.lock"):
                open_events(memory_path, **options)
        with pytest.raises(StoreLockedError, match="a broker runs on this folder"), maintaining(memory_path):
            pass
    open_events(memory_path, take_lock_by_force=True).close()


def test_root_when_the_store_is_taken_by_force_then_its_lock_is_the_new_writers(memory_path: Path) -> None:
    """The end of the writer that lost it gives nothing away."""
    first = open_events(memory_path)
    with closing(open_events(memory_path, take_lock_by_force=True)) as second:
        first.close()
        with _broker(memory_path / "logs") as said:
            assert said == "refused"
        second.append("q", 0, in_process(numbers(0, 50)))

    assert stored_numbers(memory_path) == list(range(50))
    with _broker(memory_path / "logs") as said:
        assert said == "held"
