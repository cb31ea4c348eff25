"""A writer, a cleaner and a reader of a lively store without Spark, each in a process of its own that can be killed.

What went wrong with one is in `<role>-error.txt` beside the store.
"""

import os
import secrets
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from sparklog.pipeline.checks.verify_logs import verify
from sparklog.pipeline.places.store_view import open_logs
from sparklog.sink.erasure.forget_keys import finish_requests, prepare_erasure
from sparklog.sink.erasure.forget_request import erased_keys
from sparklog.sink.erasure.request_files import read_requests
from sparklog.sink.erasure.searched_folder import SearchedFolder
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.opening.access import maintaining
from sparklog.sink.operations.clean_logs import CleanerBudget, clean_logs, pending_removals, plan_cleanings
from sparklog.sink.operations.retain_logs import RetentionRun, execute_plans, plan_logs, remove_deleted
from sparklog.sink.operations.roll_active import roll_without_sink
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import StoreLockedError
from sparklog.storage_core.inspect.verify.findings import HARMLESS_KINDS
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.sink_store import in_process, open_store
from tests.kill.lively_checks import problems_of_checkpoints
from tests.kill.lively_store import (
    FORGOTTEN_UNTIL,
    MAP_BYTES,
    TOPICS,
    columns_of,
    forget,
    log_ends,
    problems_of_records,
)

__all__ = ["ROLES", "clean_once", "error_of", "start", "wait_until_written"]

_QUERY = "lively"
_START_S = 240


def clean_once(store: Path, checkpoints: dict[TopicPartition, int]) -> None:
    """Do what a maintenance run does, one log after the other in this process, with one map each.

    Args:
        store: its folder.
        checkpoints: where each log's cleaning begins; changed.

    Raises:
        AssertionError: a log could not be cleaned.
    """
    clock = SystemClock()
    with maintaining(store) as maintained:
        erasure = prepare_erasure(SearchedFolder(maintained.store), clock)
        requests = erasure.requests
        roll_without_sink(maintained, sorted(erasure.active), clock)
        budget = CleanerBudget(map_bytes=MAP_BYTES, hash_key=secrets.token_bytes(16), erased_keys=erased_keys(requests))
        run = execute_plans(maintained, plan_logs(maintained.store, clock), clock)
        plans = plan_cleanings(maintained.store, checkpoints, clock)
        plans = [each for each in plans if each.config.is_compacted]
        done = list(clean_logs(maintained, plans, budget, clock))
        finish_requests(SearchedFolder(maintained.store), requests, clock)
    checkpoints |= {row.log: row.first_dirty_offset for row in done}
    if wrong := [row for row in done if row.outcome not in ("cleaned", "stopped")]:
        raise AssertionError(str(wrong))
    if failed := remove_deleted(RetentionRun([], run.pending + pending_removals(plans, clock)), clock):
        raise AssertionError(str(failed))


def _write(store: Path) -> Iterator[None]:
    """Append a micro-batch after the other, from where the one before was killed."""
    with closing(_open(store)) as writer:
        done = Ledger.open(Store.find(store).ledger_path).transaction_version(_QUERY)
        micro_batch = -1 if done is None else done
        while True:
            micro_batch += 1
            writer.append(_QUERY, micro_batch, in_process(columns_of(micro_batch)))
            yield


def _open(store: Path) -> StoreWriter:
    """Open the store as a writer, again and again while a maintenance rolls active segments."""
    while True:
        try:
            return open_store(store, TOPICS)
        except StoreLockedError:
            time.sleep(0.1)


def _clean(store: Path) -> Iterator[None]:
    checkpoints: dict[TopicPartition, int] = {}
    while True:
        if min(log_ends(store).values()) > FORGOTTEN_UNTIL and not read_requests(Store.find(store)):
            forget(store, SystemClock())
        clean_once(store, checkpoints)
        yield


def _read(store: Path) -> Iterator[None]:
    """Read all and check all, again and again."""
    while True:
        if wrong := problems_of_records(store) + problems_of_checkpoints(store):
            raise AssertionError(wrong)
        yield
        if wrong := _damage(store):
            raise AssertionError(wrong)
        yield


def _damage(store: Path) -> list[str]:
    """Return what a check finds, but in logs where a killed cleaning waits for the next one to finish it."""
    found = verify(open_logs(store), lambda _finding: None).findings
    unfinished = {each.log for each in found if each.rule == "swap"}
    return [str(each) for each in found if each.kind not in HARMLESS_KINDS and each.log not in unfinished]


ROLES: dict[str, tuple[Callable[[Path], Iterator[None]], float]] = {
    "writer": (_write, 0.1),
    "cleaner": (_clean, 0.0),
    "reader": (_read, 0.5),
}
"""What each does, and how many seconds it rests between two rounds."""


def start(context: ForkServerContext, store: Path, role: str) -> ForkServerProcess:
    """Start one of them; it goes on until it is killed."""
    process = context.Process(target=_run, args=(store, role))
    process.start()
    return process


def error_of(store: Path, role: str) -> str:
    """Return what went wrong with one of them."""
    path = store.with_name(f"{role}-error.txt")
    return path.read_text() if path.exists() else ""


def wait_until_written(store: Path, offset: int, is_alive: Callable[[], bool]) -> None:
    """Return once every log is written behind an offset.

    Raises:
        AssertionError: the writer has ended.
        TimeoutError: it takes too long.
    """
    deadline = time.monotonic() + _START_S
    while not (store / "control" / "topic-configs.json").exists() or min(log_ends(store).values()) <= offset:
        if not is_alive():
            raise AssertionError(f"the writer has ended: {error_of(store, 'writer')}")
        if time.monotonic() > deadline:
            raise TimeoutError("the store was not written")
        time.sleep(0.05)


def _run(store: Path, role: str) -> None:
    rounds, rest_s = ROLES[role]
    try:
        for _ in rounds(store):
            time.sleep(rest_s)
    except BaseException:
        store.with_name(f"{role}-error.txt").write_text(traceback.format_exc())
        os._exit(3)
