"""Retention of a store's logs: plans, and carries plans out beside a running sink.

The steps, and recovery from a crash after each:
- if no sink holds the store, an empty segment after an active one that is due (`retain.rolled`): the next opening
  removes it, as no ledger names it;
- the ledger: log starts are raised, in one commit for the rolled logs and one for the others (`retain.committed`): the
  next run deletes segments below their log's start, whatever the settings are;
- names: `.deleted` (`retain.renamed`): the next run removes files that have waited long enough;
- `file.delete.delay.ms` later the files are removed (`retain.deleted`).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.opening.access import MaintainedStore, WrittenStore, enter_writer
from sparklog.sink.operations.raise_offsets import raise_log_starts
from sparklog.sink.store.derived_files import DerivedFiles
from sparklog.sink.store.map_logs import map_logs
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import UNKNOWN_SETTINGS, read_topic_configs
from sparklog.storage_core.clock import Clock, sleep
from sparklog.storage_core.errors import LogStorageError, StorageError, WriterFencedError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.log.files.deleted_files import DeletedFile, drop_listed, list_deleted
from sparklog.storage_core.log.files.empty_segment import add_empty_segment
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.retention.delete_segments import delete_segments, fits
from sparklog.storage_core.retention.log_facts import ListedLog, list_log, read_log_facts
from sparklog.storage_core.retention.plan_retention import (
    LogFacts,
    RetentionPlan,
    after_roll,
    plan_retention,
    without_roll,
)
from sparklog.storage_core.storage.owned_names import Owner
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = [
    "LogRetention",
    "PendingRemoval",
    "RetentionRun",
    "execute_plans",
    "last_removal_ms",
    "plan_logs",
    "remaining_delay_ms",
    "remove_deleted",
]

logger = logging.getLogger(__name__)

_LONGEST_SLEEP_MS = 1000
"""Short, as the machine may be suspended meanwhile."""

Decide = Callable[[LogFacts, LogConfig], RetentionPlan]
"""Makes a log's plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRetention:
    """Retention's plan for one log of a store.

    Attributes:
        state: the log's ledger row at the plan.
        delay_ms: `file.delete.delay.ms` of its topic.
        plan: None if the log can't be read.
        listed: its directory, None likewise.
        failure: why the log, or a part of its plan, is skipped.
        is_outdated: it is skipped because the log has changed since its plan.
    """

    log: TopicPartition
    state: LogState
    directory: Path
    delay_ms: int
    plan: RetentionPlan | None = None
    listed: ListedLog | None = None
    failure: str | None = None
    is_outdated: bool = False

    @property
    def is_due(self) -> bool:
        """Whether there is a step to do before files are removed."""
        if self.plan is None or self.listed is None or self.failure is not None:
            return False
        has_risen = self.plan.log_start_offset > self.state.log_start_offset
        return bool(self.plan.deletions) or self.listed.has_stray or has_risen

    @property
    def waiting(self) -> tuple[DeletedFile, ...]:
        """Files that an earlier run renamed and did not remove."""
        return () if self.listed is None else self.listed.deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRemoval:
    """Renamed files of one log.

    Attributes:
        files: as they were found; no lock is held during the delay.
        due_ms: time of their removal, by the monotonic clock of this process.
    """

    log: TopicPartition
    directory: Path
    files: tuple[DeletedFile, ...]
    due_ms: int


@dataclass(frozen=True, slots=True)
class RetentionRun:
    """Result of a retention run.

    Attributes:
        logs: every log of the plans, with its failure; without segments that only a running sink may roll.
        pending: files to remove later, in due order.
    """

    logs: list[LogRetention]
    pending: list[PendingRemoval]


def plan_logs(
    store: Store, clock: Clock, logs: Collection[TopicPartition] | None = None, decide: Decide | None = None
) -> list[LogRetention]:
    """Return the plan for each log; changes nothing.

    Args:
        logs: to plan; all if None.
        decide: makes a plan; by the topic's settings if None.

    Raises:
        CorruptFileError: the topics' settings can't be read.
        LedgerDamagedError: the ledger can't be read.
    """
    now_ms = clock.now_ms()
    configs = read_topic_configs(store)
    states = Ledger.open(store.ledger_path).states()
    wanted = [(log, state) for log, state in sorted(states.items()) if logs is None or log in logs]

    def plan(each: tuple[TopicPartition, LogState]) -> LogRetention:
        log, state = each
        return _plan_log(store, log, state, configs.get(log.topic), now_ms, decide)

    return map_logs(plan, wanted)


