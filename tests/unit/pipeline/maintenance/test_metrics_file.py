"""The figures of a run for Prometheus."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.pipeline.maintenance.metrics_file import metrics_text, recording_failure, write_metrics
from sparklog.pipeline.maintenance.report import RunReport
from sparklog.pipeline.maintenance.run import MaintenanceRun
from sparklog.pipeline.maintenance.runs import TaskResult
from sparklog.pipeline.prometheus import make_metrics_folder
from sparklog.sink.erasure.forget_keys import RequestState
from sparklog.sink.erasure.forget_request import make_request
from sparklog.sink.erasure.search_keys import FoundRecords
from sparklog.storage_core.errors import StorageError, StoreLockedError
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.compacted_store import NOW_MS
from tests.build.maintained_logs import log_state
from tests.build.maintained_store import TOPIC, plan_of, write_keys
from tests.build.manual_clock import ManualClock


def _run(store: Path) -> MaintenanceRun:
    plan = plan_of(write_keys(store), ManualClock(NOW_MS))
    task = plan.due[0]
    assert task.cleaning is not None
    result = TaskResult(
        log=TopicPartition(TOPIC, 0),
        state=task.cleaning.state,
        action="compact",
        outcome="done",
        reason="",
        log_start_offset=0,
        bytes_before=1000,
        bytes_after=100,
        records_before=50,
        records_after=7,
    )
    return MaintenanceRun(run_id="r", plan=plan, results=[result])


def test_metrics_text_when_a_run_ended_then_each_figure_is_a_sample(tmp_path: Path) -> None:
    """Each has its type, labels are quoted, large numbers are whole."""
    text = metrics_text(_run(tmp_path / "store"), NOW_MS + 2500, 2500)

    assert "# TYPE sparklog_maintenance_success gauge\nsparklog_maintenance_success 1\n" in text
    assert "sparklog_maintenance_run_duration_seconds 2.5\n" in text
    assert 'sparklog_maintenance_tasks{action="compact",decision="do"} 4\n' in text
    assert 'sparklog_maintenance_results{action="compact",outcome="done"} 1\n' in text
    assert "sparklog_maintenance_freed_bytes 900\n" in text
    assert "sparklog_maintenance_removed_records 43\n" in text
    assert f"sparklog_maintenance_run_timestamp_seconds {(NOW_MS + 2500) / 1000:.15g}\n" in text


def test_metrics_text_when_a_log_waits_behind_a_failure_then_no_success(tmp_path: Path) -> None:
    """A log that is broken for ever is tried once a day; the runs between are no more sound than that one."""
    run = _run(tmp_path / "store")
    waiting = [replace(each, decision="wait") for each in run.plan.tasks]
    run = replace(run, plan=replace(run.plan, tasks=tuple(waiting)), results=[])

    assert run.has_failures
    assert "\nsparklog_maintenance_success 0\n" in metrics_text(run, NOW_MS, 0)
    assert (
        RunReport(run, "a-store").verdict()
        == f"nothing was done in {run.plan.logs_checked} logs; {len(waiting)} wait; run r"
    )


def test_metrics_text_when_logs_cant_be_searched_then_they_are_counted(tmp_path: Path) -> None:
    """That no record is left is known of the others alone; a log that two requests are about counts once."""
    run = _run(tmp_path / "store")
    assert "\nsparklog_maintenance_unsearched_logs 0\n" in metrics_text(run, NOW_MS, 0)
    log = TopicPartition(TOPIC, 0)
    failed = FoundRecords(log=log, base_offset=0, records_count=0, failure="damaged")
    request = make_request(TOPIC, pa.array([b"k"]), {log: log_state(TOPIC)}, NOW_MS)
    run = replace(run, erasures=[RequestState(request=request, found=[failed])] * 2)

    assert "\nsparklog_maintenance_forgotten_records_left 0\n" in metrics_text(run, NOW_MS, 0)
    assert "\nsparklog_maintenance_unsearched_logs 1\n" in metrics_text(run, NOW_MS, 0)


def test_write_metrics_when_a_file_is_there_then_it_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """Nobody sees half of it, and its folder is made."""
    path, run = tmp_path / "metrics" / "sparklog.prom", _run(tmp_path / "store")
    write_metrics(path, run, NOW_MS, 0)
    before = path.stat().st_ino
    write_metrics(path, run, NOW_MS + 1, 1)

    assert path.stat().st_ino != before
    assert [each.name for each in path.parent.iterdir()] == ["sparklog.prom"]


def test_write_metrics_when_its_folder_is_gone_for_good_then_it_says_so_and_raises_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The run is done by then, and is still to be told; before it, the same is a reason not to begin."""
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "sparklog.prom"

    assert not write_metrics(path, _run(tmp_path / "store"), NOW_MS, 0)
    assert "The metrics file can't be written" in caplog.text
    for refused in (path, tmp_path):
        with pytest.raises(StorageError, match=str(tmp_path)):
            make_metrics_folder(refused)


def test_metrics_when_a_run_ends_by_an_exception_then_success_is_0_unless_another_was_at_work(tmp_path: Path) -> None:
    """A file of the run before would say that all is well."""
    path = tmp_path / "sparklog.prom"
    path.write_text("sparklog_maintenance_success 1\n")
    with pytest.raises(StoreLockedError), recording_failure(path, ManualClock(NOW_MS)):
        raise StoreLockedError("held")
    assert path.read_text() == "sparklog_maintenance_success 1\n"

    with pytest.raises(StorageError), recording_failure(path, ManualClock(NOW_MS)):
        raise StorageError("gone")
    assert "\nsparklog_maintenance_success 0\n" in path.read_text()
    assert f"\nsparklog_maintenance_run_timestamp_seconds {NOW_MS / 1000:.15g}\n" in path.read_text()

    with pytest.raises(StorageError), recording_failure(None, ManualClock(NOW_MS)):
        raise StorageError("gone")
