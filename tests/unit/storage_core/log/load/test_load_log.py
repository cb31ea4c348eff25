"""Loading a log directory: what is recovered, cut, deleted and made."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.storage_core.checkpoint.leader_epochs import parse_leader_epochs
from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.log.load.load_log import LoadedLog
from sparklog.storage_core.log.read.log_reader import LogReader
from tests.build.damaged_store import change
from tests.build.golden import GoldenLog, golden_logs
from tests.build.loaded_log import execute_load, plan_load
from tests.build.sink_store import contents
from tests.build.written_log import Batch, WrittenLog, write_log


def _name(base: int, suffix: str) -> str:
    return f"{base:020d}{suffix}"


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    """Four segments of five batches of three records, offsets 0, 15, 30 and 45, log end 60."""
    segments = [[Batch([s * 100 + b * 3 + n for n in range(3)]) for b in range(5)] for s in range(4)]
    return write_log(tmp_path / "t-0", segments)


def _offsets(directory: Path) -> list[int]:
    reader = LogReader(directory)
    return [offset for batch in reader.read(reader.log_start_offset) for offset in batch["offset"].to_pylist()]


def _steps(loaded: LoadedLog) -> dict[str, str]:
    return {step.file: step.what for step in loaded.steps}


def _flip(path: Path, position: int) -> None:
    change(path, lambda data: data.__setitem__(position, data[position] ^ 1))


def _segment_files(directory: Path) -> dict[str, bytes]:
    kept = (".log", ".index", ".timeindex", ".txnindex")
    return {name: content for name, content in contents(directory).items() if name.endswith(kept)}


def test_load_log_when_it_is_sound_then_changes_no_segment(log: WrittenLog) -> None:
    """An unclean load of a log in order writes the snapshots that a broker writes, and nothing else."""
    before = contents(log.directory)

    loaded = execute_load(log.directory)

    assert (loaded.log_start_offset, loaded.log_end_offset, loaded.recovery_point) == (0, 60, 0)
    assert loaded.base_offsets == (0, 15, 30, 45)
    assert set(_steps(loaded)) == {_name(offset, ".snapshot") for offset in (15, 30, 45, 60)}
    after = contents(log.directory)
    assert {name: after[name] for name in before} == before


def test_load_log_when_shut_down_cleanly_then_recovers_nothing(log: WrittenLog) -> None:
    """Indexes are believed as they are; without any snapshot, empty ones say that there are no producers."""
    (log.directory / _name(15, ".index")).write_bytes(b"12345678")

    loaded = execute_load(log.directory, is_clean=True, recovery_point=7)

    assert (log.directory / _name(15, ".index")).read_bytes() == b"12345678"
    assert (loaded.log_end_offset, loaded.recovery_point) == (60, 60)
    assert set(_steps(loaded)) == {_name(offset, ".snapshot") for offset in (30, 45, 60)}


@pytest.mark.parametrize("tail", [b"torn", bytes(50), bytes(5000)], ids=["torn", "zeros", "many zeros"])
def test_load_log_when_the_tail_is_torn_then_cuts_it(log: WrittenLog, tail: bytes) -> None:
    """Nothing of the log is lost; the step says what was cut and where."""
    path = log.directory / _name(45, ".log")
    whole = path.read_bytes()
    path.write_bytes(whole + tail)

    loaded = execute_load(log.directory)

    assert path.read_bytes() == whole
    assert loaded.log_end_offset == 60
    assert f"cut at position {len(whole)}, {len(tail)} bytes" in _steps(loaded)[path.name]
    assert loaded.lost_bytes == len(tail)


def test_load_log_when_damage_lies_in_the_middle_then_the_log_ends_there(log: WrittenLog) -> None:
    """As in Kafka: cut at the damage, every later segment deleted, each named with its offsets and bytes."""
    _, position, _, base, _ = log.batches[7]
    _flip(log.directory / _name(15, ".log"), position + 70)
    later = sum((log.directory / _name(each, ".log")).stat().st_size for each in (30, 45))

    loaded = execute_load(log.directory)

    assert loaded.log_end_offset == base
    assert loaded.base_offsets == (0, 15)
    assert _offsets(log.directory) == list(range(base))
    steps = _steps(loaded)
    assert "wrong CRC" in steps[_name(15, ".log")]
    assert "offsets 30 to 44: damage before it" in steps[_name(30, ".log")]
    assert "offsets 45 to 59" in steps[_name(45, ".log")]
    assert loaded.lost_bytes > later
    assert {_name(each, ".log.deleted") for each in (30, 45)} <= set(contents(log.directory))


def test_load_log_when_damage_lies_below_the_recovery_point_then_does_not_look(log: WrittenLog) -> None:
    """What was flushed is taken on trust; only the segments from the recovery point on are read."""
    _flip(log.directory / _name(15, ".log"), 70)

    loaded = execute_load(log.directory, recovery_point=50)

    assert loaded.log_end_offset == 60
    assert loaded.recovery_point == 50
    assert len(loaded.base_offsets) == 4


def test_load_log_when_the_recovery_point_lies_behind_the_end_then_it_is_the_end(log: WrittenLog) -> None:
    """A recovery never moves it up, but it can't lie behind the log's end."""
    change(log.directory / _name(45, ".log"), lambda data: data.__delitem__(slice(-3, None)))

    assert execute_load(log.directory, recovery_point=60).recovery_point == 57


@pytest.mark.parametrize("is_clean", [True, False])
def test_load_log_when_an_offset_index_is_missing_then_that_segment_is_recovered(
    log: WrittenLog, is_clean: bool
) -> None:
    """Both indexes are built, even after a clean shutdown and below the recovery point."""
    before = _segment_files(log.directory)
    (log.directory / _name(15, ".index")).unlink()
    (log.directory / _name(15, ".timeindex")).write_bytes(b"")

    execute_load(log.directory, is_clean=is_clean, recovery_point=60)

    assert _segment_files(log.directory) == before


def test_load_log_when_a_segment_without_index_is_damaged_then_leaves_a_gap_as_kafka_does(log: WrittenLog) -> None:
    """It is cut because of its index, not because of the shutdown: nobody asks for the later segments."""
    (log.directory / _name(15, ".index")).unlink()
    _, position, _, base, _ = log.batches[7]
    _flip(log.directory / _name(15, ".log"), position + 70)

    loaded = execute_load(log.directory)

    assert loaded.log_end_offset == 60
    assert f"offsets {base} to 29: wrong CRC; the segments above it stay" in _steps(loaded)[_name(15, ".log")]
    assert _offsets(log.directory) == [*range(base), *range(30, 60)]


def test_load_log_when_a_time_index_is_missing_then_an_empty_one_is_made_on_trust(log: WrittenLog) -> None:
    """Nobody looks into the segment for it; a segment that is recovered gets a whole one."""
    before = _segment_files(log.directory)
    for base in (15, 45):
        (log.directory / _name(base, ".timeindex")).unlink()

    execute_load(log.directory, recovery_point=45)

    assert _segment_files(log.directory) == before | {_name(15, ".timeindex"): b""}


def test_load_log_when_an_index_has_no_log_then_it_goes(log: WrittenLog) -> None:
    """Whatever kind of index it is."""
    for suffix in (".index", ".timeindex", ".txnindex"):
        (log.directory / _name(7, suffix)).write_bytes(b"")

    loaded = execute_load(log.directory)

    assert not [name for name in contents(log.directory) if name.startswith(_name(7, ""))]
    assert len([what for what in _steps(loaded).values() if "without its log" in what]) == 3


def test_load_log_when_a_transaction_index_is_damaged_then_that_segment_is_recovered(log: WrittenLog) -> None:
    """An entry below the segment's base can't be right; an empty file is what the segment needs."""
    (log.directory / _name(15, ".txnindex")).write_bytes(bytes(34))

    execute_load(log.directory, is_clean=True)

    assert (log.directory / _name(15, ".txnindex")).read_bytes() == b""


def test_load_log_when_it_ends_below_its_start_then_starts_anew(log: WrittenLog) -> None:
    """Segments were taken away from outside: what is left is no part of the log, which is empty at its start."""
    loaded = execute_load(log.directory, log_start_offset=100)

    assert (loaded.log_start_offset, loaded.log_end_offset, loaded.base_offsets) == (100, 100, (100,))
    assert _segment_files(log.directory) == {_name(100, suffix): b"" for suffix in (".log", ".index", ".timeindex")}
    assert loaded.leader_epochs == ()
    assert parse_leader_epochs((log.directory / "leader-epoch-checkpoint").read_bytes()) == []
    assert "below its start 100" in _steps(loaded)[_name(45, ".log")]


def test_load_log_when_there_is_no_segment_then_makes_one_at_the_start(tmp_path: Path) -> None:
    """A directory that a crash left empty is an empty log."""
    (tmp_path / "t-0").mkdir()

    loaded = execute_load(tmp_path / "t-0", log_start_offset=7)

    assert (loaded.log_start_offset, loaded.log_end_offset, loaded.recovery_point) == (7, 7, 0)
    assert set(contents(tmp_path / "t-0")) == {_name(7, suffix) for suffix in (".log", ".index", ".timeindex")}


def test_load_log_when_the_start_lies_inside_a_segment_then_epochs_begin_there(log: WrittenLog) -> None:
    """The checkpointed start counts, and the epoch that was valid there starts there."""
    loaded = execute_load(log.directory, log_start_offset=20)

    assert (loaded.log_start_offset, loaded.base_offsets[0]) == (20, 0)
    assert loaded.leader_epochs == ((0, 20),)
    assert set(_steps(loaded)) == {"leader-epoch-checkpoint", *(_name(at, ".snapshot") for at in (30, 45, 60))}


def test_load_log_when_snapshots_are_stray_then_they_go(log: WrittenLog) -> None:
    """Those of no segment, of an offset outside the log, or damaged; whoever loads next finds none of them."""
    for offset in (3, 15, 47, 99):
        (log.directory / _name(offset, ".snapshot")).write_bytes(b"damaged")

    execute_load(log.directory)

    snapshots = {name for name in contents(log.directory) if name.endswith(".snapshot")}
    assert snapshots == {_name(offset, ".snapshot") for offset in (15, 30, 45, 60)}
    assert not execute_load(log.directory).steps


@pytest.mark.parametrize("tail", [b"torn", bytes(50), b"\xff" * 80])
def test_load_log_when_a_clean_log_ends_in_no_batch_then_refuses(log: WrittenLog, tail: bytes) -> None:
    """The marker promised whole batches: the file is named and nothing is changed: appends would follow the tail."""
    path = log.directory / _name(45, ".log")
    change(path, lambda data: data.extend(tail))
    before = contents(log.directory)

    with pytest.raises(CorruptFileError, match=f"shut down cleanly.*{path.name}"):
        execute_load(log.directory, is_clean=True)

    assert contents(log.directory) == before


def test_load_log_when_the_epoch_file_is_damaged_then_names_it(log: WrittenLog) -> None:
    """Its entries can't be guessed."""
    (log.directory / "leader-epoch-checkpoint").write_bytes(b"0\n3\n0 0\n")

    with pytest.raises(CorruptFileError, match="leader-epoch-checkpoint"):
        execute_load(log.directory)


