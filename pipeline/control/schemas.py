"""The control tables of maintenance runs, below a store's `control/`: names, columns, keys, version.

| table               | a row for                              | content                                               |
|---------------------|----------------------------------------|-------------------------------------------------------|
| cleaner_checkpoints | each log that ever had a task          | first dirty offset; last failure and time of retry    |
| runs                | each run, and each task on a log       | plan, result, bytes and duration                      |
| leases              | each log that ever had a task          | the run that has it, expiry, epoch                    |

Times are ms since 1970 in 64-bit integers, like every other time of a store.
"""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

__all__ = [
    "CLEANER_CHECKPOINTS",
    "CONTROL_TABLES",
    "LEASES",
    "RUNS",
    "SCHEMA_VERSION",
    "VERSION_PROPERTY",
    "ControlTable",
]

SCHEMA_VERSION: Final = 1
VERSION_PROPERTY: Final = "sparklog.schema.version"
"""The table property that holds the version of a table's columns."""

_SQL_TYPES: Final = {pa.string(): "STRING", pa.int32(): "INT", pa.int64(): "BIGINT"}


@dataclass(frozen=True, slots=True)
class ControlTable:
    """One table.

    Attributes:
        keys: columns that identify a row; null is a value like others.
    """

    name: str
    schema: pa.Schema
    keys: tuple[str, ...]

    @property
    def columns_sql(self) -> str:
        """The columns as SQL declarations."""
        declared = ((each.name, _SQL_TYPES[each.type], "" if each.nullable else " NOT NULL") for each in self.schema)
        return ", ".join(f"{name} {kind}{rest}" for name, kind, rest in declared)


def _text(name: str, *, is_null: bool = False) -> pa.Field:
    return pa.field(name, pa.string(), nullable=is_null)


def _int(name: str, *, is_null: bool = False) -> pa.Field:
    return pa.field(name, pa.int64(), nullable=is_null)


CLEANER_CHECKPOINTS: Final = ControlTable(
    "cleaner_checkpoints",
    pa.schema(
        [
            _text("topic"),
            pa.field("partition", pa.int32(), nullable=False),
            _text("topic_id"),
            _int("first_dirty_offset"),
            _int("log_start_offset"),
            _int("last_cleaned_ms", is_null=True),
            _text("uncleanable_reason", is_null=True),
            _text("uncleanable_file", is_null=True),
            _int("uncleanable_position", is_null=True),
            _int("uncleanable_offset", is_null=True),
            _int("failure_count"),
            _int("retry_at_ms", is_null=True),
            _text("run_id", is_null=True),
            _int("updated_ms"),
        ]
    ),
    ("topic", "partition"),
)

RUNS: Final = ControlTable(
    "runs",
    pa.schema(
        [
            _text("run_id"),
            _text("topic", is_null=True),
            pa.field("partition", pa.int32()),
            _text("action", is_null=True),
            _int("lease_epoch", is_null=True),
            _text("plan"),
            _text("decision"),
            _text("reason"),
            _text("outcome"),
            _text("error", is_null=True),
            _int("bytes_before", is_null=True),
            _int("bytes_after", is_null=True),
            _int("records_before", is_null=True),
            _int("records_after", is_null=True),
            _int("started_ms"),
            _int("duration_ms"),
        ]
    ),
    ("run_id", "topic", "partition", "action"),
)

LEASES: Final = ControlTable(
    "leases",
    pa.schema(
        [
            _text("topic"),
            pa.field("partition", pa.int32(), nullable=False),
            _text("owner"),
            _text("machine"),
            _int("epoch"),
            _int("acquired_ms"),
            _int("expires_ms"),
        ]
    ),
    ("topic", "partition"),
)

CONTROL_TABLES: Final = (CLEANER_CHECKPOINTS, RUNS, LEASES)
