"""Compaction of a store's logs: plans, and carries plans out beside a running sink.

The ledger bounds a cleaning: the log's start, its end, its active segment, which is never touched. Before the first log
is cleaned, one commit says of all due logs how far they will be compacted (`clean.announced`): so a reader of a past
state, or a truncation, finds out whether records may have gone. The caller keeps the cleaner checkpoints; without one a
cleaning begins at the log's start and finds little to do.

The row of a log that can't be cleaned has the reason; the other logs are cleaned.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import pyarrow as pa

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.opening.access import MaintainedStore
from sparklog.sink.operations.raise_offsets import raise_compacted_offsets
from sparklog.sink.operations.retain_logs import PendingRemoval, remaining_delay_ms
from sparklog.sink.store.map_logs import map_logs
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import read_topic_configs
from sparklog.storage_core.cleaner.clean_log import UNCLEANABLE, CleanedLog, LogToClean, clean_log
from sparklog.storage_core.cleaner.survey.cleanable import CleaningPlan, by_urgency
from sparklog.storage_core.cleaner.survey.plan_log import LogFacts, plan_log
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import CorruptFileError, LogStorageError, WriterFencedError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.log.files.deleted_files import list_deleted
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.storage.owned_names import Owner
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = [
    "CleanerBudget",
    "LogCleaning",
    "LogCleaningRow",
    "announce_cleanings",
    "clean_log_with",
    "clean_logs",
    "clean_one_log",
    "failed_cleaning",
    "pending_removals",
    "plan_cleanings",
]

logger = logging.getLogger(__name__)

Outcome = Literal["cleaned", "stopped", "skipped", "uncleanable", "failed"]
"""The whole range was cleaned; a part of it; nothing, as the log changed; the log is damaged, or has a record without
a key; the disk refused or lacks room, and a retry may help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerBudget:
    """Limits of a cleaning.

    Attributes:
        map_bytes: of the offset map, for one log at a time.
        hash_key: of the maps, 16 random bytes.
        erased_keys: keys to erase, binary, by topic id.
        leaves_large: skip a log with more keys than a map takes; its row has `is_large`.
    """

    map_bytes: int
    hash_key: bytes
    erased_keys: Mapping[str, pa.Array] = field(default_factory=dict)
    leaves_large: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCleaning:
    """A cleaner's plan for one log of a store.

    Attributes:
        state: the log's ledger row at the plan.
        plan: None if the log can't be read.
        failure: why there is no plan.
    """

    log: TopicPartition
    state: LogState
    directory: Path
    config: LogConfig
    plan: CleaningPlan | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCleaningRow:
    """Result of one log's cleaning.

    Attributes:
        reason: for people: of the plan, of a stop, or of a failure.
        first_dirty_offset: start of the next round; if nothing was cleaned, of this one.
        duration_ms: of this log alone.
        cleaned: figures; None if nothing was cleaned.
    """

    log: TopicPartition
    outcome: Outcome
    reason: str
    first_dirty_offset: int
    duration_ms: int
    cleaned: CleanedLog | None = None

    @property
    def is_large(self) -> bool:
        """Whether the log was skipped as it has more keys than a map takes."""
        found = self.cleaned
        return found is not None and found.built is not None and found.built.is_full and not found.segments_before


