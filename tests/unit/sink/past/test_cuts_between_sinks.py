"""Cuts of moments between two runs of a sink, when another command has changed the store meanwhile."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sparklog.pipeline.brokers.import_logs import execute_import
from sparklog.pipeline.verbs.retain import execute_retention
from sparklog.sink.importing.import_logs import import_logs
from sparklog.sink.importing.plan_import import ImportChoice, plan_import
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.versions import AsOf
from sparklog.sink.opening.access import writing
from sparklog.sink.operations.delete_topic import delete_topic
from sparklog.sink.operations.retain_logs import LogRetention, plan_logs
from sparklog.sink.operations.truncate_logs import truncate_logs
from sparklog.sink.past.cuts import CutTable, cuts_path
from sparklog.sink.past.past_state import find_past
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.log.files.names import LOG as SEGMENT
from sparklog.storage_core.log.files.names import segment_file_name
from sparklog.storage_core.retention.plan_retention import plan_record_deletion
from tests.build.cut_store import HOUR_MS, LOG, MINUTE_MS, NOON_MS, append_by_clock, cut_ends, opened
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import in_process, numbers, open_store


def _at(minute: int) -> ManualClock:
    return ManualClock(NOON_MS + minute * MINUTE_MS)


def _logs(store: Path) -> dict[int, list[str]]:
    """Return the logs in each cut, by the minute after noon."""
    table = CutTable(cuts_path(store))
    return {(each - NOON_MS) // MINUTE_MS: sorted(map(str, table.read(each).rows.states)) for each in table.times()}


def _one_log(folder: Path, clock: ManualClock) -> ImportChoice:
    """Return the choice of a log `u-0`, which is made beside the store."""
    open_store(folder / "broker", {"u": {}}, clock=_at(0)).close()
    shutil.copytree(folder / "broker" / "logs" / "u-0", folder / "copy" / "u-0")
    return ImportChoice(folders=(folder / "copy",), now_ms=clock.now_ms())


def test_cuts_when_logs_are_imported_then_those_before_its_commit_do_not_have_them(tmp_path: Path) -> None:
    """An import is part of the store from its commit on, which may be hours after its plan."""
    store = tmp_path / "s"
    append_by_clock(store, [10])
    execute_import(store, _one_log(tmp_path, _at(55)), _at(170))

    append_by_clock(store, [10, 185])

    assert {minute: logs for minute, logs in _logs(store).items() if minute > 60 or "u-0" in logs} == {
        180: ["t-0", "u-0"]
    }


def test_cuts_when_a_full_hour_passes_while_an_import_copies_then_it_has_its_cut(tmp_path: Path) -> None:
    """A micro-batch came after the newest cut, so that one is older; what is only being copied is in no cut."""
    store, clock = tmp_path / "s", _at(115)
    append_by_clock(store, [10, 65, 75])
    choice = _one_log(tmp_path, clock)

    with writing(store) as written:
        plan = plan_import(written.store, written.ledger.states(), ("logs",), choice)
        import_logs(written, plan, clock, lambda: clock.set_wall(_at(230).now_ms() - clock.now_ms()), may_link=True)
    append_by_clock(store, [10, 65, 75, 245])

    assert cut_ends(store) == {60: 10, 120: 30, 240: 30}
    assert _logs(store) == {60: ["t-0"], 120: ["t-0"], 240: ["t-0", "u-0"]}
    past = find_past(store / "ledger", AsOf(timestamp_ms=_at(180).now_ms()))
    assert {str(log): state.log_end_offset for log, state in past.states.items()} == {"t-0": 30}


def test_cuts_when_a_topic_is_deleted_then_those_before_have_it(tmp_path: Path) -> None:
    """No row is left that says when it went."""
    store = tmp_path / "s"
    open_store(store, {"u": {}}, clock=_at(0)).close()
    append_by_clock(store, [10])
    with writing(store) as written:
        delete_topic(written, "u", _at(90))

    append_by_clock(store, [10, 130])

    assert _logs(store).get(60, ["t-0", "u-0"]) == ["t-0", "u-0"]
    assert _logs(store)[120] == ["t-0"]


def test_cuts_when_an_opening_adds_a_topic_then_the_hours_before_it_have_theirs(tmp_path: Path) -> None:
    """The new rows would say that the store changed with them."""
    store = tmp_path / "s"
    append_by_clock(store, [10, 65])

    open_store(store, {LOG.topic: {}, "u": {}}, clock=_at(245)).close()

    assert _logs(store) == {60: ["t-0"], 120: ["t-0"]}
    assert cut_ends(store) == {60: 10, 120: 20}


def test_cuts_when_a_killed_opening_left_one_torn_then_the_next_one_writes_it(tmp_path: Path) -> None:
    """A torn entry is dropped before topics are added."""
    store = tmp_path / "s"
    append_by_clock(store, [10, 65])
    writer = open_store(store, {LOG.topic: {}}, clock=_at(100))
    entry = max((cuts_path(store) / "_delta_log").glob("*.json"))
    entry.write_bytes(entry.read_bytes()[:40])
    writer._lock.release()  # type: ignore[union-attr]  # crashed

    open_store(store, {LOG.topic: {}, "u": {}}, clock=_at(245)).close()

    assert cut_ends(store) == {120: 20}


def test_cuts_when_a_retention_runs_between_sinks_then_the_hours_before_it_have_theirs(tmp_path: Path) -> None:
    """Also of a store that a nightly job writes, and a nightly retention shortens."""
    store = tmp_path / "s"
    append_by_clock(store, [10, 65])

    execute_retention(store, _delete_below(store, 15), _at(245), lambda *_: None, lambda _: None)

    assert cut_ends(store) == {60: 10, 120: 20}
    assert CutTable(cuts_path(store)).read(_at(120).now_ms()).rows.states[LOG].log_start_offset == 0


def test_cuts_when_the_store_is_damaged_then_a_retention_says_so_and_not_that_a_cut_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What hinders the cut is the damage: it has to be repaired."""
    store = tmp_path / "s"
    append_by_clock(store, [10, 65])
    state = Ledger.open(store / "ledger").states()[LOG]
    active = store / "logs" / LOG.directory_name / segment_file_name(state.active_base_offset, SEGMENT)
    os.truncate(active, state.active_size_bytes - 1)

    execute_retention(store, lambda _store: [], _at(245), lambda *_: None, lambda _: None)

    assert "The store can't be opened for writing: committed bytes are gone" in caplog.text
    assert "A cut was not written" not in caplog.text