def _unindex_and_flip(log: WrittenLog) -> None:
    (log.directory / _name(15, ".index")).unlink()
    _flip(log.directory / _name(15, ".log"), 200)


def _flip_and_swap(log: WrittenLog) -> None:
    _flip(log.directory / _name(15, ".log"), 200)
    (log.directory / _name(30, ".log")).rename(log.directory / _name(30, ".log.swap"))


_DAMAGES: dict[str, Callable[[WrittenLog], object]] = {
    "nothing": lambda _log: None,
    "torn": lambda log: change(log.directory / _name(45, ".log"), lambda data: data.extend(b"torn")),
    "middle": lambda log: _flip(log.directory / _name(15, ".log"), 200),
    "first batch": lambda log: _flip(log.directory / _name(0, ".log"), 70),
    "no index": lambda log: (log.directory / _name(15, ".index")).unlink(),
    "no index, and damage": _unindex_and_flip,
    "swap": lambda log: [
        (log.directory / _name(15, suffix)).rename(log.directory / _name(15, suffix + ".swap"))
        for suffix in (".log", ".index")
    ],
    "swap behind damage": _flip_and_swap,
    "cleaned": lambda log: (log.directory / _name(15, ".log.cleaned")).write_bytes(b"half"),
    "deleted": lambda log: (log.directory / _name(45, ".log")).rename(log.directory / _name(45, ".log.deleted")),
}