def plan_cleanings(
    store: Store,
    checkpoints: Mapping[TopicPartition, int],
    clock: Clock,
    logs: Collection[TopicPartition] | None = None,
    *,
    log_starts: Mapping[TopicPartition, int] | None = None,
    may_roll: bool = False,
    erased_in_active: Collection[TopicPartition] = (),
) -> list[LogCleaning]:
    """Return the plan for each log; changes nothing.

    Args:
        checkpoints: end of the last cleaning of each log.
        logs: to plan; all if None.
        log_starts: log starts that will be raised before the cleaning.
        may_roll: whether the run may roll active segments first: no sink holds the store.
        erased_in_active: logs whose active segment has records of keys to erase.

    Raises:
        CorruptFileError: the topics' settings can't be read.
        LedgerDamagedError: the ledger can't be read.
    """
    now_ms = clock.now_ms()
    configs, usual = read_topic_configs(store), LogConfig()
    states = Ledger.open(store.ledger_path).states()

    def plan(one: tuple[TopicPartition, LogState]) -> LogCleaning:
        log, state = one
        directory = store.log_path(state)
        each = LogCleaning(log=log, state=state, directory=directory, config=configs.get(log.topic, usual))
        facts = LogFacts(
            directory=directory,
            end=state.committed_end,
            log_start_offset=max(state.log_start_offset, (log_starts or {}).get(log, 0)),
            checkpoint=checkpoints.get(log),
            may_roll=may_roll,
            has_erased=log in erased_in_active,
        )
        try:
            return replace(each, plan=plan_log(facts, each.config, now_ms))
        except LogStorageError as error:
            return replace(each, failure=str(error))

    return map_logs(plan, [each for each in sorted(states.items()) if logs is None or each[0] in logs])


def announce_cleanings(
    maintained: MaintainedStore, cleanings: Collection[LogCleaning], clock: Clock
) -> dict[TopicPartition, LogState]:
    """Commit how far these logs will be compacted, if they still fit their plans; return the rows of all logs.

    Killed after it, a log counts as compacted although nothing was cleaned: that only refuses more than it must.

    Raises:
        WriterFencedError: the store was taken by force.
        LedgerDamagedError: the ledger can't be read.
        CommitStateUnknownError: the ledger's folder failed; the commit may or may not count.
    """
    states = Ledger.open(maintained.store.ledger_path).states()
    planned = [each for each in cleanings if each.plan is not None]
    fitting = [each for each in planned if _misfit(each, states.get(each.log)) is None]
    offsets = {each.log: _plan_of(each).first_uncleanable_offset for each in fitting}
    if not offsets:
        return states
    maintained.lock.check()
    states |= raise_compacted_offsets(maintained.store, offsets, clock)
    reach("clean.announced")
    return states


def clean_logs(
    maintained: MaintainedStore, plans: Sequence[LogCleaning], budget: CleanerBudget, clock: Clock
) -> Iterator[LogCleaningRow]:
    """Clean the due logs, the most urgent first, and then those with keys to erase.

    Yields:
        a row after each log.

    Raises:
        WriterFencedError: the store was taken by force.
        LedgerDamagedError: the ledger can't be read.
    """
    planned = [each for each in plans if each.plan is not None]
    due = by_urgency(planned, _plan_of)
    erased = {each.log for each in planned if each.config.is_compacted and each.state.topic_id in budget.erased_keys}
    due += [each for each in planned if not _plan_of(each).is_due and each.log in erased]
    announce_cleanings(maintained, due, clock)
    for each in due:
        states = Ledger.open(maintained.store.ledger_path).states()
        row = _clean(each, states.get(each.log), budget, clock, _with_one_map(maintained.lock))
        logger.info("Cleaned log=%s outcome=%s duration_ms=%d %s", row.log, row.outcome, row.duration_ms, row.reason)
        yield row


def clean_one_log(
    each: LogCleaning, state: LogState, budget: CleanerBudget, clock: Clock, owner: Owner
) -> LogCleaningRow:
    """Clean one log that has a plan and was announced, due or not; for callers that clean several at once.

    Args:
        state: of the log, from a ledger read under the maintenance lock; a sink may append meanwhile.

    Raises:
        WriterFencedError: another run owns the store.
    """
    return _clean(each, state, budget, clock, _with_one_map(owner))


def clean_log_with(
    each: LogCleaning, state: LogState, budget: CleanerBudget, clock: Clock, clean: Callable[[LogToClean], CleanedLog]
) -> LogCleaningRow:
    """As `clean_one_log`, with the caller's function for the cleaning itself."""
    return _clean(each, state, budget, clock, clean)


def _with_one_map(owner: Owner) -> Callable[[LogToClean], CleanedLog]:
    return lambda log: clean_log(log, owner)


