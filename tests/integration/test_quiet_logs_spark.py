"""A quiet log maintained on a real local Spark."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparklog.pipeline.control.owner_check import OwnerCheck
from sparklog.pipeline.maintenance.job import run_plan
from sparklog.pipeline.maintenance.plan import Bounds
from sparklog.pipeline.maintenance.survey import survey_store
from sparklog.sink.opening.access import maintaining
from sparklog.sink.operations.retain_logs import RetentionRun, remove_deleted
from tests.build.compacted_store import BUDGET, LOG, NOW_MS, expected_offsets, offsets, write_keyed
from tests.build.manual_clock import ManualClock
from tests.build.retained_store import state_of

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_run_plan_when_a_quiet_log_is_overdue_then_one_run_rolls_and_cleans_it(
    spark: SparkSession, tmp_path: Path, policy: str
) -> None:
    """The last record of each key is left, of all the log; retention, which also works in that run, does not mind."""
    settings = {"max.compaction.lag.ms": 3_600_000, "cleanup.policy": policy, "retention.ms": 86_400_000}
    store = write_keyed(tmp_path / "store", settings)
    clock = ManualClock(NOW_MS + 10_000_000)
    with maintaining(store) as maintained:
        plan = survey_store(maintained.store, Bounds(), clock).plan
        results, pending = run_plan(spark, maintained, plan, BUDGET, clock, OwnerCheck.of(store))
    assert remove_deleted(RetentionRun([], pending), clock) == {}

    assert [(each.action, each.outcome, each.first_dirty_offset) for each in results] == [("compact", "done", 200)]
    assert results[0].reason.startswith("rolls the active segment first: ")
    assert offsets(store) == expected_offsets(200, 200)
    assert state_of(store, LOG).active_base_offset == 200


def test_run_plan_when_all_of_a_quiet_log_is_too_old_then_it_is_deleted_and_nothing_is_left_to_clean(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Deletions come first, and roll for themselves."""
    store = write_keyed(
        tmp_path / "store",
        {"max.compaction.lag.ms": 3_600_000, "cleanup.policy": "compact,delete", "retention.ms": 3_600_000},
    )
    clock = ManualClock(NOW_MS + 10_000_000)
    with maintaining(store) as maintained:
        plan = survey_store(maintained.store, Bounds(), clock).plan
        results, _ = run_plan(spark, maintained, plan, BUDGET, clock, OwnerCheck.of(store))

    assert [(each.action, each.outcome) for each in results] == [("delete", "done")]
    assert offsets(store) == []
    assert state_of(store, LOG).log_start_offset == 200
