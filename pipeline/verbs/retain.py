"""The verb `retain`: which segments of a store's logs may go, and with `--execute` their removal.

A run holds the maintenance lock until files are renamed, and waits without it: from the rename on they are no part of
their logs, and whoever removes them, now or in a later run, does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from sparklog.pipeline.control.leases import refuse_leased
from sparklog.pipeline.terminal import PeopleTable
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.opening.access import maintaining
from sparklog.sink.operations.retain_logs import LogRetention, execute_plans, plan_logs, remove_deleted, waits_until_ms
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import UnknownTopicError
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.quantity_text import size_text
from sparklog.storage_core.retention.plan_retention import SegmentDeletion
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = [
    "as_dict",
    "execute_retention",
    "has_failures",
    "notes",
    "plan_retention_of",
    "print_plan",
    "verdict",
    "waiting_files",
]

_WIDE = 160


def plan_retention_of(root: Path, name: str | None, clock: Clock) -> list[LogRetention]:
    """Return what retention would do to the logs of a store; changes nothing.

    Args:
        root: of the store.
        name: `TOPIC` or `TOPIC:PARTITION`; all logs if None.
        clock: tells how old records are.

    Raises:
        InvalidConfigError: no store is there.
        UnknownTopicError: it has no such log.
    """
    store = Store.find(root)
    return plan_logs(store, clock, None if name is None else _select(store, name))


def execute_retention(
    root: Path,
    plan: Callable[[Store], list[LogRetention]],
    clock: Clock,
    waits: Callable[[int, int], None],
    sleep: Callable[[float], None],
) -> list[LogRetention]:
    """Make a plan and carry it out to the end; return what was done, each log with its failure if it has one.

    Args:
        root: of the store.
        plan: makes the plan, once nobody else maintains the store.
        clock: tells how old records are, and when files may go.
        waits: told how many files wait, and until when.
        sleep: for so many seconds.

    Raises:
        KeyboardInterrupt: while it waited; the next run removes the files.
        StoreLockedError: another maintenance runs.
    """
    refuse_leased(root, clock)
    with maintaining(root) as maintained:
        run = execute_plans(maintained, plan(maintained.store), clock)
    if (until_ms := waits_until_ms(run.pending, clock)) is not None:
        waits(sum(len(each.files) for each in run.pending), until_ms)
    failures = remove_deleted(run, clock, sleep)
    return [_removed(each, failures.get(each.log)) for each in run.logs]


def print_plan(logs: Sequence[LogRetention]) -> None:
    """Print a row per segment that may go."""
    table = PeopleTable(_WIDE)
    table.texts("log", "segment")
    table.numbers("offsets", "size")
    table.folded("reason")
    for each in logs:
        for deletion in each.plan.deletions if each.plan else ():
            table.row(str(each.log), *_cells(deletion))
    table.print()


def notes(logs: Sequence[LogRetention]) -> list[str]:
    """Return what else there is to say of logs: segments that stay, files that wait, failures."""
    return [line for each in logs for line in _notes(each)]


def verdict(logs: Sequence[LogRetention], *, is_executed: bool) -> str:
    """Return the last line for people."""
    due = [each.plan.deletions for each in logs if each.plan and each.plan.deletions and each.failure is None]
    segments, size = sum(map(len, due)), sum(each.size_bytes for found in due for each in found)
    failed = sum(each.failure is not None for each in logs)
    problems = f"; {failed:,} logs failed" if failed else ""
    if not any(each.is_due for each in logs):
        return f"nothing to delete in {len(logs):,} logs{problems}"
    what = f"{segments:,} segments of {len(due):,} logs, {size_text(size)}"
    return f"deleted: {what}{problems}" if is_executed else f"planned: {what}; --execute does it{problems}"


def waiting_files(count: int) -> str:
    """Return what is said to wait."""
    return f"{count:,} files; Ctrl-C leaves them to the next run"


def has_failures(logs: Sequence[LogRetention]) -> bool:
    """Whether a log could not be looked at, or not be done."""
    return any(each.failure is not None for each in logs)


def as_dict(logs: Sequence[LogRetention], *, is_executed: bool) -> dict[str, Any]:
    """Return what was planned or done, for JSON; logs of which there is nothing to say are counted only."""
    told = [_log_as_dict(each) for each in logs if each.is_due or each.waiting or each.failure or _held_back(each)]
    return {"executed": is_executed, "logs_checked": len(logs), "logs": told}


def _select(store: Store, name: str) -> list[TopicPartition]:
    logs = sorted(Ledger.open(store.ledger_path).states())
    found = [each for each in logs if name in (each.topic, f"{each.topic}:{each.partition}")]
    if not found:
        topics = ", ".join(sorted({each.topic for each in logs})) or "none"
        raise UnknownTopicError(f"no log of that name: name={name} topics={topics}")
    return found


def _removed(each: LogRetention, failure: str | None) -> LogRetention:
    """Return a log whose renamed files are gone, or could not be removed."""
    if failure is not None or each.listed is None:
        return replace(each, failure=failure or each.failure)
    return replace(each, listed=replace(each.listed, deleted=()))


def _cells(deletion: SegmentDeletion) -> tuple[str, str, str, str]:
    offsets = f"{deletion.base_offset:,}..{deletion.next_offset - 1:,}"
    reason = f"{deletion.rule}: {deletion.reason}{'; active, rolled first' if deletion.is_active else ''}"
    return segment_file_name(deletion.base_offset, LOG), offsets, size_text(deletion.size_bytes), reason


def _notes(each: LogRetention) -> list[str]:
    found = []
    if held := _held_back(each):
        due = f"{each.log}: the active segment is due ({held.reason})"
        found.append(f"{due}, and stays: only who writes the store may roll it")
    if each.waiting:
        size = sum(file.size_bytes for file in each.waiting)
        found.append(f"{each.log}: {len(each.waiting):,} files, {size_text(size)}, wait to be removed")
    if each.failure:
        found.append(f"{each.log}: failed: {each.failure}")
    return found


def _held_back(each: LogRetention) -> SegmentDeletion | None:
    return each.plan.held_back if each.plan else None


def _log_as_dict(each: LogRetention) -> Mapping[str, Any]:
    held = _held_back(each)
    return {
        "topic": each.log.topic,
        "partition": each.log.partition,
        "log_start_offset_before": each.state.log_start_offset,
        "log_start_offset": each.plan.log_start_offset if each.plan else None,
        "log_end_offset": each.state.log_end_offset,
        "deletions": [asdict(deletion) for deletion in each.plan.deletions] if each.plan else [],
        "held_back": asdict(held) if held else None,
        "waiting_files": len(each.waiting),
        "waiting_bytes": sum(file.size_bytes for file in each.waiting),
        "failure": each.failure,
    }