def failed_cleaning(each: LogCleaning, reason: str) -> LogCleaningRow:
    """Return the row of a log whose cleaning failed."""
    dirty = each.state.log_start_offset if each.plan is None else each.plan.first_dirty_offset
    return LogCleaningRow(log=each.log, outcome="failed", reason=reason, first_dirty_offset=dirty, duration_ms=0)


def pending_removals(plans: Sequence[LogCleaning], clock: Clock) -> list[PendingRemoval]:
    """Return the renamed files of these logs in due order, for `remove_deleted`.

    Raises:
        StorageError: a directory can't be read.
    """
    now_ms, found = clock.now_ms(), []
    for each in plans:
        if deleted := list_deleted(each.directory):
            left_ms = max(
                remaining_delay_ms(file.renamed_ms, each.config.file_delete_delay_ms, now_ms) for file in deleted
            )
            due_ms = clock.monotonic_ms() + left_ms
            found.append(PendingRemoval(log=each.log, directory=each.directory, files=tuple(deleted), due_ms=due_ms))
    return sorted(found, key=lambda removal: removal.due_ms)


def _plan_of(each: LogCleaning) -> CleaningPlan:
    if each.plan is None:
        raise CorruptFileError(f"there is no plan: log={each.log} {each.failure}")
    return each.plan


def _clean(
    each: LogCleaning,
    state: LogState | None,
    budget: CleanerBudget,
    clock: Clock,
    clean: Callable[[LogToClean], CleanedLog],
) -> LogCleaningRow:
    """Clean a log, unless it does not fit its plan any more."""
    plan, now_ms, began_ms = _plan_of(each), clock.now_ms(), clock.monotonic_ms()

    def row(outcome: Outcome, reason: str, cleaned: CleanedLog | None = None) -> LogCleaningRow:
        dirty = plan.first_dirty_offset if cleaned is None else cleaned.first_dirty_offset
        return LogCleaningRow(
            log=each.log,
            outcome=outcome,
            reason=reason,
            first_dirty_offset=dirty,
            duration_ms=clock.monotonic_ms() - began_ms,
            cleaned=cleaned,
        )

    misfit = _misfit(each, state)
    if state is None or misfit is not None:
        return row("skipped", f"the plan no longer fits, {misfit}")
    if state.compacted_offset < plan.first_uncleanable_offset:
        return row("skipped", "the plan no longer fits, its cleaning was not announced")
    try:
        cleaned = clean(_to_clean(each, state, budget, now_ms))
    except WriterFencedError:
        raise
    except UNCLEANABLE as error:
        return row("uncleanable", str(error))
    except LogStorageError as error:
        return row("failed", str(error))
    if cleaned.stopped is None:
        return row("cleaned", plan.reason, cleaned)
    return row("failed" if cleaned.stopped.is_short_of_disk else "stopped", cleaned.stopped.reason, cleaned)


def _misfit(each: LogCleaning, state: LogState | None) -> str | None:
    """Return why a log does not fit its plan any more, None if it does."""
    end = _plan_of(each).first_uncleanable_offset
    if state is None or (state.log_dir, state.topic_id) != (each.state.log_dir, each.state.topic_id):
        return "the log is another one"
    if state.log_end_offset < end:
        return "the log was truncated"
    if _plan_of(each).rolls and state.active_base_offset < end:
        return "the active segment was not rolled"
    return None


def _to_clean(each: LogCleaning, state: LogState, budget: CleanerBudget, now_ms: int) -> LogToClean:
    """Return a log's present state: its start may have risen since the plan."""
    plan = _plan_of(each)
    return LogToClean(
        directory=each.directory,
        end=state.committed_end,
        log_start_offset=state.log_start_offset,
        first_dirty_offset=max(plan.first_dirty_offset, state.log_start_offset),
        first_uncleanable_offset=min(plan.first_uncleanable_offset, state.active_base_offset),
        config=each.config,
        now_ms=now_ms,
        map_bytes=budget.map_bytes,
        hash_key=budget.hash_key,
        erased_keys=budget.erased_keys.get(state.topic_id),
        leaves_large=budget.leaves_large,
    )