def test_cuts_when_maintenance_runs_beside_a_sink_then_only_its_columns_are_older(tmp_path: Path) -> None:
    """The sink takes a raised log start over with its next commit; the cut before that has the one it held."""
    store, clock = tmp_path / "s", _at(10)
    with opened(store, clock) as writer:
        writer.append("q", 0, in_process(numbers(0, 20)))
        execute_retention(store, _delete_below(store, 15), _at(30), lambda *_: None, lambda _: None)
        then = Ledger.open(store / "ledger").states()[LOG]
        clock.advance(2 * HOUR_MS)
        writer.append("q", 1, in_process(numbers(20, 30)))

    found = CutTable(cuts_path(store)).read(_at(60).now_ms()).rows.states[LOG]

    assert (then.log_start_offset, found.log_start_offset) == (15, 0)
    assert found == replace(then, **{name: getattr(found, name) for name in ("log_start_offset", "updated_ms")})


def test_cuts_when_maintenance_ran_beside_an_idle_sink_that_starts_again_then_the_hour_before_it_has_its_cut(
    tmp_path: Path,
) -> None:
    """Maintenance changes rows, but not what a cut is for: the store's last change stays that of the sink."""
    store, clock = tmp_path / "s", _at(10)
    with opened(store, clock) as writer:
        writer.append("q", 0, in_process(numbers(0, 20)))
        execute_retention(store, _delete_below(store, 15), _at(150), lambda *_: None, lambda _: None)
    with opened(store, _at(180)) as writer:
        writer.append("q", 1, in_process(numbers(20, 30)))

    assert cut_ends(store) == {60: 20}


def test_cuts_when_a_micro_batch_without_records_came_before_a_restart_then_none_of_an_hour_before_it(
    tmp_path: Path,
) -> None:
    """It may have brought offsets of groups, though it changed no row."""
    store, clock = tmp_path / "s", _at(10)
    with opened(store, clock) as writer:
        writer.append("q", 0, in_process(numbers(0, 20)))
        clock.advance(140 * MINUTE_MS)
        writer.append("q", 1, in_process(numbers(20, 20)))
    version = Ledger.open(store / "ledger").version
    with opened(store, _at(210)) as writer:
        writer.append("q", 2, in_process(numbers(20, 30)))

    table = CutTable(cuts_path(store))
    assert cut_ends(store) == {60: 20, 180: 20}
    assert [table.read(each).ledger_version >= version for each in table.times()] == [False, True]


def test_cuts_when_a_log_is_truncated_then_the_hours_before_it_have_theirs(tmp_path: Path) -> None:
    """A truncation is the reason to look at the hour before it."""
    store = tmp_path / "s"
    append_by_clock(store, [10, 65])

    truncate_logs(store, lambda _: {LOG: 5}, _at(245))
    truncate_logs(store, lambda _: {LOG: 4}, _at(246))

    assert cut_ends(store) == {60: 10, 120: 20}


def test_cuts_when_a_store_has_none_then_no_command_begins_with_them(tmp_path: Path) -> None:
    """A sink may have been told to write none, and commands have no settings of their own."""
    store = tmp_path / "s"
    append_by_clock(store, [10, 65], every="never")

    truncate_logs(store, lambda _: {LOG: 5}, _at(245))

    assert not cuts_path(store).exists()


def _delete_below(store: Path, offset: int) -> Callable[[Store], list[LogRetention]]:
    return lambda found: plan_logs(found, _at(245), {LOG}, lambda facts, _: plan_record_deletion(facts, offset))
