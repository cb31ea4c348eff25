"""A staging task's report to the driver: one row in Spark's columns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sparklog.sink.stage.invalid_rows import InvalidReason, InvalidRow

__all__ = ["BATCHES_SCHEMA", "REPORT_DDL", "StageReport"]

BATCHES_SCHEMA = pa.schema(
    [
        ("log", pa.int32()),
        ("position", pa.int64()),
        ("size", pa.int32()),
        ("records_count", pa.int32()),
        ("last_offset_delta", pa.int32()),
        ("base_offset", pa.int64()),
        ("max_timestamp", pa.int64()),
    ]
)
"""The staged batches of a task, as an Arrow stream inside its report."""

_SCHEMA = pa.schema(
    [
        ("task", pa.int32()),
        ("file", pa.string()),
        ("batches", pa.binary()),
        ("records", pa.int64()),
        ("quarantine", pa.string()),
        ("quarantined", pa.int64()),
        ("invalid_row", pa.int64()),
        ("invalid_reason", pa.int32()),
        ("invalid_topic", pa.string()),
        ("invalid_partition", pa.int64()),
        ("failure", pa.string()),
    ]
)
_SPARK_TYPES = {pa.int32(): "int", pa.int64(): "bigint", pa.string(): "string", pa.binary(): "binary"}

REPORT_DDL = ", ".join(f"{field.name} {_SPARK_TYPES[field.type]}" for field in _SCHEMA)
"""The columns of a report, for Spark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport:
    """Staged batches of one task attempt, or its failure.

    Attributes:
        task: number of the input split.
        file: name of the file of staged batches, None without one.
        batches: an Arrow stream of `BATCHES_SCHEMA`.
        records: in them.
        quarantine: name of the file of diverted rows, None without one.
        quarantined: rows in it.
        invalid: the first invalid row, if such rows are not diverted.
        failure: why the task could not write, None after success.
    """

    task: int
    file: str | None
    batches: bytes
    records: int
    quarantine: str | None
    quarantined: int
    invalid: InvalidRow | None
    failure: str | None

    def to_batch(self) -> pa.RecordBatch:
        """Return it as one row of `REPORT_DDL`."""
        row: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__ if name != "invalid"}
        if self.invalid is not None:
            row |= {f"invalid_{name}": getattr(self.invalid, name) for name in InvalidRow.__slots__}
        return pa.RecordBatch.from_pylist([row], schema=_SCHEMA)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "StageReport":
        """Take the columns of one row of `REPORT_DDL`."""
        invalid = None
        if row["invalid_row"] is not None:
            invalid = InvalidRow(
                row=row["invalid_row"],
                reason=InvalidReason(row["invalid_reason"]),
                topic=row["invalid_topic"],
                partition=row["invalid_partition"],
            )
        return cls(invalid=invalid, **{name: row[name] for name in cls.__slots__ if name != "invalid"})