def execute_plans(maintained: MaintainedStore, plans: Sequence[LogRetention], clock: Clock) -> RetentionRun:
    """Carry plans out up to the renamed files; the caller waits and calls `remove_deleted`, without any lock.

    A log that fails, or has changed since its plan, is skipped with a `failure`.

    Raises:
        WriterFencedError: the store was taken by force.
        CommitStateUnknownError: the ledger's folder failed; the next run continues.
        LedgerDamagedError, CorruptFileError: the store can't be trusted.
    """
    store = maintained.store
    found = list(plans)
    if any(each.is_due for each in found):
        found = _rolled(maintained, found, clock)
        states = Ledger.open(store.ledger_path).states()
        found = [_check(each, states) for each in found]
        starts = {each.log: each.plan.log_start_offset for each in found if each.plan is not None and each.is_due}
        states |= raise_log_starts(store, starts, clock)
        reach("retain.committed")
        found = map_logs(lambda each: _delete(each, states, maintained.lock), found)
        _write_derived(maintained)
    pending = [removal for each in found for removal in _pending(each, clock)]
    return RetentionRun(found, sorted(pending, key=lambda each: each.due_ms))


def last_removal_ms(pending: Sequence[PendingRemoval], clock: Clock) -> int | None:
    """Return the time at which the last file may be removed, by the wall clock; None if all may be now."""
    left_ms = max((each.due_ms for each in pending), default=0) - clock.monotonic_ms()
    return clock.now_ms() + left_ms if left_ms > 0 else None


def remaining_delay_ms(renamed_ms: int, delay_ms: int, now_ms: int) -> int:
    """Return the remaining delay of a renamed file, by the wall clock; a clock that was set back delays it once."""
    return max(0, min(renamed_ms, now_ms) + delay_ms - now_ms)


def remove_deleted(
    run: RetentionRun, clock: Clock, sleep: Callable[[float], None] = sleep
) -> dict[TopicPartition, str]:
    """Wait for the delay of renamed files, and remove them; return the failures, by log.

    A name that another run has given to another file is skipped. After an interrupt the next run removes the rest.
    """
    failures = {}
    for each in run.pending:
        while (left_ms := each.due_ms - clock.monotonic_ms()) > 0:
            sleep(min(left_ms, _LONGEST_SLEEP_MS) / 1000)
        try:
            drop_listed(each.directory, each.files)
        except LogStorageError as error:
            failures[each.log] = str(error)
        reach("retain.deleted")
    return failures


def _plan_log(
    store: Store, log: TopicPartition, state: LogState, config: LogConfig | None, now_ms: int, decide: Decide | None
) -> LogRetention:
    directory, delay_ms = store.log_path(state), (config or LogConfig()).file_delete_delay_ms
    found = LogRetention(log=log, state=state, directory=directory, delay_ms=delay_ms)
    if config is None:
        return replace(found, failure=UNKNOWN_SETTINGS)

    def is_young(timestamp: int) -> bool:
        return config.retention_ms < 0 or now_ms - timestamp <= config.retention_ms

    try:
        listed = list_log(directory, state.committed_end)
        facts = read_log_facts(directory, listed, state.log_start_offset, is_young)
        plan = decide(facts, config) if decide else plan_retention(facts, config, now_ms)
    except LogStorageError as error:
        return replace(found, failure=str(error))
    found = replace(found, plan=plan, listed=listed)
    if plan.undecided is None or found.is_due:
        return found
    return replace(found, failure=f"its age is unknown, so it stays: {plan.undecided}; repair the store")


def _rolled(maintained: MaintainedStore, plans: Sequence[LogRetention], clock: Clock) -> list[LogRetention]:
    """Roll due active segments, or drop them from the plans; the writer lock is held only for this."""
    if not any(each.plan is not None and each.plan.rolls for each in plans):
        return list(plans)
    with contextlib.ExitStack() as held:
        written = enter_writer(maintained, held)
        if written is not None:
            return _roll(written, plans, clock)
    return [
        each if each.plan is None else replace(each, plan=without_roll(each.plan, each.state.log_start_offset))
        for each in plans
    ]


