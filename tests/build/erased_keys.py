"""Requests to forget keys of the topic `keyed`, and the erasure that a maintenance run does."""

from pathlib import Path

import pyarrow as pa

from sparklog.sink.erasure.forget_keys import RequestState, ask_to_forget, finish_requests, prepare_erasure
from sparklog.sink.erasure.forget_request import ForgetRequest, erased_keys
from sparklog.sink.erasure.searched_folder import SearchedFolder
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.opening.access import WRITER_LOCK, maintaining
from sparklog.sink.operations.clean_logs import clean_logs, pending_removals, plan_cleanings
from sparklog.sink.operations.retain_logs import RetentionRun, remove_deleted
from sparklog.sink.operations.roll_active import roll_without_sink
from sparklog.sink.store.store_folder import Store
from tests.build.compacted_store import BUDGET, LOG, NOW_MS
from tests.build.manual_clock import ManualClock

__all__ = ["ask", "erase"]


def ask(store: Path, *keys: str) -> ForgetRequest:
    """Put keys on the list."""
    wanted = pa.array([key.encode() for key in keys], pa.binary())
    return ask_to_forget(SearchedFolder(Store.find(store)), LOG.topic, wanted, ManualClock(NOW_MS)).request


def erase(store: Path) -> list[RequestState]:
    """Do what a maintenance run does."""
    clock = ManualClock(NOW_MS)
    with maintaining(store) as maintained:
        erasure = prepare_erasure(SearchedFolder(maintained.store), clock)
        keys = erased_keys(erasure.requests)
        budget = BUDGET.__class__(map_bytes=BUDGET.map_bytes, hash_key=BUDGET.hash_key, erased_keys=keys)
        may_roll = not WriterLock.is_held(store / WRITER_LOCK)
        plans = plan_cleanings(maintained.store, {}, clock, may_roll=may_roll, erased_in_active=erasure.active)
        roll_without_sink(maintained, [each.log for each in plans if each.plan and each.plan.rolls], clock)
        assert {row.outcome for row in clean_logs(maintained, plans, budget, clock)} <= {"cleaned", "stopped"}
        settled = finish_requests(SearchedFolder(maintained.store), erasure.requests, clock)
    assert remove_deleted(RetentionRun([], pending_removals(plans, clock)), clock) == {}
    return settled
