"""When a sink writes a cut, what is in it, and how long it stays."""

import shutil
from pathlib import Path

import pytest

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.past.cuts import CutTable, cuts_path
from sparklog.sink.past.write_cuts import due_cut
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import InvalidConfigError
from tests.build.cut_store import HOUR_MS, LOG, MINUTE_MS, NOON_MS, append_by_clock, cut_ends, opened
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import in_process, numbers, open_store
from tests.faults.fault_plan import Fault, FaultPlan
from tests.faults.system_calls import watched


@pytest.mark.parametrize(
    ("committed", "newest", "now", "cut"),
    [
        (10, None, 59, None),
        (10, None, 60, 60),
        (10, None, 200, 60),
        (60, None, 119, None),
        (60, None, 120, 120),
        (10, 60, 100, None),
        (10, 60, 130, 120),
        (70, 60, 130, 120),
        (10, 600, 300, None),
        (500, None, 100, None),
        (0, None, 0, None),
    ],
)
def test_due_cut_when_asked_then_the_first_multiple_after_commit_and_newest_cut(
    committed: int, newest: int | None, now: int, cut: int | None
) -> None:
    """A cut is never of the future, never of a moment before its state, and never of a moment that has one."""
    assert due_cut(committed, newest, now, 60) == cut


def test_sink_when_hours_pass_then_each_cut_holds_what_was_committed_by_then(tmp_path: Path) -> None:
    """The first commit after an hour writes what was there before it; idle hours have no cut of their own."""
    append_by_clock(tmp_path / "s", [10, 50, 70, 80, 115, 125, 400, 410])

    assert cut_ends(tmp_path / "s") == {60: 20, 120: 50, 180: 60}


def test_cut_when_read_then_names_version_and_micro_batch_of_its_moment(tmp_path: Path) -> None:
    """A cut is the rows of one version of the ledger; without a mirror no micro-batch has groups."""
    store, clock = tmp_path / "s", ManualClock(NOON_MS)
    with opened(store, clock) as writer:
        writer.append("q", 6, in_process(numbers(0, 10)))
        before = Ledger.open(Store.find(store).ledger_path)
        clock.advance(HOUR_MS)
        writer.append("q", 7, in_process(numbers(10, 20)))

    cut = CutTable(cuts_path(store)).read(NOON_MS + HOUR_MS)

    assert (cut.ledger_version, cut.query_id, cut.batch_id) == (before.version, "", -1)
    assert dict(cut.rows.states) == before.states()


def test_sink_when_cuts_are_older_than_they_are_kept_then_dropped_but_for_one_of_that_moment(tmp_path: Path) -> None:
    """Each moment that is kept has a cut that is not later."""
    minutes = [10, *range(60, 600, 60)]
    append_by_clock(tmp_path / "s", minutes, keep="2h")

    assert [*cut_ends(tmp_path / "s")] == [420, 480, 540]


def test_sink_when_a_much_shorter_keep_is_set_then_ten_cuts_go_at_a_time(tmp_path: Path) -> None:
    """Each is a commit of its own, and a micro-batch must not wait for hundreds."""
    minutes = [10, *range(60, 60 * 16, 60)]
    append_by_clock(tmp_path / "s", minutes)
    assert len(cut_ends(tmp_path / "s")) == 15

    append_by_clock(tmp_path / "s", [*minutes, 960], keep="0m")
    assert len(cut_ends(tmp_path / "s")) == 6
    append_by_clock(tmp_path / "s", [*minutes, 960, 1020], keep="0m")

    assert cut_ends(tmp_path / "s") == {1020: 170}


def test_sink_when_cuts_are_off_then_makes_no_table(tmp_path: Path) -> None:
    """Who wants none has no table."""
    append_by_clock(tmp_path / "s", [0, 60, 120], every="never")

    assert not cuts_path(tmp_path / "s").exists()


def test_sink_when_the_clock_is_set_back_then_writes_no_cut_until_it_has_passed_the_newest(tmp_path: Path) -> None:
    """A moment that has a cut keeps it."""
    append_by_clock(tmp_path / "s", [10, 70, 5, 65, 130])

    assert cut_ends(tmp_path / "s") == {60: 10, 120: 40}


