"""Active segments of a quiet store: rolled by a maintenance, or by the next append."""

from contextlib import closing
from pathlib import Path

from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.opening.access import WRITER_LOCK, maintaining
from sparklog.sink.operations.clean_logs import LogCleaningRow, clean_logs, plan_cleanings
from sparklog.sink.operations.roll_active import roll_without_sink
from sparklog.sink.store.store_folder import Store
from tests.build.compacted_store import (
    BUDGET,
    LOG,
    NOW_MS,
    SETTINGS,
    expected_offsets,
    keyed_rows,
    offsets,
    write_keyed,
)
from tests.build.manual_clock import ManualClock
from tests.build.retained_store import state_of
from tests.build.sink_store import in_process, open_store, read_store
from tests.sparklog_command import Sparklog

_LATER_MS = NOW_MS + 10_000_000
_OVER = {**SETTINGS, "segment.ms": 3_600_000}
_OVERDUE = {**SETTINGS, "max.compaction.lag.ms": 3_600_000, "min.cleanable.dirty.ratio": 1.0}


def _maintain(store: Path) -> list[LogCleaningRow]:
    """Do what a maintenance run does with compacted logs."""
    clock = ManualClock(_LATER_MS)
    with maintaining(store) as maintained:
        may_roll = not WriterLock.is_held(store / WRITER_LOCK)
        plans = plan_cleanings(maintained.store, {}, clock, may_roll=may_roll)
        roll_without_sink(maintained, [each.log for each in plans if each.plan and each.plan.rolls], clock)
        return list(clean_logs(maintained, plans, BUDGET, clock))


def test_maintenance_when_a_quiet_log_is_overdue_then_rolled_and_cleaned_to_its_end(
    tmp_path: Path, sparklog: Sparklog
) -> None:
    """The last record of each key is left, the active segment is empty, and the store is sound."""
    store = write_keyed(tmp_path / "store", _OVERDUE)

    (row,) = _maintain(store)

    state = state_of(store, LOG)
    assert (row.outcome, row.first_dirty_offset) == ("cleaned", 200)
    assert (state.active_base_offset, state.active_size_bytes, state.log_end_offset) == (200, 0, 200)
    assert offsets(store) == expected_offsets(200, 200)
    assert sparklog("verify", store).code == 0


def test_maintenance_when_done_again_then_nothing_is_rolled(tmp_path: Path) -> None:
    """An empty segment has no time that could be over."""
    store = write_keyed(tmp_path / "store", _OVER)
    _maintain(store)

    plans = plan_cleanings(Store.find(store), {}, ManualClock(_LATER_MS), may_roll=True)

    assert not any(each.plan.rolls for each in plans if each.plan)


def test_maintenance_when_a_sink_runs_then_the_active_segment_is_left_to_it(tmp_path: Path) -> None:
    """Closed segments are cleaned; the sink rolls with its next append, by the same rule."""
    store = write_keyed(tmp_path / "store", _OVER)
    before = state_of(store, LOG)
    with closing(open_store(store, {LOG.topic: _OVER}, topic=LOG.topic)) as writer:
        (row,) = _maintain(store)
        assert (row.outcome, row.first_dirty_offset) == ("cleaned", before.active_base_offset)
        assert state_of(store, LOG).active_base_offset == before.active_base_offset
        writer.append("q", 100, in_process(keyed_rows(10_000_000, 10_000_001)))

    assert state_of(store, LOG).active_base_offset == 200


def test_sink_when_max_compaction_lag_is_over_then_its_next_append_rolls(tmp_path: Path) -> None:
    """It is shorter than `segment.ms`, and the topic is compacted."""
    store = write_keyed(tmp_path / "store", _OVERDUE, count=20)
    with closing(open_store(store, {LOG.topic: _OVERDUE}, topic=LOG.topic)) as writer:
        writer.append("q", 100, in_process(keyed_rows(3_600_000, 3_600_001)))
        before = state_of(store, LOG).active_base_offset
        writer.append("q", 101, in_process(keyed_rows(3_700_000, 3_700_001)))

    assert before < 20
    assert state_of(store, LOG).active_base_offset == 21


def test_cleaning_when_the_planned_roll_did_not_happen_then_skipped(tmp_path: Path) -> None:
    """A sink started in between: the plan was of another log."""
    store, clock = write_keyed(tmp_path / "store", _OVERDUE), ManualClock(_LATER_MS)
    with maintaining(store) as maintained:
        plans = plan_cleanings(maintained.store, {}, clock, may_roll=True)
        with closing(open_store(store, {LOG.topic: _OVERDUE}, topic=LOG.topic)):
            roll_without_sink(maintained, [each.log for each in plans if each.plan and each.plan.rolls], clock)
            (row,) = clean_logs(maintained, plans, BUDGET, clock)

    assert row.outcome == "skipped"
    assert row.reason == "the plan no longer fits, the active segment was not rolled"
    assert len(read_store(store)[str(LOG)]) == 200


def test_sink_when_segments_were_rolled_without_it_then_it_goes_on_in_the_empty_one(tmp_path: Path) -> None:
    """No offset is given twice, and none is left out."""
    store = write_keyed(tmp_path / "store", _OVER)
    _maintain(store)

    with closing(open_store(store, {LOG.topic: _OVER}, topic=LOG.topic)) as writer:
        writer.append("q", 100, in_process(keyed_rows(200, 203)))

    assert offsets(store) == [*expected_offsets(200, 200), 200, 201, 202]
