"""Rows that tell of a run, and what they tell the next one."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sparklog.pipeline.control.schemas import RUNS
from sparklog.pipeline.control.tables import oldest_kept_ms
from sparklog.pipeline.maintenance.plan import Bounds, plan_maintenance
from sparklog.pipeline.maintenance.record_run import changed_checkpoints
from sparklog.pipeline.maintenance.report import result_line
from sparklog.pipeline.maintenance.runs import (
    FORMER_COLUMNS,
    RunFacts,
    TaskResult,
    failures_of,
    former_runs,
    result_of_cleaning,
    rows_of_run,
)
from sparklog.sink.operations.clean_logs import LogCleaningRow
from sparklog.storage_core.cleaner.clean_log import CleanedLog
from sparklog.storage_core.cleaner.cleaning_round import EarlyEnd
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.maintained_logs import NOW_MS, checkpoint, log_state, surveyed

_A, _B = TopicPartition("a", 0), TopicPartition("b", 0)
_RUN = RunFacts(run_id="r", started_ms=NOW_MS, duration_ms=77, epochs={_A: 3})


def _table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([dict(row) for row in rows], schema=RUNS.schema).select(FORMER_COLUMNS)


def _row(number: int, partition: int, action: int, outcome: int, before: int, spent_ms: int) -> dict[str, Any]:
    """Return a row of a run's task; a run's own has no log."""
    row: dict[str, Any] = dict.fromkeys(RUNS.schema.names) | {"run_id": "r", "plan": "", "decision": "do", "reason": ""}
    row |= {"topic": "t", "partition": partition, "action": ("compact", "delete", None, "erase")[action]}
    row |= {"outcome": ("done", "stopped", "failed", "skipped")[outcome]}
    row |= {"bytes_before": before or None, "bytes_after": before // 2 if before else None}
    return row | {"started_ms": number, "duration_ms": spent_ms}


def _cleaned(log: TopicPartition, **values: object) -> TaskResult:
    usual: dict[str, object] = {"outcome": "done", "reason": "dirty", "first_dirty_offset": 50}
    usual |= {"bytes_before": 1000, "bytes_after": 250, "duration_ms": 100}
    return TaskResult(
        log=log,
        state=log_state(log.topic),
        action="compact",
        log_start_offset=0,
        **{**usual, **values},  # type: ignore[arg-type]
    )


def test_rows_when_a_run_is_told_then_one_of_its_own_and_one_per_work() -> None:
    """Every column has its name; a task that was not done says why, a log that keeps all has no row."""
    logs = [surveyed("a", "dirty", cleanable_bytes=1000), surveyed("b", "not-dirty"), surveyed("c", failure="gone")]
    run, task, failed = rows_of_run(_RUN, plan_maintenance(logs, NOW_MS), [_cleaned(_A)])

    assert [set(row) for row in (run, task, failed)] == [set(RUNS.schema.names)] * 3
    assert (run["topic"], run["bytes_before"], run["bytes_after"], run["outcome"]) == (None, 1000, 250, "failed")
    assert json.loads(run["plan"])["logs_checked"] == 3
    assert (task["topic"], task["lease_epoch"], task["outcome"], task["error"]) == ("a", 3, "done", None)
    assert json.loads(task["plan"])["read_bytes"] == 1000
    assert (failed["topic"], failed["outcome"], failed["error"]) == ("c", "failed", "gone")


def test_rows_when_a_run_ended_by_an_exception_then_it_and_its_works_failed() -> None:
    """Nobody can tell what it has done; what was put off has not failed."""
    logs = [surveyed("a", "dirty", cleanable_bytes=1000), surveyed("b", "dirty", cleanable_bytes=900)]
    plan = plan_maintenance(logs, NOW_MS, Bounds(max_bytes=1000))
    run, done, deferred = rows_of_run(replace(_RUN, failure="StorageError: gone"), plan, [])

    assert (run["outcome"], run["error"]) == ("failed", "StorageError: gone")
    assert (done["topic"], done["outcome"], done["error"]) == ("a", "failed", "StorageError: gone")
    assert (deferred["topic"], deferred["outcome"], deferred["error"]) == ("b", "skipped", None)


def test_former_runs_when_there_are_rows_then_speed_and_the_last_yield() -> None:
    """Bytes read per second over all cleanings; of each log what its last one kept."""
    plan = plan_maintenance([surveyed("a", "dirty", cleanable_bytes=1000)], NOW_MS)
    later = RunFacts(run_id="s", started_ms=NOW_MS + 1, duration_ms=1, epochs={})
    rows = [
        *rows_of_run(later, plan, [_cleaned(_A, bytes_after=500, duration_ms=300)]),
        *rows_of_run(_RUN, plan, [_cleaned(_A)]),
    ]

    former = former_runs(_table(rows))
    assert former.bytes_per_s == 5000
    assert former.kept_shares == {_A: 0.5}
    assert former_runs(_table([])).bytes_per_s is None


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 5), max_size=12))
def test_former_runs_when_made_row_by_row_then_the_same(drawn: list[tuple[int, ...]]) -> None:
    """Columns and rows agree: of a cleaning that read anything, the last share, and all bytes and times."""
    rows = [_row(number, *values) for number, values in enumerate(drawn)]
    read, spent_ms, shares = 0, 0, {}
    for row in rows:
        if row["action"] == "compact" and row["outcome"] in ("done", "stopped") and row["bytes_before"]:
            read, spent_ms = read + row["bytes_before"], spent_ms + row["duration_ms"]
            shares[TopicPartition(row["topic"], row["partition"])] = row["bytes_after"] / row["bytes_before"]

    former = former_runs(_table(rows[::-1]))
    assert former.kept_shares == shares
    assert former.bytes_per_s == (1000 * read / spent_ms if spent_ms else None)


def test_result_when_a_log_is_uncleanable_then_its_dirty_part_stays() -> None:
    """Only a round moves the first dirty offset."""
    (task,) = plan_maintenance([surveyed("a", "dirty", cleanable_bytes=1)], NOW_MS).due
    reason = "wrong CRC file=/x.log position=9"
    row = LogCleaningRow(log=_A, outcome="uncleanable", reason=reason, first_dirty_offset=0, duration_ms=5)
    result = result_of_cleaning(task, row, log_start_offset=0)

    known = changed_checkpoints({_A: checkpoint("a", first_dirty_offset=20)}, [result], "r", NOW_MS)
    assert (known[_A].first_dirty_offset, known[_A].uncleanable_position) == (20, 9)
    assert result.is_failure


def test_result_when_keys_were_erased_then_it_says_from_which_segments() -> None:
    """The line of the log, and JSON, count what the cleaner took."""
    (task,) = plan_maintenance([surveyed("a", "dirty", cleanable_bytes=1)], NOW_MS).due
    cleaned = CleanedLog(first_dirty_offset=30, bytes_before=100, bytes_after=40, erased={40: 2, 0: 1})
    row = LogCleaningRow(
        log=_A, outcome="cleaned", reason="dirty", first_dirty_offset=30, duration_ms=5, cleaned=cleaned
    )

    line = result_line(result_of_cleaning(task, row, log_start_offset=0))

    assert line.endswith(", of forgotten keys 1 in segment 0, 2 in segment 40")


def test_result_when_a_map_was_full_then_the_next_round_begins_there() -> None:
    """A part of a round counts, but the log is not yet clean."""
    (task,) = plan_maintenance([surveyed("a", "dirty", cleanable_bytes=1)], NOW_MS).due
    row = LogCleaningRow(
        log=_A,
        outcome="stopped",
        reason="the map was full at offset 30",
        first_dirty_offset=30,
        duration_ms=5,
        cleaned=CleanedLog(first_dirty_offset=30, bytes_before=100, bytes_after=40),
    )
    result = result_of_cleaning(task, row, log_start_offset=0)

    known = changed_checkpoints({}, [result, _cleaned(_B)], "r", NOW_MS)
    assert (known[_A].first_dirty_offset, known[_A].last_cleaned_ms) == (30, None)
    assert (known[_B].first_dirty_offset, known[_B].last_cleaned_ms) == (50, NOW_MS)
    assert (result.bytes_before, result.bytes_after) == (100, 40)


def test_result_when_the_disk_lacked_room_then_it_failed_and_waits() -> None:
    """Only somebody who makes room helps: the log is tried again after a while, and its dirty part stays."""
    (task,) = plan_maintenance([surveyed("a", "dirty", cleanable_bytes=1)], NOW_MS).due
    full_disk = EarlyEnd("not enough disk for offsets 0..9", is_short_of_disk=True)
    cleaned = CleanedLog(first_dirty_offset=0, bytes_before=100, bytes_after=40, stopped=full_disk)
    row = LogCleaningRow(
        log=_A, outcome="failed", reason=full_disk.reason, first_dirty_offset=0, duration_ms=5, cleaned=cleaned
    )
    result = result_of_cleaning(task, row, log_start_offset=0)

    known = changed_checkpoints({_A: checkpoint("a", first_dirty_offset=20)}, [result], "r", NOW_MS)[_A]
    assert result.is_failure
    assert (known.first_dirty_offset, known.failure_count, known.uncleanable_reason) == (20, 1, full_disk.reason)
    assert (known.retry_at_ms or 0) > NOW_MS


def test_result_when_nothing_was_read_then_its_line_has_no_sizes() -> None:
    """Zeros would say that the log was empty."""
    line = result_line(
        _cleaned(_A, outcome="failed", reason="no room", bytes_before=0, bytes_after=0, records_before=0)
    )

    assert line == "a-0 compact failed: no room"


def test_failures_when_a_log_can_not_be_read_then_it_is_uncleanable() -> None:
    """Found while planning or while cleaning: the next run and `describe` know."""
    unread = surveyed("a", "dirty")
    assert unread.cleaning is not None
    broken = replace(unread.cleaning, plan=None, failure="the active segment is missing: file=/x.log")
    plan = plan_maintenance([replace(unread, cleaning=broken), surveyed("b", failure="gone")], NOW_MS)

    (failed,) = failures_of(plan)
    known = changed_checkpoints({}, [failed], "r", NOW_MS)[_A]
    assert (failed.outcome, known.uncleanable_file, known.failure_count) == ("uncleanable", "/x.log", 1)


@given(st.lists(st.integers(0, 20), max_size=40), st.integers(1, 50))
def test_rows_when_there_are_too_many_then_the_newest_runs_stay_whole(started_ms: list[int], row_count: int) -> None:
    """As many whole runs as fit, newest first, and the newest one always."""
    expected: int | None = None
    if len(started_ms) > row_count:
        counts, kept = Counter(started_ms), 0
        for began in sorted(counts, reverse=True):
            kept += counts[began]
            if expected is not None and kept > row_count:
                break
            expected = began

    oldest = oldest_kept_ms(np.array(started_ms, np.int64), row_count)
    assert [each for each in started_ms if each >= (oldest or 0)] == [
        each for each in started_ms if each >= (expected or 0)
    ]
