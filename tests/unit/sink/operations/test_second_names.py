"""Files of a store that have a second name, as closed segments of a mount and hard-linked backups: only read."""

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.opening.access import maintaining
from sparklog.sink.operations.roll_active import roll_without_sink
from sparklog.sink.operations.truncate_logs import truncate_fully_and_start_at
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.log.files.names import LOG
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.compacted_store import clean, write_keyed
from tests.build.sink_store import contents, in_process, numbers, open_events, stored_numbers
from tests.build.truncated import truncate_to
from tests.sparklog_command import Sparklog

_LOG = TopicPartition("events", 0)


@pytest.fixture
def store(memory_path: Path) -> Path:
    """A closed store with 0..99 in `events`."""
    store = memory_path / "store"
    with closing(open_events(store)) as writer:
        writer.append("q", 0, in_process(numbers(0, 100)))
    return store


def _append(store: Path) -> None:
    with closing(open_events(store)) as writer:
        writer.append("q", 1, in_process(numbers(100, 120)))


def _append_by_force(store: Path) -> None:
    with closing(open_events(store, take_lock_by_force=True)) as writer:
        writer.append("q", 1, in_process(numbers(100, 120)))


def _truncate_inside_a_closed_segment(store: Path) -> None:
    truncate_to(store, _LOG, 13, SystemClock())
    _append(store)


def _truncate_at_the_end_of_a_closed_segment(store: Path) -> None:
    first, second = sorted((store / "logs" / str(_LOG)).glob(f"*{LOG}"))[:2]
    assert first.stat().st_nlink == 2
    truncate_to(store, _LOG, int(second.stem), SystemClock())
    _append(store)


def _truncate_fully(store: Path) -> None:
    truncate_fully_and_start_at(store, _LOG, 7, SystemClock())
    _append(store)


def _drop_a_partial_write(store: Path) -> None:
    state = Ledger.open(store / "ledger").states()[_LOG]
    active = store / "logs" / str(_LOG) / f"{state.active_base_offset:020}"
    for suffix in (".log", ".index", ".timeindex"):
        with active.with_suffix(suffix).open("ab") as file:
            file.write(b"torn" * 6)
    (store / "writer.lock").write_text('{"pid": 1}')
    open_events(store).close()


def _roll(store: Path) -> None:
    with maintaining(store) as maintained:
        assert roll_without_sink(maintained, [_LOG], SystemClock())


@pytest.mark.parametrize(
    "change",
    [
        _append,
        _append_by_force,
        _truncate_inside_a_closed_segment,
        _truncate_at_the_end_of_a_closed_segment,
        _truncate_fully,
        _roll,
    ],
)
def test_store_when_its_files_have_a_second_name_then_what_changes_it_leaves_their_bytes(
    store: Path, memory_path: Path, sparklog: Sparklog, change: Callable[[Path], None]
) -> None:
    """A broker that got closed segments as links, or a backup by links, must not see later appends and cuts."""
    other = _linked(store, memory_path)
    before = contents(other)

    change(store)

    assert contents(other) == before
    assert sparklog("verify", store).code == 0


def test_opening_when_a_torn_file_has_a_second_name_then_it_is_cut_under_its_own_name_only(
    store: Path, memory_path: Path, sparklog: Sparklog
) -> None:
    """The bytes of the second name stay, also those past the committed end."""
    other = _linked(store, memory_path)

    _drop_a_partial_write(store)

    torn = [path for path, content in contents(other).items() if content.endswith(b"torn")]
    assert len(torn) == 3
    assert stored_numbers(store) == list(range(100))
    assert sparklog("verify", store).code == 0


def test_cleaning_when_files_have_a_second_name_then_it_leaves_their_bytes(memory_path: Path) -> None:
    """It writes new segments and removes the old ones' names."""
    store = write_keyed(memory_path / "store")
    other = _linked(store, memory_path)
    before = contents(other)

    clean(store)

    assert contents(other) == before


def _linked(store: Path, folder: Path) -> Path:
    """Return a folder with a second name of each file of the logs."""
    other = folder / "other"
    for path in (store / "logs").rglob("*"):
        if path.is_file() and path.name != ".lock":
            target = other / path.relative_to(store / "logs")
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, target)
    return other
