"""Reports of staging tasks on the driver: columns of staged batches, or the error to raise."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.sink.place.staged_batches import StagedBatches
from sparklog.sink.stage.report import StageReport
from sparklog.storage_core.errors import InvalidRecordError, StorageError

__all__ = ["check_reports", "collect_batches", "split_floors"]


def check_reports(reports: list[StageReport]) -> None:
    """Refuse a micro-batch that a task could not stage as a whole.

    Raises:
        StorageError: a task could not write.
        InvalidRecordError: a row can't become a record; the first one of the first task that found one.
    """
    for report in reports:
        if report.failure:
            raise StorageError(f"staging failed: {report.failure} task={report.task}")
    for report in reports:
        if report.invalid is not None:
            raise InvalidRecordError(report.invalid.describe(report.task))


def collect_batches(
    reports: list[StageReport], directory: Path, log_rows: npt.NDArray[np.int64]
) -> StagedBatches | None:
    """Put the reports of all tasks into columns, sorted by log, then task, then position; None without a batch.

    Args:
        reports: in the order of their tasks.
        log_rows: (logs,) ledger row of each log id.
    """
    tables = [pa.ipc.open_stream(report.batches).read_all() for report in reports]
    files = [directory / report.file for report in reports if report.file]
    counts = [table.num_rows for table, report in zip(tables, reports, strict=True) if report.file]
    if not sum(counts):
        return None
    table = pa.concat_tables(tables)
    row = log_rows[table.column("log").to_numpy()]
    order = np.argsort(row, kind="stable")
    names = ("position", "size", "records_count", "last_offset_delta", "base_offset", "max_timestamp")
    columns = {name: table.column(name).to_numpy().astype(np.int64)[order] for name in names}
    file = np.repeat(np.arange(len(files)), counts)[order]
    return StagedBatches(files=files, row=row[order], file=file, **columns)


def split_floors(
    staged: StagedBatches, reports: list[StageReport], log_rows: npt.NDArray[np.int64]
) -> dict[int, dict[int, int]]:
    """Return the offsets of earlier splits, if a preserved offset goes back from one split to a later one.

    Returns:
        by task, by log id: the largest offset that earlier tasks bring for the log. Empty if no offset goes back.
    """
    last = staged.base_offset + staged.last_offset_delta
    same_log = staged.row[1:] == staged.row[:-1]
    if not (same_log & (staged.base_offset[1:] <= last[:-1])).any():
        return {}
    tasks = [int(report.task) for report in reports if report.file]
    log_of_row = {row: log for log, row in enumerate(log_rows.tolist())}
    floors: dict[int, dict[int, int]] = {}
    starts_split = np.ones(len(last), np.bool_)
    starts_split[1:] = ~same_log | (np.diff(staged.file) != 0)
    starts = np.flatnonzero(starts_split)
    reached = -1
    for start, newest in zip(starts.tolist(), np.maximum.reduceat(last, starts).tolist(), strict=True):
        if start == 0 or not same_log[start - 1]:
            reached = -1
        if reached >= 0:
            floors.setdefault(tasks[staged.file[start]], {})[log_of_row[int(staged.row[start])]] = reached
        reached = max(reached, newest)
    return floors
