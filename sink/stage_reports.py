"""What the staging tasks report, as the driver needs it: columns of staged batches, or the error to raise."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sink.partitioner import REASONS
from sink.place import StagedBatches
from storage_core.errors import InvalidRecordError, StorageError

__all__ = ["StageReport", "check_reports", "collect_batches"]

StageReport = dict[str, Any]
"""One row of `stage.REPORT_DDL`, by column."""


def check_reports(reports: list[StageReport]) -> None:
    """Refuse a micro-batch that a task could not stage as a whole.

    Raises:
        StorageError: a task could not write.
        InvalidRecordError: a row can't become a record; the first one of the first task that found one.
    """
    for report in reports:
        if report["failure"]:
            raise StorageError(f"staging failed: {report['failure']} task={report['task']}")
    for report in reports:
        if report["invalid_row"] is not None:
            raise InvalidRecordError(_describe_invalid(report))


def collect_batches(
    reports: list[StageReport], directory: Path, log_rows: npt.NDArray[np.int64]
) -> StagedBatches | None:
    """Put the reports of all tasks into columns, sorted by log, then task, then position; None without a batch.

    Args:
        reports: in the order of their tasks.
        directory: of the staging files.
        log_rows: (logs,) ledger row of each log id.
    """
    tables = [pa.ipc.open_stream(report["batches"]).read_all() for report in reports]
    files = [directory / report["file"] for report in reports if report["file"]]
    counts = [table.num_rows for table, report in zip(tables, reports, strict=True) if report["file"]]
    if not sum(counts):
        return None
    table = pa.concat_tables(tables)
    row = log_rows[table.column("log").to_numpy()]
    order = np.argsort(row, kind="stable")
    names = ("position", "size", "records_count", "last_offset_delta", "base_offset", "max_timestamp")
    columns = {name: table.column(name).to_numpy().astype(np.int64)[order] for name in names}
    file = np.repeat(np.arange(len(files)), counts)[order]
    return StagedBatches(files=files, row=row[order], file=file, **columns)


def _describe_invalid(report: StageReport) -> str:
    column, what = REASONS[report["invalid_reason"]]
    topic = "" if report["invalid_topic"] is None else f" topic={report['invalid_topic']}"
    partition = "" if report["invalid_partition"] is None else f" partition={report['invalid_partition']}"
    position = f" row={report['invalid_row']} of input split {report['task']}"
    return f"invalid row: column '{column}' {what}:{topic}{partition}{position}"
