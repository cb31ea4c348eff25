"""Tasks of a read: large logs in parts, small logs together."""

from pathlib import Path

import pytest

from sparklog.pipeline.places.store_view import open_logs
from sparklog.pipeline.reader.log_bounds import LogBounds, find_bounds
from sparklog.pipeline.reader.options import ReaderOptions, parse_options
from sparklog.pipeline.reader.plan import ReadTask, plan_tasks
from sparklog.storage_core.errors import StorageError
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.written_log import Batch, write_log

_Bounds = dict[TopicPartition, LogBounds]


def _large_log(folder: Path, megabytes: int = 48) -> None:
    """A log of two segments of so many MiB together, in batches of 64 KiB of 8 records."""
    batch = Batch([0] * 8, value_bytes=8192)
    write_log(folder / "large-0", [[batch] * (megabytes * 8)] * 2, index_interval_bytes=4096)


def _bounds(folder: Path, **options: str) -> tuple[_Bounds, ReaderOptions]:
    parsed = parse_options({"path": str(folder), **options}, "batch")
    return find_bounds(open_logs(folder).logs, parsed), parsed


def _whole(bounds: _Bounds) -> dict[TopicPartition, tuple[int, int]]:
    return {log: (each.start_offset, each.end_offset) for log, each in bounds.items()}


def _ranges(tasks: list[ReadTask]) -> list[tuple[str, int, int]]:
    return [(split.log.topic, split.start_offset, split.end_offset) for task in tasks for split in task.splits]


def test_plan_tasks_when_a_log_is_large_then_several_tasks_read_parts_of_its_segments(tmp_path: Path) -> None:
    """One log feeds several cores: splits lie inside segments, follow one another and are of one size."""
    _large_log(tmp_path)
    bounds, options = _bounds(tmp_path)

    tasks = plan_tasks(_whole(bounds), bounds, options)

    ranges = _ranges(tasks)
    assert len(tasks) >= 5
    assert [start for _, start, _ in ranges[1:]] == [end for _, _, end in ranges[:-1]]
    assert (ranges[0][1], ranges[-1][2]) == (0, 48 * 16 * 8)
    counts = [end - start for _, start, end in ranges]
    assert max(counts) < 2 * min(counts)


def test_plan_tasks_when_logs_are_small_then_a_task_reads_several(tmp_path: Path) -> None:
    """A task has its price, so a thousand small logs are not a thousand tasks."""
    for number in range(40):
        write_log(tmp_path / f"small-{number}", [[Batch([1, 2, 3])]])
    bounds, options = _bounds(tmp_path)

    tasks = plan_tasks(_whole(bounds), bounds, options)

    assert 1 < len(tasks) < 10
    assert len(_ranges(tasks)) == 40


def test_plan_tasks_when_nothing_is_wanted_then_there_is_no_task(tmp_path: Path) -> None:
    """Empty logs, and empty ranges of others, cost no task."""
    write_log(tmp_path / "t-0", [[Batch([1, 2, 3])]])
    (tmp_path / "t-1").mkdir()
    bounds, options = _bounds(tmp_path)
    wanted = _whole(bounds) | {TopicPartition("t", 0): (2, 2)}

    assert plan_tasks(wanted, bounds, options) == []


@pytest.mark.parametrize("has_index", [True, False])
def test_plan_tasks_when_more_are_asked_for_then_there_are_about_so_many(tmp_path: Path, has_index: bool) -> None:
    """`minPartitions` holds with an index and without one."""
    _large_log(tmp_path, megabytes=3)
    if not has_index:
        for path in (tmp_path / "large-0").glob("*.index"):
            path.unlink()
    bounds, options = _bounds(tmp_path, minPartitions="12")

    tasks = plan_tasks(_whole(bounds), bounds, options)

    assert 12 <= len(tasks) <= 16
    assert sum(end - start for _, start, end in _ranges(tasks)) == 3 * 16 * 8


def test_plan_tasks_when_records_of_a_task_are_limited_then_none_has_more(tmp_path: Path) -> None:
    """`maxRecordsPerPartition` bounds the offsets of each task."""
    write_log(tmp_path / "t-0", [[Batch([0] * 10)] * 10])
    bounds, options = _bounds(tmp_path, maxRecordsPerPartition="7")

    ranges = _ranges(plan_tasks(_whole(bounds), bounds, options))

    assert all(end - start <= 7 for _, start, end in ranges)
    assert sum(end - start for _, start, end in ranges) == 100


def test_plan_tasks_when_a_directory_is_gone_then_it_is_an_error_unless_loss_is_allowed(tmp_path: Path) -> None:
    """A log that disappears between two looks is named; where loss is allowed its task will say what is missing."""
    log = write_log(tmp_path / "t-0", [[Batch([1, 2, 3])]])
    bounds, options = _bounds(tmp_path)
    lossy = parse_options({"path": str(tmp_path), "failOnDataLoss": "false"}, "batch")
    log.directory.rename(tmp_path / "elsewhere")

    with pytest.raises(StorageError, match="t-0"):
        plan_tasks(_whole(bounds), bounds, options)
    assert _ranges(plan_tasks(_whole(bounds), bounds, lossy)) == [("t", 0, 3)]