def test_sink_when_opened_again_then_the_idle_hours_have_the_cut_of_their_first(tmp_path: Path) -> None:
    """The rows say when they changed last."""
    append_by_clock(tmp_path / "s", [10, 70])
    append_by_clock(tmp_path / "s", [10, 70, 500])

    assert cut_ends(tmp_path / "s") == {60: 10, 120: 20}


@pytest.mark.parametrize("damage", ["entry", "data", "folder", "disk"])
def test_sink_when_a_cut_can_not_be_written_then_warns_once_and_commits(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No record depends on a cut, and one that failed is not tried again by each commit."""
    store, clock = tmp_path / "s", ManualClock(NOON_MS)
    with opened(store, clock) as writer:
        writer.append("q", 0, in_process(numbers(0, 10)))
        clock.advance(HOUR_MS)
        writer.append("q", 1, in_process(numbers(10, 20)))
        clock.advance(HOUR_MS)
        if damage == "entry":
            next((cuts_path(store) / "_delta_log").glob("*0.json")).write_bytes(b"{}")
        elif damage == "folder":
            shutil.rmtree(cuts_path(store))
            cuts_path(store).write_bytes(b"")
        elif damage == "data":
            for path in cuts_path(store).glob("*.parquet"):
                path.unlink()
        with watched(cuts_path(store), FaultPlan(Fault("fsync", 1) if damage == "disk" else None)):
            writer.append("q", 2, in_process(numbers(20, 30)))
        clock.advance(MINUTE_MS)
        writer.append("q", 3, in_process(numbers(30, 40)))

    assert caplog.text.count("A cut was not written or dropped, the next one is tried when it is due") == 1
    assert Ledger.open(Store.find(store).ledger_path).states()[LOG].log_end_offset == 40


def test_opening_when_the_newest_cut_is_torn_then_dropped_and_written_again(tmp_path: Path) -> None:
    """A power cut may tear the newest entry of the table, or the one that made it."""
    store, clock = tmp_path / "s", ManualClock(NOON_MS)
    writer = open_store(store, {"t": {}}, topic="t", clock=clock)
    for batch_id in range(3):
        writer.append("q", batch_id, in_process(numbers(batch_id * 10, batch_id * 10 + 10)))
        clock.advance(HOUR_MS)
    entry = max((cuts_path(store) / "_delta_log").glob("*.json"))
    entry.write_bytes(entry.read_bytes()[:40])
    writer._lock.release()  # type: ignore[union-attr]  # crashed

    with opened(store, clock) as writer:
        writer.append("q", 3, in_process(numbers(30, 40)))

    assert cut_ends(store) == {60: 10, 180: 30}


@pytest.mark.parametrize(
    ("cuts", "problem"),
    [
        ({"every": "1 hour"}, "cuts.every: '1 hour' is no duration such as 1h or 7d"),
        ({"every": "10ms"}, "cuts.every: '10ms' is no duration such as 1h or 7d, of at least 1000 ms"),
        ({"keep": "never"}, "cuts.keep: 'never' is no duration"),
        ({"every": "1m"}, "cuts.keep: more than 2,000 cuts at one each cuts.every"),
        ({"often": "1h"}, "cuts.often: unknown key; known are every and keep"),
    ],
)
def test_cut_settings_when_wrong_then_the_key_is_named(tmp_path: Path, cuts: dict[str, str], problem: str) -> None:
    """A wrong setting is refused before anything is made."""
    with pytest.raises(InvalidConfigError, match=problem):
        open_store(tmp_path / "s", {"t": {}}, topic="t", cuts=cuts)
    assert not (tmp_path / "s").exists()


def test_cut_settings_when_given_then_in_ms(tmp_path: Path) -> None:
    """Minutes are 60,000 ms."""
    append_by_clock(tmp_path / "s", [1, 16], every="15m", keep="1d")

    assert CutTable(cuts_path(tmp_path / "s")).times() == [NOON_MS + 15 * MINUTE_MS]