@pytest.mark.parametrize(
    ("damage", "is_clean"),
    [(damage, is_clean) for damage in _DAMAGES for is_clean in (False, True) if (damage, is_clean) != ("torn", True)],
)
def test_plan_when_compared_with_what_is_done_then_says_the_same(log: WrittenLog, damage: str, is_clean: bool) -> None:
    """A plan changes nothing, and tells the steps and offsets of the loading that follows it."""
    _DAMAGES[damage](log)
    before = contents(log.directory)

    planned = plan_load(log.directory, is_clean=is_clean)

    assert contents(log.directory) == before
    done = execute_load(log.directory, is_clean=is_clean)
    assert [(step.file.removesuffix(".swap"), step.what) for step in planned.steps] == [
        (step.file.removesuffix(".swap"), step.what) for step in done.steps
    ]
    facts = ("log_start_offset", "log_end_offset", "recovery_point", "base_offsets", "leader_epochs")
    assert [getattr(planned, each) for each in facts] == [getattr(done, each) for each in facts]


@pytest.mark.parametrize("damage", _DAMAGES)
def test_load_log_when_done_then_a_second_one_only_removes_what_was_deleted(log: WrittenLog, damage: str) -> None:
    """A loaded log is sound: nothing else is left to do."""
    _DAMAGES[damage](log)
    first = execute_load(log.directory)

    again = execute_load(log.directory)

    assert all(step.file.endswith(".deleted") for step in again.steps)
    assert (again.log_end_offset, again.base_offsets) == (first.log_end_offset, first.base_offsets)


@pytest.mark.parametrize("golden", golden_logs())
@pytest.mark.parametrize("is_clean", [True, False])
def test_load_log_when_a_broker_wrote_it_then_keeps_every_batch(
    golden: GoldenLog, tmp_path: Path, is_clean: bool
) -> None:
    """Sound logs of every format keep every byte and offset, whether they were shut down cleanly or not."""
    directory = Path(shutil.copytree(golden.directory, tmp_path / golden.directory.name))
    logs = {path.name: path.read_bytes() for path in directory.glob("*.log")}

    loaded = execute_load(directory, is_clean=is_clean, index_interval_bytes=4096)

    assert {path.name: path.read_bytes() for path in directory.glob("*.log")} == logs
    assert loaded.lost_bytes == 0
    assert loaded.log_end_offset == LogReader(directory).log_end_offset
