"""Compaction of a store's logs: what is cleaned, what is left alone, and what is said of it."""

import os
from collections import namedtuple
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.sink.opening.access import maintaining
from sparklog.sink.operations.clean_logs import clean_logs, clean_one_log, plan_cleanings
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.compacted_store import (
    BUDGET,
    LOG,
    NOW_MS,
    SETTINGS,
    clean,
    expected_offsets,
    keyed_rows,
    offsets,
    write_keyed,
)
from tests.build.manual_clock import ManualClock
from tests.build.retained_store import names, state_of
from tests.build.sink_store import contents, in_process, open_store
from tests.sparklog_command import Sparklog

_WITHOUT = ("maintenance.lock", "writer.lock")


def test_plan_when_made_then_nothing_is_changed(memory_path: Path) -> None:
    """A plan only reads; a log without closed segments is not due."""
    store = write_keyed(memory_path / "store")
    before = contents(store)
    plans = plan_cleanings(Store.find(store), {}, ManualClock(NOW_MS))

    assert [each.plan.decision for each in plans if each.plan] == ["dirty", "nothing-cleanable"]
    assert contents(store) == before


def test_clean_when_a_log_is_dirty_then_the_last_of_each_key_stays(memory_path: Path, sparklog: Sparklog) -> None:
    """All but the active segment is cleaned; the log ends where it did, and is sound."""
    store = write_keyed(memory_path / "store")
    before = state_of(store, LOG)
    _, (row,) = clean(store)

    assert (row.log, row.outcome, row.first_dirty_offset) == (LOG, "cleaned", before.active_base_offset)
    assert offsets(store) == expected_offsets(before.active_base_offset, 200)
    assert state_of(store, LOG) == replace(before, compacted_offset=before.active_base_offset, updated_ms=NOW_MS)
    assert row.cleaned is not None
    assert (row.cleaned.records_before, row.cleaned.records_after) == (before.active_base_offset, 7)
    assert row.cleaned.bytes_after < row.cleaned.bytes_before
    assert names(store, ".deleted", LOG) == names(store, ".cleaned", LOG) == []
    assert sparklog("verify", store).code == 0


def test_clean_when_done_again_then_not_due(memory_path: Path) -> None:
    """What the caller keeps of a round tells the next one that there is nothing dirty."""
    store = write_keyed(memory_path / "store")
    _, (row,) = clean(store)
    before, found = contents(store, without=_WITHOUT), offsets(store)
    plans, rows = clean(store, {LOG: row.first_dirty_offset})

    assert rows == []
    assert plans[0].plan is not None
    assert plans[0].plan.decision == "nothing-cleanable"
    assert contents(store, without=_WITHOUT) == before
    clean(store)  # the checkpoint was lost: segments that are small by now are merged, and that is all
    assert offsets(store) == found


def test_clean_when_a_sink_runs_then_both_go_on(memory_path: Path, sparklog: Sparklog) -> None:
    """A running sink appends, rolls and commits around a cleaning."""
    store = write_keyed(memory_path / "store")
    with closing(open_store(store, {LOG.topic: SETTINGS}, topic=LOG.topic)) as writer:
        _, done = clean(store)
        for number in range(10, 14):
            first = 200 + 20 * (number - 10)
            writer.append("q", number, in_process(keyed_rows(first, first + 20)))
            done += clean(store, {LOG: done[-1].first_dirty_offset})[1]  # not each time a segment was rolled

    assert len(done) > 1
    assert offsets(store) == expected_offsets(done[-1].first_dirty_offset, 280)
    assert sparklog("verify", store).code == 0


def test_clean_when_a_sink_commits_meanwhile_then_its_end_and_the_compacted_offset_both_count(
    memory_path: Path,
) -> None:
    """The sink has read an older version of the ledger; it takes over how far logs are compacted."""
    store = write_keyed(memory_path / "store")
    with closing(open_store(store, {LOG.topic: SETTINGS}, topic=LOG.topic)) as writer:
        compacted = state_of(store, LOG).active_base_offset
        clean(store)
        writer.append("q", 10, in_process(keyed_rows(200, 300)))

    state = state_of(store, LOG)
    assert (state.compacted_offset, state.log_end_offset) == (compacted, 300)