def _roll(written: WrittenStore, plans: Sequence[LogRetention], clock: Clock) -> list[LogRetention]:
    """Add an empty segment after each active one that is due, and commit it as the whole log.

    After that commit the old segment is below the log's start, so it needs no last index entries.
    """
    states = written.ledger.states()
    found, rolled = [], []
    for each in plans:
        checked = _check(each, states)
        if each.plan is None or not each.plan.rolls or not checked.is_due:
            found.append(checked)
            continue
        try:
            end = states[each.log].log_end_offset
            add_empty_segment(each.directory, end, written.lock.token, written.lock)
            reach("retain.rolled")
            rolled.append(each.log)
            checked = replace(each, plan=after_roll(each.plan))
        except WriterFencedError:
            raise
        except LogStorageError as error:
            checked = replace(each, failure=str(error))
        found.append(checked)
    if rolled:
        rows = np.array([written.ledger.rows[log] for log in rolled], np.int64)
        ends = written.ledger.column("log_end_offset")[rows]
        values = {"active_base_offset": ends, "log_start_offset": ends, "recovery_point": ends}
        values["active_size_bytes"] = np.zeros(len(rows), np.int64)
        values["updated_ms"] = np.full(len(rows), clock.now_ms(), np.int64)
        written.ledger.correct(rows, values)
    return found


def _check(each: LogRetention, states: Mapping[TopicPartition, LogState]) -> LogRetention:
    """Return a log unchanged, or with a failure if it does not fit its plan any more."""
    if each.plan is None or not each.is_due:
        return each
    state = states.get(each.log)
    if state is None or (state.log_dir, state.topic_id) != (each.state.log_dir, each.state.topic_id):
        return _outdated(each, "the log is another one")
    try:
        listed = list_log(each.directory, state.committed_end)
    except LogStorageError as error:
        return replace(each, failure=str(error))
    if not fits(each.plan, listed):
        return _outdated(each, "its segments have changed")
    return each


def _outdated(each: LogRetention, reason: str) -> LogRetention:
    return replace(each, failure=f"the plan no longer fits, {reason}: log={each.log}", is_outdated=True)


def _delete(each: LogRetention, states: Mapping[TopicPartition, LogState], owner: Owner) -> LogRetention:
    """Rename the files to delete, and return the log with all renamed files."""
    plan, listed = each.plan, each.listed
    if plan is None or listed is None or not each.is_due:
        return each
    first_offset = plan.deletions[-1].next_offset if plan.deletions else listed.segments[0].base_offset
    try:
        delete_segments(each.directory, first_offset, states[each.log].log_start_offset, owner)
    except WriterFencedError:
        raise
    except LogStorageError as error:
        each = replace(each, failure=str(error))
    try:
        return replace(each, listed=replace(listed, deleted=tuple(list_deleted(each.directory))))
    except LogStorageError as error:
        return replace(each, failure=str(error))


def _pending(each: LogRetention, clock: Clock) -> Iterator[PendingRemoval]:
    """Yield the files that may be removed now, and those with a delay."""
    now_ms, monotonic_ms = clock.now_ms(), clock.monotonic_ms()
    left_ms = {file: remaining_delay_ms(file.renamed_ms, each.delay_ms, now_ms) for file in each.waiting}
    for files in ([file for file, ms in left_ms.items() if not ms], [file for file, ms in left_ms.items() if ms]):
        if files:
            due_ms = monotonic_ms + max(left_ms[file] for file in files)
            yield PendingRemoval(log=each.log, directory=each.directory, files=tuple(files), due_ms=due_ms)


def _write_derived(maintained: MaintainedStore) -> None:
    """Write the checkpoint files unless a sink does; a failure only warns, as everything is committed."""
    with contextlib.ExitStack() as held:
        written = enter_writer(maintained, held)
        try:
            if written is not None:
                DerivedFiles(written.store, written.ledger, written.lock).write()
        except StorageError as error:
            logger.warning("Checkpoint files were not written, the next sink retries: %s", error)
