"""Opening a store: what is made, undone or refused, and that a refusal changes nothing."""

import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sparklog.sink.ledger.ledger import Ledger
from sparklog.storage_core.checkpoint.meta_properties import store_of
from sparklog.storage_core.errors import (
    CorruptFileError,
    InvalidConfigError,
    LedgerDamagedError,
    StoreLockedError,
    UnsupportedFormatError,
    WriterFencedError,
)
from tests.build.sink_store import EVENTS, contents, in_process, numbers, open_events, open_store, stored_numbers


@pytest.fixture
def store(memory_path: Path) -> Path:
    """A store with one micro-batch of 0..99 in rolled segments, closed."""
    with closing(open_events(memory_path / "store")) as writer:
        writer.append("query", 0, in_process(numbers(0, 100)))
    return memory_path / "store"


def test_open_when_locked_then_refused_naming_the_owner(store: Path) -> None:
    """Also by the same process, and nothing changes."""
    with closing(open_events(store)):
        before = contents(store)
        with pytest.raises(StoreLockedError, match=rf'lock={store}/writer.lock owner=.*"pid": {os.getpid()}'):
            open_events(store)
        assert contents(store) == before


def test_open_when_a_store_is_begun_anew_beside_its_control_folder_then_its_ledger_begins_anew(store: Path) -> None:
    """What owners of the earlier ledger recorded says nothing of this one."""
    shutil.rmtree(store / "ledger")
    shutil.rmtree(store / "logs")
    (store / "store.properties").unlink()

    for _ in range(2):
        with closing(open_events(store)) as writer:
            writer.append("query", 0, in_process(numbers(0, 10)))

    assert stored_numbers(store) == list(range(10))


def test_open_when_taken_by_force_then_the_earlier_writer_is_fenced(store: Path) -> None:
    """It can neither append nor close over the new one's files."""
    earlier = open_events(store)
    with closing(open_events(store, take_lock_by_force=True)) as writer:
        writer.append("query", 1, in_process(numbers(100, 200)))
        before = contents(store)
        with pytest.raises(WriterFencedError, match=r"took the store by force"):
            earlier.append("query", 2, in_process(numbers(900, 999)))
        earlier.close()
        assert contents(store) == before
        writer.append("query", 2, in_process(numbers(200, 300)))

    assert stored_numbers(store) == list(range(300))


@pytest.mark.parametrize("by_force", [False, True])
def test_open_when_the_layout_is_newer_then_refused_and_nothing_changes(store: Path, by_force: bool) -> None:
    """Even the lock of a newer release's store is not touched."""
    properties = store / "store.properties"
    properties.write_text(properties.read_text().replace("layout.version=4", "layout.version=5"))
    before = contents(store)

    with pytest.raises(UnsupportedFormatError, match=r"layout.version=5, wanted is 4: .*use a newer release"):
        open_events(store, take_lock_by_force=by_force)

    assert contents(store) == before


def test_open_when_the_folder_is_something_else_then_refused_and_nothing_changes(memory_path: Path) -> None:
    """A store is made in a new or an empty folder."""
    (memory_path / "thesis.txt").write_text("42")

    with pytest.raises(InvalidConfigError, match=r"not a store, and not empty: .*'thesis.txt'"):
        open_events(memory_path)

    assert contents(memory_path) == {"thesis.txt": b"42"}


def test_open_when_store_properties_are_gone_then_refused_and_nothing_changes(store: Path) -> None:
    """A new, empty ledger over a store that has one would lose everything."""
    (store / "store.properties").unlink()
    before = contents(store)

    with pytest.raises(LedgerDamagedError, match=r"store.properties is gone"):
        open_events(store)

    assert contents(store) == before


def test_open_when_the_ledger_is_damaged_then_refused_and_nothing_changes(store: Path) -> None:
    """Damage behind the newest entry is no crash's."""
    (store / "ledger" / "_delta_log" / f"{1:020}.json").write_bytes(b"{")
    before = contents(store, without=("writer.lock",))

    with pytest.raises(LedgerDamagedError, match=r"restore it from a copy"):
        open_events(store)

    assert contents(store, without=("writer.lock",)) == before


def _cut_active(store: Path) -> str:
    path = sorted((store / "logs" / "events-0").glob("*.log"))[-1]
    os.truncate(path, path.stat().st_size - 1)
    return path.name


def _remove_active(store: Path) -> str:
    path = sorted((store / "logs" / "events-0").glob("*.log"))[-1]
    path.unlink()
    return path.name


def _remove_log(store: Path) -> str:
    shutil.rmtree(store / "logs" / "events-0")
    return "events-0"


@pytest.mark.parametrize("damage", [_cut_active, _remove_active, _remove_log])
def test_open_when_committed_bytes_are_gone_then_refused_and_nothing_changes(
    store: Path, damage: Callable[[Path], str]
) -> None:
    """It says which file; not even a new topic is made."""
    name = damage(store)
    before = contents(store, without=("writer.lock",))

    with pytest.raises(CorruptFileError, match=rf"gone.*{name}|gone.*events-0.*restore"):
        open_store(store, {**EVENTS, "another": {"partitions": 3}})

    assert contents(store, without=("writer.lock",)) == before


