"""The rows of the ledger, one per log, in columns; a change gives new rows, the old ones stay as they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.sink.ledger.intents import Copy, Deletion, Import, Intent, Move, future_name, parse_intents
from sparklog.storage_core.log.files.committed_end import CommittedEnd
from sparklog.storage_core.record.schema import int64s
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["LEDGER_PARTITION", "LEDGER_SCHEMA", "ROWS_SCHEMA", "CommittedLogs", "LedgerRows", "LogState"]

ROWS_SCHEMA = pa.schema(
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
        pa.field("cleaner_limit_offset", pa.int64(), nullable=False),
        pa.field("intent", pa.string(), nullable=False),
        pa.field("owes", pa.string(), nullable=False),
        pa.field("compacted_offset", pa.int64(), nullable=False),
        pa.field("first_unstable_offset", pa.int64(), nullable=False),
    ]
)
"""Columns of a data file with rows of logs."""

LEDGER_PARTITION = ("kind", "log")
"""The table's partition column, and its value for rows of logs: a commit replaces these, and no others."""

LEDGER_SCHEMA = pa.schema(
    [*(field.with_nullable(True) for field in ROWS_SCHEMA), pa.field(LEDGER_PARTITION[0], pa.string(), nullable=False)]
)
"""Of the table: rows of another kind may have none of these columns."""

_TEXT = tuple(field.name for field in ROWS_SCHEMA if pa.types.is_string(field.type))
_INTEGERS = tuple(field.name for field in ROWS_SCHEMA if field.name not in _TEXT)

_OF_MAINTENANCE = frozenset(
    {"log_start_offset", "recovery_point", "updated_ms", "cleaner_limit_offset", "compacted_offset"}
)
"""What maintenance changes, which may run beside a writer; the first two only rise."""


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
        cleaner_limit_offset: lowest offset that the log was truncated to since a maintenance run recorded how far it is
            clean: cleaner checkpoints count no further. -1 none.
        intent: what is left to do about the log (`intents.py`).
        owes: what the log needs once its log directory is back, which was offline: a close "look" as after a crash, or
            to "renew" its files after a taking by force.
        compacted_offset: highest end of a compaction so far, also of one that was killed: records below it may have
            gone because of later ones below it. -1 never compacted.
        first_unstable_offset: first offset of a transaction that stays open for good, -1 none.
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
    cleaner_limit_offset: int = -1
    intent: str = ""
    owes: str = ""
    compacted_offset: int = -1
    first_unstable_offset: int = -1

    @property
    def log(self) -> TopicPartition:
        """Topic and partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def committed_end(self) -> CommittedEnd:
        """Where its files end."""
        return CommittedEnd(self.active_base_offset, self.active_size_bytes, self.log_end_offset)

    @property
    def intents(self) -> tuple[Intent, ...]:
        """What is left to do about the log."""
        return parse_intents(self.intent)

    @property
    def is_absent(self) -> bool:
        """Whether there is no such log, deleted or not imported yet: the row only waits for its directories to go."""
        return _is_absent(self.intents)

    @property
    def leftovers(self) -> list[tuple[str, str]]:
        """Log directory and name of each directory that has to go, or to get the log's name, if it is still there."""
        name, intents = self.log.directory_name, self.intents
        found = []
        for each in intents:
            if isinstance(each, Deletion):
                found.append((self.log_dir, name))
            elif isinstance(each, Import):
                found.append((self.log_dir, future_name(self.log, each)))
            elif isinstance(each, Copy):
                found.append((each.target, future_name(self.log, each)))
            elif isinstance(each, Move):
                found += [(each.source, name)] if each.source != self.log_dir else []
                found.append((self.log_dir, future_name(self.log, each)))
        return found


class CommittedLogs(Protocol):
    """The logs of a ledger, whatever holds its files."""

    @property
    def rows(self) -> Mapping[TopicPartition, int]:
        """Row number of each log that there is."""

    def column(self, name: str) -> npt.NDArray[np.int64]:
        """Return (n,) values of an integer column, of every row; not to be changed."""

    def state(self, row: int) -> LogState:
        """Return one row."""


