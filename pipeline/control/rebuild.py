"""Rebuilds the control tables from the logs; sets damaged tables, and those of a newer release, aside.

Every log counts as never cleaned: its first dirty offset is its start. That is always correct, and costs one cleaning
of each log that finds little to do. Readable tables stay, except the checkpoints.

Epochs of leases only grow: a lower epoch would belong to a run that lost its lease long ago. If the table of leases is
lost, each log gets an expired row with the time in ms as epoch. An epoch grows by one per run, and a run takes longer
than a millisecond, so no earlier epoch is as large, unless the clock was set back: so the epochs in `runs`, if it is
readable, are lower bounds, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from sparklog.pipeline.control.cleaner_checkpoints import CleanerCheckpoint
from sparklog.pipeline.control.leases import refuse_leased
from sparklog.pipeline.control.read_tables import check_table, table_path
from sparklog.pipeline.control.schemas import CLEANER_CHECKPOINTS, CONTROL_TABLES, LEASES, RUNS, ControlTable
from sparklog.pipeline.control.tables import ControlTables
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.opening.access import maintaining
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import CorruptFileError, UnsupportedFormatError
from sparklog.storage_core.storage.local import storage_errors, sync_directory
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["rebuild_control", "tables_to_replace", "unowned_leases"]


def tables_to_replace(store: Path) -> dict[str, str]:
    """Return the tables that a rebuild sets aside, and why.

    Raises:
        StorageError: the disk refused.
    """
    found = {}
    for table in CONTROL_TABLES:
        if problem := _problem(store, table):
            found[table.name] = problem
    return found


def rebuild_control(root: Path, spark: Callable[[], SparkSession], clock: Clock) -> int:
    """Set tables aside, and rewrite the checkpoints of all logs; return the number of logs.

    Args:
        clock: for the names of tables set aside.

    Raises:
        StoreLockedError: a maintenance run holds the store.
        LedgerDamagedError: the ledger can't be read.
    """
    if LEASES.name not in tables_to_replace(root):
        refuse_leased(root, clock)
    with maintaining(root) as maintained:
        states = Ledger.open(maintained.store.ledger_path).states()
        for name in tables_to_replace(root):
            _set_aside(root / "control" / name, clock.now_ms())
        tables = ControlTables(spark(), root)
        if not tables.rows(LEASES):
            tables.put(LEASES, unowned_leases(states, tables.rows(RUNS), clock.now_ms()))
        tables.put(CLEANER_CHECKPOINTS, [each.as_dict() for each in _uncleaned(states, clock.now_ms()).values()])
    return len(states)


def unowned_leases(
    logs: Iterable[TopicPartition], runs: Iterable[Mapping[str, Any]], now_ms: int
) -> list[dict[str, Any]]:
    """Return expired rows of leases, in epochs that no run had.

    Args:
        runs: known rows of `runs`, also of deleted logs, whose names may be used again.
    """
    rows = list(runs)
    epoch = max((row["lease_epoch"] for row in rows if row["lease_epoch"] is not None), default=0)
    nobody = {"owner": "", "machine": "", "epoch": max(epoch, now_ms), "acquired_ms": now_ms, "expires_ms": 0}
    gone = {TopicPartition(row["topic"], row["partition"]) for row in rows if row["topic"] is not None}
    return [{"topic": log.topic, "partition": log.partition, **nobody} for log in sorted(gone.union(logs))]


def _problem(store: Path, table: ControlTable) -> str | None:
    if not table_path(store, table).exists():
        return None
    try:
        check_table(store, table)
    except (CorruptFileError, UnsupportedFormatError) as error:
        return str(error)
    return "is rewritten from the logs" if table == CLEANER_CHECKPOINTS else None


def _set_aside(path: Path, now_ms: int) -> None:
    with storage_errors(path):
        path.rename(path.with_name(f"{path.name}.replaced-{now_ms}"))
        sync_directory(path.parent)


def _uncleaned(states: Mapping[TopicPartition, LogState], now_ms: int) -> dict[TopicPartition, CleanerCheckpoint]:
    return {
        log: CleanerCheckpoint(
            topic=log.topic,
            partition=log.partition,
            topic_id=state.topic_id,
            first_dirty_offset=state.log_start_offset,
            log_start_offset=state.log_start_offset,
            updated_ms=now_ms,
        )
        for log, state in states.items()
    }