def test_open_when_a_log_dir_is_gone_then_no_new_one_is_made(memory_path: Path) -> None:
    """A disk that is not mounted looks like an empty folder; its logs are offline, the others are not."""
    store = memory_path / "store"
    with closing(open_events(store, log_dirs=("logs", str(memory_path / "disk")))) as writer:
        writer.append("query", 0, in_process(numbers(0, 100)))
    (memory_path / "disk").rename(memory_path / "unplugged")

    open_events(store, log_dirs=("logs", str(memory_path / "disk"))).close()

    assert not (memory_path / "disk").exists()


@pytest.mark.parametrize("name", ["{end}.log.abcd1234.cleaned", "{end}.index.0badcafe.cleaned", "{base}.log.1.cleaned"])
def test_open_when_a_crash_left_an_unpublished_segment_then_removes_it(store: Path, name: str) -> None:
    """Where the first batch of a micro-batch rolls, neither size nor name of a published file shows the crash."""
    state = next(iter(Ledger.open(store / "ledger").states().values()))
    log = store / "logs" / f"events-{state.partition}"
    before = contents(store / "logs")
    left = log / name.format(end=f"{state.log_end_offset:020}", base=f"{state.active_base_offset:020}")
    left.write_bytes(b"half a batch")
    (store / "writer.lock").write_text('{"pid": 1}')

    open_events(store).close()

    assert contents(store / "logs") == before


def test_open_when_unpublished_files_of_closed_segments_lie_there_then_leaves_them(store: Path) -> None:
    """They are a cleaner's work."""
    left = store / "logs" / "events-0" / f"{0:020}.log.cleaned"
    left.write_bytes(b"half a segment")
    (store / "writer.lock").write_text('{"pid": 1}')

    open_events(store).close()

    assert left.exists()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("tail", [bytes(24), b"\x7f" * 24, b"\0\0\0", b"\x7f" * 25])
def test_open_when_an_index_ends_behind_the_log_then_is_cut(store: Path, suffix: str, tail: bytes) -> None:
    """A power cut can keep index entries whose batches it took, or leave zeros for entries."""
    before = contents(store / "logs")
    path = sorted((store / "logs" / "events-1").glob(f"*{suffix}"))[-1]
    path.write_bytes(path.read_bytes() + tail)
    (store / "writer.lock").write_text('{"pid": 1}')

    open_events(store).close()

    assert contents(store / "logs") == before


def test_open_when_preserved_segments_lie_behind_a_gap_then_another_mode_sees_them_too(memory_path: Path) -> None:
    """What a mirror's crash left is undone by whichever sink opens the store next."""
    store = memory_path / "store"
    open_events(store, offsets="preserved").close()
    before = contents(store / "logs")
    (store / "logs" / "events-0" / f"{5000:020}.log").write_bytes(b"uncommitted")
    (store / "writer.lock").write_text('{"pid": 1}')

    open_events(store).close()

    assert contents(store / "logs") == before


def test_open_when_partitions_grow_then_makes_the_new_logs_where_the_fewest_are(memory_path: Path) -> None:
    """A new log goes to the log directory with the fewest logs, in the order in which they are named."""
    store = memory_path / "store"
    log_dirs = ("logs", "disk-2", str(memory_path / "elsewhere"))
    open_store(store, {"a": {"partitions": 2}}, log_dirs=("logs",)).close()

    open_store(store, {"a": {"partitions": 5}, "b": {"partitions": 2}}, log_dirs=log_dirs).close()

    where = {str(log): state.log_dir for log, state in Ledger.open(store / "ledger").states().items()}
    assert where == {
        "a-0": "logs",
        "a-1": "logs",
        "a-2": "disk-2",
        "a-3": str(memory_path / "elsewhere"),
        "a-4": "disk-2",
        "b-0": str(memory_path / "elsewhere"),
        "b-1": "logs",
    }
    for root in (store / "logs", store / "disk-2", memory_path / "elsewhere"):
        assert "cluster.id" in (root / "meta.properties").read_text()
        assert (root / "recovery-point-offset-checkpoint").exists()


def test_open_when_a_log_directory_names_no_store_or_where_it_was_then_it_names_this_one(memory_path: Path) -> None:
    """One written by an earlier release, and one of a store that was moved since; also where new logs no longer go."""
    disk = memory_path / "disk"
    open_store(memory_path / "before", {"a": {"partitions": 2}}, log_dirs=("logs", str(disk))).close()
    store = (memory_path / "before").rename(memory_path / "store")
    assert store_of((disk / "meta.properties").read_bytes()) == str(memory_path / "before")
    lines = (store / "logs" / "meta.properties").read_bytes().splitlines(keepends=True)
    (store / "logs" / "meta.properties").write_bytes(b"".join(line for line in lines if b"sparklog" not in line))

    open_store(store, {"a": {"partitions": 2}}, log_dirs=("logs",)).close()

    assert (store / "logs" / "meta.properties").read_bytes().splitlines()[:-1] == [line.rstrip() for line in lines[:-1]]
    for root in (store / "logs", disk):
        assert store_of((root / "meta.properties").read_bytes()) == str(store)


def test_open_when_partitions_shrink_then_refused_and_nothing_changes(store: Path) -> None:
    """Kafka's topics can't shrink."""
    before = contents(store / "logs")

    with pytest.raises(InvalidConfigError, match=r"topics.events: partitions=1, but the store has 2: .*can't shrink"):
        open_store(store, {"events": {"partitions": 1}})

    assert contents(store / "logs") == before
