"""The rows of the ledger, one per log, in columns; a change gives new rows, the old ones stay as they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.storage_core.record.schema import int64s
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["LEDGER_SCHEMA", "LedgerRows", "LogState"]

LEDGER_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("log_dir", pa.string(), nullable=False),
        pa.field("topic_id", pa.string(), nullable=False),
        pa.field("log_start_offset", pa.int64(), nullable=False),
        pa.field("log_end_offset", pa.int64(), nullable=False),
        pa.field("recovery_point", pa.int64(), nullable=False),
        pa.field("active_base_offset", pa.int64(), nullable=False),
        pa.field("active_size_bytes", pa.int64(), nullable=False),
        pa.field("max_timestamp_ms", pa.int64(), nullable=False),
        pa.field("leader_epoch", pa.int32(), nullable=False),
        pa.field("updated_ms", pa.int64(), nullable=False),
    ]
)

_TEXT = tuple(field.name for field in LEDGER_SCHEMA if pa.types.is_string(field.type))
_INTEGERS = tuple(field.name for field in LEDGER_SCHEMA if field.name not in _TEXT)

_OF_DELETES = frozenset({"log_start_offset", "recovery_point", "updated_ms"})
"""What changes when records are deleted, which may happen beside a writer; the first two only rise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """One row of the ledger.

    Attributes:
        log_dir: folder that holds the log's directory, relative to the store or absolute.
        log_end_offset: next offset to write.
        recovery_point: every offset below it is on the disk, fsynced.
        active_base_offset: base offset of the active segment.
        active_size_bytes: committed bytes of its `.log`.
        max_timestamp_ms: largest timestamp of the log, -1 none.
    """

    topic: str
    partition: int
    log_dir: str
    topic_id: str
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    active_base_offset: int
    active_size_bytes: int
    max_timestamp_ms: int
    leader_epoch: int
    updated_ms: int


class LedgerRows:
    """The rows of one version.

    Attributes:
        text: (n,) values of each text column, by name; not to be changed.
        integers: (n,) int64 values of each integer column, by name; not to be changed.
        number_of: row number of each log.
    """

    def __init__(
        self,
        text: Mapping[str, list[str]],
        integers: Mapping[str, npt.NDArray[np.int64]],
        number_of: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        self.text = text
        self.integers = integers
        self.number_of = _number(text["topic"], integers["partition"].tolist()) if number_of is None else number_of

    @classmethod
    def from_table(cls, table: pa.Table) -> "LedgerRows":
        """Take the rows of a table of `LEDGER_SCHEMA`."""
        text = {name: table.column(name).to_pylist() for name in _TEXT}
        parts = {name: [int64s(each) for each in table.column(name).chunks] for name in _INTEGERS}
        return cls(text, {name: np.concatenate([np.empty(0, np.int64), *each]) for name, each in parts.items()})

    def to_table(self) -> pa.Table:
        """Return the rows as a table of `LEDGER_SCHEMA`."""
        columns: dict[str, object] = {**self.text, **self.integers}
        return pa.table([pa.array(columns[field.name], field.type) for field in LEDGER_SCHEMA], schema=LEDGER_SCHEMA)

    def __len__(self) -> int:
        return len(self.number_of)

    @cached_property
    def states(self) -> Mapping[TopicPartition, LogState]:
        """Every row, by log."""
        names = [each.name for each in fields(LogState)]
        columns = {**self.text, **{name: column.tolist() for name, column in self.integers.items()}}
        rows = zip(*(columns[name] for name in names), strict=True)
        states = (LogState(**dict(zip(names, row, strict=True))) for row in rows)
        return dict(zip(self.number_of, states, strict=True))

    def state(self, row: int) -> LogState:
        """Return one row."""
        return LogState(
            topic=self.text["topic"][row],
            log_dir=self.text["log_dir"][row],
            topic_id=self.text["topic_id"][row],
            **{name: int(column[row]) for name, column in self.integers.items()},
        )

    def with_values(self, rows: npt.NDArray[np.int64], values: Mapping[str, npt.NDArray[np.int64]]) -> "LedgerRows":
        """Replace values of some rows in integer columns."""
        integers = dict(self.integers)
        for name, changed in values.items():
            integers[name] = integers[name].copy()
            integers[name][rows] = changed
        return LedgerRows(self.text, integers, self.number_of)

    def with_risen(self, rows: npt.NDArray[np.int64], values: Mapping[str, npt.NDArray[np.int64]]) -> "LedgerRows":
        """Replace values of some rows, but let nothing fall that only rises."""
        floors = {name: self.integers[name][rows] for name in values if name in ("log_start_offset", "recovery_point")}
        return self.with_values(
            rows, {**values, **{name: np.maximum(values[name], low) for name, low in floors.items()}}
        )

    def with_log_dir(self, row: int, log_dir: str) -> "LedgerRows":
        """Let a log lie in another log directory."""
        log_dirs = [*self.text["log_dir"]]
        log_dirs[row] = log_dir
        return LedgerRows({**self.text, "log_dir": log_dirs}, self.integers, self.number_of)

    def with_added(self, states: Sequence[LogState]) -> "LedgerRows":
        """Append rows."""
        text = {name: [*column, *(getattr(state, name) for state in states)] for name, column in self.text.items()}
        integers = {
            name: np.append(column, [getattr(state, name) for state in states]).astype(np.int64)
            for name, column in self.integers.items()
        }
        return LedgerRows(text, integers)

    def without(self, rows: npt.NDArray[np.int64]) -> "LedgerRows":
        """Drop rows; those behind them move up."""
        kept = np.setdiff1d(np.arange(len(self)), rows)
        text = {name: [column[row] for row in kept.tolist()] for name, column in self.text.items()}
        return LedgerRows(text, {name: column[kept] for name, column in self.integers.items()})

    def differs_by_deletes_only(self, other: "LedgerRows") -> bool:
        """Whether only log start offsets differ; both have the same logs in the same order."""
        if self.text != other.text:
            return False
        return all(
            np.array_equal(column, other.integers[name])
            for name, column in self.integers.items()
            if name not in _OF_DELETES
        )


def _number(topics: Sequence[str], partitions: Sequence[int]) -> dict[TopicPartition, int]:
    return {TopicPartition(*log): row for row, log in enumerate(zip(topics, partitions, strict=True))}
