"""A maintenance plan on a real local Spark."""

import operator
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sparklog.pipeline.control.owner_check import OwnerCheck
from sparklog.pipeline.maintenance.job import run_plan
from sparklog.pipeline.maintenance.runs import TaskResult
from sparklog.pipeline.maintenance.stop_file import StopFile
from sparklog.sink.opening.access import MAINTENANCE_LOCK, maintaining
from sparklog.sink.operations.clean_logs import CleanerBudget
from sparklog.sink.operations.retain_logs import RetentionRun, remove_deleted
from sparklog.storage_core.errors import WriterFencedError
from sparklog.storage_core.log.files.names import LOG
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.compacted_store import BUDGET, NOW_MS, SETTINGS
from tests.build.maintained_store import PARTITIONS, TOPIC, DeadlyKeys, live_values, plan_of, write_keys
from tests.build.manual_clock import ManualClock
from tests.build.retained_store import state_of
from tests.build.sink_store import in_process, open_store, read_store, rows

pytestmark = pytest.mark.spark


def _run(spark: SparkSession, store: Path, budget: CleanerBudget = BUDGET) -> list[TaskResult]:
    clock = ManualClock(NOW_MS)
    with maintaining(store) as maintained:
        plan = plan_of(store, clock)
        results, pending = run_plan(spark, maintained, plan, budget, clock, OwnerCheck.of(store))
    assert remove_deleted(RetentionRun([], pending), clock) == {}
    return results


def test_run_plan_when_logs_are_dirty_then_each_is_cleaned_and_keeps_its_last_values(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Every log comes back as a row, and has fewer records and the same value for each key."""
    store = write_keys(tmp_path / "store")
    before, live = read_store(store), live_values(store)

    results = _run(spark, store)

    assert sorted(each.log.partition for each in results) == list(range(PARTITIONS))
    assert {each.outcome for each in results} == {"done"}
    assert all(each.bytes_after < each.bytes_before for each in results if each.bytes_before and each.bytes_after)
    after = read_store(store)
    assert live_values(store) == live
    assert all(len(after[log]) < len(before[log]) / 2 for log in before)


def test_run_plan_when_asked_to_stop_before_it_begins_then_no_log_is_cleaned(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A signal may come while the process plans, or starts Spark."""
    store = write_keys(tmp_path / "store")
    before, stop = read_store(store), StopFile.of(store)
    stop.ask()
    results = _run(spark, store)

    assert {(each.outcome, each.reason) for each in results} == {("skipped", "the run was asked to stop")}
    assert read_store(store) == before


def test_run_plan_when_files_of_a_former_run_are_due_then_they_go_before_the_cleanings(
    spark: SparkSession, tmp_path: Path
) -> None:
    """On a disk that is full they are the room that cleanings need; those that still wait are the caller's."""
    store, clock, left = write_keys(tmp_path / "store"), ManualClock(NOW_MS), []
    for _ in range(2):
        with maintaining(store) as maintained:
            run_plan(spark, maintained, plan_of(store, clock), BUDGET, clock, OwnerCheck.of(store))
        left.append(len(list(store.glob("logs/*/*.deleted"))))
        StopFile.of(store).ask()  # so that the second run cleans nothing

    assert left[0] > 0
    assert left[1] == 0


def test_run_plan_when_one_log_is_damaged_then_only_that_one_is_uncleanable(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A log that fails names its file, and keeps no other from its turn."""
    store = write_keys(tmp_path / "store")
    damaged = sorted((store / "logs" / f"{TOPIC}-2").glob(f"*{LOG}"))[1]
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)

    found = {each.log: each for each in _run(spark, store)}

    wrong = found.pop(TopicPartition(TOPIC, 2))
    assert wrong.outcome == "uncleanable"
    assert damaged.name in wrong.reason
    assert {each.outcome for each in found.values()} == {"done"}


def test_run_plan_when_another_run_took_the_store_then_no_task_changes_a_log(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A task that finds another signature in the lock stops before its first step that can't be undone."""
    store, clock = write_keys(tmp_path / "store"), ManualClock(NOW_MS)
    before = read_store(store)
    with maintaining(store) as maintained:
        plan, signature = plan_of(store, clock), (store / MAINTENANCE_LOCK).read_bytes()
        (store / MAINTENANCE_LOCK).write_text("another run")
        check = OwnerCheck.of(store)
        (store / MAINTENANCE_LOCK).write_bytes(signature)  # the driver checks it, too

        with pytest.raises(WriterFencedError, match="has lost the store"):
            run_plan(spark, maintained, plan, BUDGET, clock, check)

    assert read_store(store) == before


def test_run_plan_when_keys_exceed_the_memory_of_a_map_then_one_round_cleans_all(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What Spark's map leaves is what a map of enough memory leaves, and what a dict says."""
    store = write_keys(tmp_path / "store", count=1200, keys=40)
    undisturbed = Path(shutil.copytree(store, tmp_path / "undisturbed"))
    live = live_values(store)

    results = _run(spark, store, replace(BUDGET, map_bytes=24 * 12))
    whole = _run(spark, undisturbed)

    assert {each.outcome for each in results} == {"done"}
    assert read_store(store) == read_store(undisturbed)
    assert live_values(store) == live
    key = operator.attrgetter("log")
    for found, wanted in zip(sorted(results, key=key), sorted(whole, key=key), strict=True):
        assert replace(found, duration_ms=0, reason="", state=wanted.state) == replace(wanted, duration_ms=0, reason="")


def test_run_plan_when_a_log_kills_its_worker_then_only_that_one_fails(spark: SparkSession, tmp_path: Path) -> None:
    """Spark tells nothing of a job whose worker died; the others are cleaned all the same."""
    store = tmp_path / "store"
    settings = {topic: {**SETTINGS, "partitions": 1} for topic in ("bad", "good", "other")}
    with closing(open_store(store, settings)) as writer:
        for batch in range(10):
            numbers = range(60)
            keys, values = [f"k{each % 5}" for each in numbers], [f"{batch}-{each}" for each in numbers]
            columns = rows(topic=["bad", "good", "other"] * 20, key=keys, value=values)
            writer.append("q", batch, in_process(columns))

    bad = state_of(store, TopicPartition("bad", 0)).topic_id
    budget = replace(BUDGET, erased_keys=DeadlyKeys({bad: pa.array([], pa.binary())}))
    found = {each.log.topic: each.outcome for each in _run(spark, store, budget)}

    assert found == {"bad": "failed", "good": "done", "other": "done"}
