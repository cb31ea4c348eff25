"""The verb `retain`: plans the retention of a store's logs, and with `--execute` deletes segments.

A run holds the maintenance lock until files are renamed, and releases it before `file.delete.delay.ms`: the renamed
files belong to no log, so this run or a later one may remove them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sparklog.pipeline.control.leases import refuse_leased
from sparklog.pipeline.report import DONE, FAILED, say_waiting, show
from sparklog.pipeline.terminal import PeopleTable
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.opening.access import maintaining
from sparklog.sink.operations.cut_before import write_cut_before_maintenance
from sparklog.sink.operations.retain_logs import LogRetention, execute_plans, last_removal_ms, plan_logs, remove_deleted
from sparklog.sink.past.overtaken_cuts import describe_overtaken
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import Clock, SystemClock, sleep
from sparklog.storage_core.errors import UnknownTopicError
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.quantity_text import size_text
from sparklog.storage_core.retention.plan_retention import SegmentDeletion
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["execute_retention", "retain", "run", "say_files_wait"]

_WIDE = 160


@dataclass(frozen=True, slots=True)
class _Retention:
    """The retention of each log, planned or done; and what the plan means for cuts."""

    logs: Sequence[LogRetention]
    is_executed: bool
    overtaken: str | None

    @property
    def failed_count(self) -> int:
        """Number of logs that failed, in the plan or in its execution."""
        return sum(each.failure is not None for each in self.logs)

    def lines(self) -> list[str]:
        """Return the lines below the table: segments that stay, files that wait, failures, cuts that are overtaken."""
        return [*(line for each in self.logs for line in _notes(each)), *([self.overtaken] if self.overtaken else [])]

    def verdict(self) -> str:
        """Return the last line for people."""
        due = [each.plan.deletions for each in self.logs if each.plan and each.plan.deletions and each.failure is None]
        segments, size = sum(map(len, due)), sum(each.size_bytes for found in due for each in found)
        problems = f"; {self.failed_count:,} logs failed" if self.failed_count else ""
        if not any(each.is_due for each in self.logs):
            return f"nothing to delete in {len(self.logs):,} logs{problems}"
        what = f"{segments:,} segments of {len(due):,} logs, {size_text(size)}"
        return f"deleted: {what}{problems}" if self.is_executed else f"planned: {what}; --execute does it{problems}"

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON; logs without a change are only counted."""
        shown = [each for each in self.logs if each.is_due or each.waiting or each.failure or _held_back(each)]
        logs = [_log_as_dict(each) for each in shown]
        return {"executed": self.is_executed, "logs_checked": len(self.logs), "logs": logs}


def run(store: Path, topic: str | None, execute: bool, as_json: bool) -> int:
    """Carry the verb out; return the exit code."""
    clock = SystemClock()
    return retain(store, lambda found: _plan(found, topic, clock), execute=execute, as_json=as_json)


def retain(root: Path, plan: Callable[[Store], list[LogRetention]], *, execute: bool, as_json: bool) -> int:
    """Show the plan of a retention, and maybe execute it; return the exit code."""

    def shown(store: Store) -> list[LogRetention]:
        planned = plan(store)
        if not as_json:
            _print_plan(planned)
        return planned

    clock = SystemClock()
    if execute:
        logs, overtaken = execute_retention(root, shown, clock, say_files_wait, sleep), None
    else:
        store = Store.find(root)
        logs = shown(store)
        overtaken = describe_overtaken(store.ledger_path, _rows_after(logs))
    report = _Retention(logs, execute, overtaken)
    show(report, as_json=as_json)
    return FAILED if report.failed_count else DONE


def say_files_wait(count: int, until_ms: int) -> None:
    """Print how many files wait for their removal, and until when."""
    say_waiting(f"{count:,} files; Ctrl-C leaves them to the next run", until_ms)


def _plan(store: Store, name: str | None, clock: Clock) -> list[LogRetention]:
    """Return the retention of the logs of `TOPIC` or `TOPIC:PARTITION`; of all logs if None."""
    return plan_logs(store, clock, None if name is None else _select(store, name))


def execute_retention(
    root: Path,
    plan: Callable[[Store], list[LogRetention]],
    clock: Clock,
    waits: Callable[[int, int], None],
    pause: Callable[[float], None],
) -> list[LogRetention]:
    """Make a plan and carry it out; return the retention of each log, with its failure if it failed.

    Args:
        plan: makes the plan, under the maintenance lock.
        clock: for the age of records and the delay of removals.
        waits: called with the number of waiting files, and until when they wait.

    Raises:
        KeyboardInterrupt: during the delay; the next run removes the files.
        StoreLockedError: another maintenance run holds the store.
    """
    refuse_leased(root, clock)
    with maintaining(root) as maintained:
        write_cut_before_maintenance(maintained, clock)
        retention = execute_plans(maintained, plan(maintained.store), clock)
    if (until_ms := last_removal_ms(retention.pending, clock)) is not None:
        waits(sum(len(each.files) for each in retention.pending), until_ms)
    failures = remove_deleted(retention, clock, pause)
    return [_removed(each, failures.get(each.log)) for each in retention.logs]


def _rows_after(logs: Sequence[LogRetention]) -> dict[TopicPartition, LogState]:
    """Return the ledger rows of logs that will start higher, as they will be."""
    return {
        each.log: replace(each.state, log_start_offset=each.plan.log_start_offset)
        for each in logs
        if each.plan is not None and each.failure is None and each.plan.log_start_offset > each.state.log_start_offset
    }


def _print_plan(logs: Sequence[LogRetention]) -> None:
    """Print a row per segment to delete."""
    table = PeopleTable(_WIDE)
    table.texts("log", "segment")
    table.numbers("offsets", "size")
    table.folded("reason")
    for each in logs:
        for deletion in each.plan.deletions if each.plan else ():
            table.row(str(each.log), *_cells(deletion))
    table.print()


def _select(store: Store, name: str) -> list[TopicPartition]:
    logs = sorted(Ledger.open(store.ledger_path).states())
    found = [each for each in logs if name in (each.topic, f"{each.topic}:{each.partition}")]
    if not found:
        topics = ", ".join(sorted({each.topic for each in logs})) or "none"
        raise UnknownTopicError(f"no log of that name: name={name} topics={topics}")
    return found


def _removed(each: LogRetention, failure: str | None) -> LogRetention:
    """Return the log after the removal of its renamed files, or with the failure of that."""
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
        found.append(f"{due}, and stays: only the store's writer may roll it")
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
