"""Logs with more keys than one map takes, on a real local Spark."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparklog.pipeline.control.owner_check import OwnerCheck
from sparklog.pipeline.maintenance.job import run_plan
from sparklog.pipeline.maintenance.offset_map_job import PartChecks, clean_in_parts
from sparklog.pipeline.maintenance.runs import TaskResult
from sparklog.pipeline.maintenance.stop_file import StopFile
from sparklog.sink.opening.access import maintaining
from sparklog.storage_core.cleaner.clean_log import LogToClean, clean_log
from sparklog.storage_core.cleaner.cleaning_round import EarlyEnd
from sparklog.storage_core.log.files.names import LOG
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.compacted_logs import CompactedLog, LogShape, write_segments
from tests.build.compacted_store import BUDGET, NOW_MS
from tests.build.maintained_store import TOPIC, plan_of, write_keys
from tests.build.manual_clock import ManualClock
from tests.build.owners import CheckedBy
from tests.build.sink_store import read_store
from tests.plain.parallel_round import StopAtOnce, StopBehindOneGroup

pytestmark = pytest.mark.spark

_SMALL = replace(BUDGET, map_bytes=24 * 12)


def _to_clean(log: CompactedLog, now_ms: int) -> LogToClean:
    return LogToClean(
        directory=log.directory,
        end=log.end,
        log_start_offset=log.bases[0],
        first_dirty_offset=log.bases[0],
        first_uncleanable_offset=log.bases[-1],
        config=LogConfig(cleanup_policy="compact", segment_bytes=2000, delete_retention_ms=1000),
        now_ms=now_ms,
        map_bytes=1 << 16,
        hash_key=bytes(16),
    )


def _run(spark: SparkSession, store: Path) -> list[TaskResult]:
    clock = ManualClock(NOW_MS)
    with maintaining(store) as maintained:
        return run_plan(spark, maintained, plan_of(store, clock), _SMALL, clock, OwnerCheck.of(store))[0]


def test_clean_in_parts_when_the_log_has_transactions_then_its_bytes_are_those_of_one_process(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Markers whose data is in other groups stay, others get a horizon and go at the next round, aborted data goes."""
    shape = LogShape(seed=31, segments=7, batches=20, keys=30, transactions=0.8, tombstones=0.0, gaps=0.2)
    found = []
    for name in ("parts", "one"):
        log = write_segments(tmp_path / name / "t-0", shape)
        for now_ms in (shape.start_ms, shape.start_ms + 1000, shape.start_ms + 2000):
            what = _to_clean(log, now_ms)
            if name == "parts":
                cleaned = clean_in_parts(spark, what, PartChecks(UNSHARED, bool))
            else:
                cleaned = clean_log(what, UNSHARED)
            found.append(replace(cleaned, built=None))
        found.append({path.name: path.read_bytes() for path in log.directory.iterdir() if path.suffix != ".deleted"})  # type: ignore[arg-type]

    assert log.aborted
    assert found[:4] == found[4:]
    assert found[0].counts.aborted_records > 0
    assert found[2].counts.markers_removed > 0


def test_run_plan_when_no_key_of_a_large_log_has_two_records_then_each_group_isnobodyed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Where nothing is superseded every group has its task all the same, and the round its end."""
    store = write_keys(tmp_path / "store", count=1200, keys=400)
    before = read_store(store)

    results = _run(spark, store)

    assert {(each.outcome, each.records_before == each.records_after) for each in results} == {("done", True)}
    assert read_store(store) == before


def test_run_plan_when_a_large_log_is_damaged_behind_what_a_map_takes_then_it_is_uncleanable(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Damage that a task finds which reads keys names its file, as that which a cleaning finds."""
    store = write_keys(tmp_path / "store", count=1200, keys=40)
    damaged = sorted((store / "logs" / f"{TOPIC}-2").glob(f"*{LOG}"))[-2]
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)

    outcomes = {each.log.partition: (each.outcome, damaged.name in each.reason) for each in _run(spark, store)}

    assert outcomes.pop(2) == ("uncleanable", True)
    assert set(outcomes.values()) == {("done", False)}


def test_run_plan_when_asked_to_stop_before_a_large_log_then_it_is_skipped(spark: SparkSession, tmp_path: Path) -> None:
    """A log that its task left alone is not begun any more, and says why."""
    store, clock = write_keys(tmp_path / "store", count=1200, keys=40), ManualClock(NOW_MS)
    stop, before = StopFile.of(store), read_store(store)
    with maintaining(store) as maintained:
        results, _ = run_plan(spark, maintained, plan_of(store, clock), _SMALL, clock, CheckedBy(StopAtOnce(stop)))
    stop.clear()

    assert {(each.outcome, each.reason) for each in results} == {("skipped", "the run was asked to stop")}
    assert read_store(store) == before


def test_clean_in_parts_when_the_run_is_asked_to_stop_then_the_groups_left_stay_as_they_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What was done stays done, the first dirty offset stays, and the next round has the end of an undisturbed one."""
    shape = LogShape(seed=5, segments=8, batches=20, keys=30, tombstones=0.0)
    log = write_segments(tmp_path / "t-0", shape)
    undisturbed = replace(log, directory=Path(shutil.copytree(log.directory, tmp_path / "u-0")))
    stop = StopFile(str(tmp_path / "stop"))

    behind_one = StopBehindOneGroup(log.directory, stop)
    cleaned = clean_in_parts(spark, _to_clean(log, shape.start_ms), PartChecks(CheckedBy(behind_one), stop.is_asked))

    assert (cleaned.stopped, cleaned.first_dirty_offset) == (EarlyEnd("the run was asked to stop"), 0)
    assert 0 < cleaned.segments_after < 7
    (tmp_path / "stop").unlink()
    assert clean_in_parts(spark, _to_clean(log, shape.start_ms), PartChecks(UNSHARED, stop.is_asked)).stopped is None
    clean_log(_to_clean(undisturbed, shape.start_ms), UNSHARED)
    assert _batches(log) == _batches(undisturbed)


def _batches(log: CompactedLog) -> bytes:
    """Return all that is left; which segments were put together depends on how many rounds there were."""
    return b"".join(path.read_bytes() for path in sorted(log.directory.glob(f"*{LOG}")))
