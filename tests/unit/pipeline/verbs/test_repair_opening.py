"""Behind a repair a store is as behind every other opening: what a crash left is undone for good."""

import os
import random
from contextlib import closing
from pathlib import Path

import pytest

from sparklog.pipeline.verbs.repair import RepairOptions, RepairResult, execute_repair
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.log.files.names import LOG
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import (
    in_process,
    log_directories,
    numbers,
    open_events,
    open_store,
    rows,
    stored_numbers,
)
from tests.faults.shadow import Shadow, write_image
from tests.faults.system_calls import watched

_IMAGES = 30


def _repair(store: Path) -> RepairResult:
    return execute_repair(store, RepairOptions(jobs=1), ManualClock(), lambda _step: None)


def _die(store: Path) -> None:
    """Leave the signature of a writer that had begun."""
    dead = WriterLock.acquire(store / "writer.lock")
    dead.begin()
    dead.release()


def test_repair_when_the_power_goes_behind_it_then_what_a_dead_writer_had_cut_stays_cut(memory_path: Path) -> None:
    """The writer may have died between the cut and its sync: there is nothing left to cut, and nothing is durable."""
    store = memory_path / "store"
    with closing(open_events(store)) as sink:
        sink.append("q", 0, in_process(numbers(0, 60)))
    _die(store)
    active = max(log_directories(store)["events-0"].glob(f"*{LOG}"))
    committed = active.stat().st_size
    with active.open("ab") as file:
        file.write(b"an unfinished micro-batch")
    shadow = Shadow(store)

    with watched(store, shadow):
        os.truncate(active, committed)
        assert _repair(store).is_sound
        moment = shadow.moment()

    for seed in range(_IMAGES):
        image = memory_path / f"image-{seed}"
        write_image(moment, image, random.Random(seed).randrange)
        open_events(image).close()
        assert stored_numbers(image) == list(range(60))


def test_repair_when_a_disk_is_away_then_its_logs_get_a_close_look_once_it_is_back(memory_path: Path) -> None:
    """The other logs are as their owner left them, so the store is signed off; what the disk needs is noted."""
    store, disks = memory_path / "s", (memory_path / "a", memory_path / "b")
    names = tuple(str(disk) for disk in disks)
    with closing(open_store(store, {"t": {"partitions": 2}}, topic="t", log_dirs=names)) as sink:
        sink.append("q", 0, in_process(rows(partition=[0, 1], value=["x", "y"])))
    _die(store)
    disks[1].rename(memory_path / "away")

    assert not _repair(store).is_sound

    assert not WriterLock.owner_crashed(store / "writer.lock")
    assert {state.log_dir for state in Ledger.open(store / "ledger").all_states() if state.owes} == {names[1]}


def test_repair_when_a_log_has_two_directories_then_is_refused_as_every_opening(memory_path: Path) -> None:
    """Nobody can tell which of the two is the log, so the store is not called sound, and the crash is not settled."""
    store, disks = memory_path / "s", (memory_path / "a", memory_path / "b")
    names = tuple(str(disk) for disk in disks)
    settings: dict[str, dict[str, object]] = {"t": {"partitions": 2}}
    with closing(open_store(store, settings, topic="t", log_dirs=names)) as sink:
        sink.append("q", 0, in_process(rows(partition=[0, 1], value=["x", "y"])))
    _die(store)
    (disks[1] / "t-0").mkdir()

    for access in (lambda: open_store(store, settings, topic="t", log_dirs=names), lambda: _repair(store)):
        with pytest.raises(InvalidConfigError, match="a log has two directories"):
            access()

    assert WriterLock.owner_crashed(store / "writer.lock")


def test_repair_when_a_foreign_folder_lies_among_logs_then_says_so_and_settles_nothing(
    memory_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is left keeps the store from being opened: the damage is mended, and the next opening looks closely."""
    store = memory_path / "store"
    with closing(open_events(store)) as sink:
        sink.append("q", 0, in_process(numbers(0, 60)))
    index = next(log_directories(store)["events-0"].glob("*.timeindex"))
    index.unlink()
    (store / "logs" / "photos").mkdir()

    result = _repair(store)

    assert [each.file for each in result.left] == ["photos"]
    assert index.exists()
    assert "a folder among logs is not a topic-partition" in caplog.text
    assert WriterLock.owner_crashed(store / "writer.lock")
    (store / "logs" / "photos").rmdir()
    assert _repair(store).is_sound
    assert not WriterLock.owner_crashed(store / "writer.lock")