class LedgerRows:
    """The rows of one version.

    Attributes:
        text: (n,) values of each text column, by name; not to be changed.
        integers: (n,) int64 values of each integer column, by name; not to be changed.
        number_of: row number of each log; rows of logs that are deleted or not imported yet have none.

    Args:
        before: rows with the same text, as those before almost every commit have.
    """

    def __init__(
        self,
        text: Mapping[str, list[str]],
        integers: Mapping[str, npt.NDArray[np.int64]],
        before: "LedgerRows | None" = None,
    ) -> None:
        self.text = text
        self.integers = integers
        self.number_of: Mapping[TopicPartition, int] = (
            _number(text, integers["partition"].tolist()) if before is None else before.number_of
        )
        self._arrays: dict[str, pa.Array] = {} if before is None else before._arrays

    @classmethod
    def from_table(cls, table: pa.Table) -> "LedgerRows":
        """Take the rows of a table of `ROWS_SCHEMA`."""
        text = {name: table.column(name).to_pylist() for name in _TEXT}
        parts = {name: [int64s(each) for each in table.column(name).chunks] for name in _INTEGERS}
        return cls(text, {name: np.concatenate([np.empty(0, np.int64), *each]) for name, each in parts.items()})

    def to_table(self) -> pa.Table:
        """Return the rows as a table of `ROWS_SCHEMA`."""
        if not self._arrays:
            self._arrays.update({name: pa.array(column, pa.string()) for name, column in self.text.items()})
        columns = {**self._arrays, **self.integers}
        return pa.table([pa.array(columns[field.name], field.type) for field in ROWS_SCHEMA], schema=ROWS_SCHEMA)

    def __len__(self) -> int:
        return len(self.text["topic"])

    @cached_property
    def all_states(self) -> Sequence[LogState]:
        """Every row, by its number."""
        names = [each.name for each in fields(LogState)]
        columns = {**self.text, **{name: column.tolist() for name, column in self.integers.items()}}
        rows = zip(*(columns[name] for name in names), strict=True)
        return [LogState(**dict(zip(names, row, strict=True))) for row in rows]

    @cached_property
    def states(self) -> Mapping[TopicPartition, LogState]:
        """The rows of logs that there are, by log."""
        return {log: self.all_states[row] for log, row in self.number_of.items()}

    def state(self, row: int) -> LogState:
        """Return one row."""
        values: dict[str, Any] = {name: column[row] for name, column in self.text.items()}
        values |= {name: int(column[row]) for name, column in self.integers.items()}
        return LogState(**values)

    def with_values(
        self, rows: npt.NDArray[np.int64], values: Mapping[str, npt.NDArray[np.int64] | Sequence[str]]
    ) -> "LedgerRows":
        """Replace values of some rows."""
        text, integers = dict(self.text), dict(self.integers)
        for name, changed in values.items():
            if name in integers:
                integers[name] = integers[name].copy()
                integers[name][rows] = changed
            else:
                of_row = dict(zip(rows.tolist(), changed, strict=True))
                text[name] = [str(of_row.get(row, value)) for row, value in enumerate(text[name])]
        return LedgerRows(text, integers, None if values.keys() & text.keys() else self)

    def with_risen(self, rows: npt.NDArray[np.int64], values: Mapping[str, npt.NDArray[np.int64]]) -> "LedgerRows":
        """Replace values of some rows, but let nothing fall that only rises."""
        floors = {name: self.integers[name][rows] for name in values if name in ("log_start_offset", "recovery_point")}
        return self.with_values(
            rows, {**values, **{name: np.maximum(values[name], low) for name, low in floors.items()}}
        )

    def with_next_epochs(self) -> "LedgerRows":
        """Raise the leader epoch of every log, as a new leader does."""
        epochs = self.integers["leader_epoch"] + 1
        return self.with_values(np.arange(len(epochs)), {"leader_epoch": epochs})

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

    def differs_by_maintenance_only(self, other: "LedgerRows") -> bool:
        """Whether only what maintenance changes differs; both have the same logs in the same order."""
        if self.text != other.text:
            return False
        return all(
            np.array_equal(column, other.integers[name])
            for name, column in self.integers.items()
            if name not in _OF_MAINTENANCE
        )


def _number(text: Mapping[str, list[str]], partitions: Sequence[int]) -> dict[TopicPartition, int]:
    rows = enumerate(zip(text["topic"], partitions, text["intent"], strict=True))
    there = (each for each in rows if not _is_absent(parse_intents(each[1][2])))
    return {TopicPartition(topic, number): row for row, (topic, number, _) in there}


def _is_absent(intents: Sequence[Intent]) -> bool:
    return any(isinstance(each, Deletion | Import) for each in intents)