def test_clean_when_its_row_does_not_say_so_then_skipped(memory_path: Path) -> None:
    """No path may compact a log whose row does not say how far: a past state would be read without its records."""
    store = write_keyed(memory_path / "store")
    (plan, _) = plan_cleanings(Store.find(store), {}, ManualClock(NOW_MS))
    before = contents(store / "logs")

    row = clean_one_log(plan, state_of(store, LOG), BUDGET, ManualClock(NOW_MS), UNSHARED)

    assert (row.outcome, row.reason) == ("skipped", "the plan no longer fits, its cleaning was not announced")
    assert contents(store / "logs") == before


def test_clean_when_a_segment_is_damaged_then_uncleanable_and_the_others_go_on(memory_path: Path) -> None:
    """The log is left as it was, and what is said names file and position."""
    store = write_keyed(memory_path / "store")
    with closing(open_store(store, {"other": SETTINGS}, topic="other")) as writer:
        writer.append("p", 0, in_process(keyed_rows(0, 200)))
    path = store / "logs" / LOG.directory_name / names(store, ".log", LOG)[1]
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    before = contents(path.parent)
    _, rows = clean(store)

    assert [(each.log.topic, each.outcome) for each in rows if each.outcome != "cleaned"] == [("keyed", "uncleanable")]
    assert {each.log.topic for each in rows} == {"keyed", "other"}
    (reason,) = [each.reason for each in rows if each.outcome == "uncleanable"]
    assert path.name in reason
    assert "position=" in reason
    assert contents(path.parent) == before


def test_clean_when_the_disk_lacks_room_then_failed_with_the_figure(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new segment lies beside the old ones for a while; where it can't, nothing of its group is touched."""
    store = write_keyed(memory_path / "store")
    before = contents(store / "logs")
    found = namedtuple("found", "f_bavail f_frsize f_flag")
    monkeypatch.setattr(os, "statvfs", lambda _: found(1, 10, 0))
    _, (row,) = clean(store)

    assert row.outcome == "failed"
    assert "needed_bytes=" in row.reason
    assert "free_bytes=10" in row.reason
    assert row.first_dirty_offset == 0
    assert contents(store / "logs") == before


def test_clean_when_the_log_is_gone_since_the_plan_then_skipped(memory_path: Path) -> None:
    """A plan for another log of the same name cleans nothing."""
    store = write_keyed(memory_path / "store")
    plans = plan_cleanings(Store.find(store), {}, ManualClock(NOW_MS))
    other = write_keyed(memory_path / "other")
    with maintaining(other) as maintained:
        (row,) = clean_logs(maintained, plans, BUDGET, ManualClock(NOW_MS))

    assert row.outcome == "skipped"
    assert "no longer fits" in row.reason


def test_clean_when_keys_are_to_be_erased_then_none_of_their_records_is_left(memory_path: Path) -> None:
    """Tombstones go too, in the clean part as well; the active segment waits for its turn."""
    store = write_keyed(memory_path / "store")
    _, (row,) = clean(store)
    active = state_of(store, LOG).active_base_offset
    kept = [each for each in expected_offsets(active, 200) if each >= active or each % 7 != 3]

    budget = replace(BUDGET, erased_keys={state_of(store, LOG).topic_id: pa.array([b"k3"], pa.binary())})
    with maintaining(store) as maintained:
        plans = plan_cleanings(maintained.store, {LOG: row.first_dirty_offset}, ManualClock(NOW_MS))
        list(clean_logs(maintained, plans, budget, ManualClock(NOW_MS)))

    assert offsets(store) == kept


def test_clean_when_a_segment_is_lost_then_its_log_is_left_alone_until_it_is_back(memory_path: Path) -> None:
    """Cleaned over, no sign of the loss would be left."""
    store = write_keyed(memory_path / "store")
    lost = [store / "logs" / str(LOG) / name for name in names(store, ".log", LOG)][1]
    lost.rename(memory_path / "copy")
    plans, done = clean(store)

    (failure,) = (each.failure for each in plans if each.log == LOG)
    assert failure is not None
    assert f"a segment is missing, its index is there: file={lost};" in failure
    assert not [row for row in done if row.cleaned is not None]
    assert lost.with_suffix(".index").exists()

    (memory_path / "copy").rename(lost)
    assert [row.outcome for row in clean(store)[1]] == ["cleaned"]
