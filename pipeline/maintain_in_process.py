"""A maintenance plan carried out by one process, log by log: deletions in one commit, then cleanings in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from pipeline.control.runs import WorkResult, result_of_cleaning, result_of_retention
from pipeline.maintenance_plan import MaintenancePlan, PlannedWork
from sink.clean_logs import CleanerBudget, clean_logs, pending_removals
from sink.ledger import Ledger
from sink.retain_logs import PendingRemoval, execute_plans
from sink.store_access import MaintainedStore
from storage_core.clock import Clock

__all__ = ["run_in_process"]


def run_in_process(
    maintained: MaintainedStore,
    plan: MaintenancePlan,
    budget: CleanerBudget,
    clock: Clock,
    check_owner: Callable[[], None],
) -> tuple[list[WorkResult], list[PendingRemoval]]:
    """Carry out what is due; return what came of each work, and the files that wait to be removed.

    What is left of cleanings that were killed is finished in the logs that are not cleaned now, too.

    Args:
        maintained: the store.
        plan: to carry out.
        budget: of each cleaning.
        clock: tells the time.
        check_owner: raises once another run owns the store.

    Raises:
        WriterFencedError: another run owns it.
        LedgerDamagedError: the ledger can't be read.
    """
    results, removals = _delete(maintained, plan, clock)
    due = [each for each in plan.due if each.cleaning is not None]
    for work in due:
        check_owner()
        results += _clean(maintained, work, budget, clock)
    idle = [each.cleaning for each in plan.works if each.cleaning is not None and each.decision == "keep"]
    for row in clean_logs(maintained, idle, replace(budget, erased_keys=None), clock):
        raise ValueError(f"a log that is not due was cleaned: log={row.log}")
    removals += pending_removals([each.cleaning for each in due if each.cleaning is not None], clock)
    return results, sorted(removals, key=lambda each: each.due_ms)


def _delete(
    maintained: MaintainedStore, plan: MaintenancePlan, clock: Clock
) -> tuple[list[WorkResult], list[PendingRemoval]]:
    due = [each for each in plan.due if each.retention is not None]
    if not due:
        return [], []
    began_ms = clock.now_ms()
    run = execute_plans(maintained, [each.retention for each in due if each.retention is not None], clock)
    spent_ms, done = clock.now_ms() - began_ms, {each.log: each for each in run.logs}
    return [result_of_retention(each, done[each.log], spent_ms) for each in due], run.pending


def _clean(maintained: MaintainedStore, work: PlannedWork, budget: CleanerBudget, clock: Clock) -> Iterator[WorkResult]:
    if work.cleaning is None:
        return
    for row in clean_logs(maintained, [work.cleaning], budget, clock):
        state = Ledger.open(maintained.store.ledger_path).states().get(work.log, work.cleaning.state)
        yield result_of_cleaning(work, row, state.log_start_offset)
