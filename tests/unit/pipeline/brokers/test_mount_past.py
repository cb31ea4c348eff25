"""`sparklog mount --as-of`: the files of an earlier state, whatever has become of its segments since."""

from contextlib import closing
from pathlib import Path

import pytest

from sparklog.sink.ledger.lost_ranges import LostRange, LostRangeTable
from sparklog.storage_core.quantity_text import iso_time
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.cut_store import HOUR_MS, NOON_MS
from tests.build.ledger_rows import change_row
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import contents, in_process, log_directories, numbers, open_events, read_log
from tests.sparklog_command import Sparklog

_HOURS = 6
_EACH = 30


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of several segments; thirty numbers an hour."""
    path, clock = tmp_path / "store", ManualClock(NOON_MS)
    with closing(open_events(path, clock=clock)) as writer:
        for hour in range(_HOURS):
            writer.append("q", hour, in_process(numbers(hour * _EACH, (hour + 1) * _EACH)))
            clock.advance(HOUR_MS)
    return path


def _hour(number: int) -> str:
    return iso_time(NOON_MS + number * HOUR_MS)


def _mounted_numbers(data: Path) -> list[int]:
    """Return the numbers of all mounted logs, sorted."""
    found = [record for directory in data.glob("events-*") for record in read_log(directory)]
    return sorted(int(record.value or b"-1") for record in found)


@pytest.mark.parametrize("hour", range(1, _HOURS))
def test_mount_when_as_of_a_cut_then_its_records_and_sound_files(
    store: Path, tmp_path: Path, sparklog: Sparklog, hour: int
) -> None:
    """Wherever the cut lies in its segment: each record of then, no byte above; the store stays as it is."""
    before = contents(store, without=("maintenance.lock",))

    ran = sparklog("mount", store, "--new-cluster", "--out", tmp_path / "out", "--as-of", _hour(hour), "--execute")

    data = tmp_path / "out" / "data"
    assert ran.code == 0, ran.err
    assert f"cut of {_hour(hour)}, ledger version" in ran.out
    assert _mounted_numbers(data) == [*range(hour * _EACH)]
    assert sparklog("verify", data).code == 0
    assert contents(store, without=("maintenance.lock",)) == before


def test_mount_when_the_cut_segment_was_linked_then_it_would_share_bytes_so_it_is_a_copy(
    store: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """A broker appends to the last segment of a mount, which is a closed one of the store."""
    ran = sparklog("mount", store, "--new-cluster", "--out", tmp_path / "out", "--as-of", _hour(2), "--execute")
    assert ran.code == 0, ran.err

    for name, directory in log_directories(store).items():
        mounted = sorted((tmp_path / "out" / "data" / name).glob("*.log"))
        assert not mounted[-1].samefile(directory / mounted[-1].name)


def test_mount_when_the_state_has_lost_its_beginning_then_starts_there_and_warns(
    store: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """The log starts where the store's log does; the offsets that went are named."""
    [log] = [each for each in log_directories(store) if each == "events-0"]
    assert sparklog("delete-records", store, "events:0", "--before", 3, "--execute").code == 0

    ran = sparklog("mount", store, "--new-cluster", "--out", tmp_path / "out", "--as-of", _hour(4), "--execute")

    assert ran.code == 0, ran.err
    assert f"warning: {log}: the records of offsets 0..2 were deleted since" in ran.out
    assert sparklog("verify", tmp_path / "out" / "data").code == 0
    assert "events 0 3" in (tmp_path / "out" / "data" / "log-start-offset-checkpoint").read_text()


def test_mount_when_the_state_has_passed_then_refused_and_nothing_is_there(
    store: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """Retention has gone past the end: the log, the cause and the oldest cut that is left."""
    change_row(store, TopicPartition("events", 1), compacted_offset=40)

    ran = sparklog("mount", store, "--new-cluster", "--out", tmp_path / "out", "--as-of", _hour(1), "--execute")

    assert ran.code == 2
    assert "log=events-1: compaction may have dropped records for later ones" in ran.err
    assert "the oldest cut that can be read is of" in ran.err
    assert not (tmp_path / "out").exists()


def test_mount_when_offsets_above_the_state_were_lost_then_mounted(
    store: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """A loss above the cut is none of it."""
    LostRangeTable(store / "control" / "lost_ranges").add(
        [
            LostRange(
                topic="events", partition=0, first_offset=70, last_offset=71, file="x", reason="wrong CRC", found_ms=1
            )
        ]
    )

    assert (
        sparklog("mount", store, "--new-cluster", "--out", tmp_path / "out", "--as-of", _hour(2), "--execute").code == 0
    )
    assert sparklog("mount", store, "--new-cluster", "--out", tmp_path / "new", "--execute").code == 2


@pytest.mark.parametrize(("as_of", "message"), [(_hour(0), "the oldest cut is of"), ("999", "newest_version=")])
def test_mount_when_there_is_no_such_state_then_refused_and_nothing_is_there(
    store: Path, tmp_path: Path, sparklog: Sparklog, as_of: str, message: str
) -> None:
    """What there is is named."""
    ran = sparklog("mount", store, "--new-cluster", "--out", tmp_path / "out", "--as-of", as_of, "--execute")

    assert (ran.code, message in ran.err, (tmp_path / "out").exists()) == (2, True, False)
