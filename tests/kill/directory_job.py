"""Moves and deletions that tests kill, and the opening of the store that finishes them.

What went wrong is in `error.txt` beside the store.
"""

import os
import traceback
from collections.abc import Callable
from contextlib import closing
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from sparklog.pipeline.checks.verify_logs import verify
from sparklog.pipeline.places.store_view import StoreView, open_logs
from sparklog.pipeline.verbs.delete_topic import execute_deletion
from sparklog.pipeline.verbs.move_log import execute_move
from sparklog.pipeline.verbs.read import read_records
from sparklog.sink.ledger.ledger import Ledger
from sparklog.storage_core.checkpoint.offset_checkpoint import parse_offset_checkpoint
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.topic_partition import TopicPartition, parse_directory_name
from tests.build.ledger_rows import unfinished
from tests.build.sink_store import in_process, numbers, open_store
from tests.kill.harness import exit_code

__all__ = [
    "LOG_DIRS",
    "TOPICS",
    "finish",
    "open_and_close",
    "problems_of_directories",
    "read_values",
    "run_deletion",
    "run_move",
    "start",
    "write_store",
]

LOG_DIRS = ("logs", "more")
TOPICS: dict[str, dict[str, object]] = {
    "events": {"partitions": 2, "segment.bytes": 600, "batch.size": 200, "file.delete.delay.ms": 0},
    "others": {"file.delete.delay.ms": 0},
}


def write_store(store: Path) -> None:
    """Write 0..99 into `events`, and 0..9 into `others`."""
    for batch_id, (topic, count) in enumerate((("events", 100), ("others", 10))):
        with closing(open_store(store, TOPICS, topic=topic, log_dirs=LOG_DIRS)) as writer:
            writer.append("query", batch_id, in_process(numbers(0, count)))


def run_move(store: Path) -> None:
    """Move `events-0` to a new log directory."""
    execute_move(store, TopicPartition("events", 0), "moved")


def run_deletion(store: Path) -> None:
    """Delete `events`."""
    execute_deletion(store, "events", SystemClock(), lambda _directories, _until_ms: None, lambda _seconds: None)


def open_and_close(store: Path) -> None:
    """Open the store as a sink of `others`, and close it."""
    open_store(store, {"others": TOPICS["others"]}, log_dirs=LOG_DIRS).close()


def read_values(view: StoreView) -> list[int]:
    """Return the numbers that a reader of the whole store finds, sorted."""
    found = [batch.column("value").to_pylist() for _, batch in read_records(view, view.logs, None, None, None)]
    return sorted(int(value) for values in found for value in values)


def problems_of_directories(store: Path) -> list[str]:
    """Return what is not as an undisturbed run leaves it: each log in one place, nothing set aside, nothing to do.

    Rows of a deleted topic stay until the next opening.
    """
    view = open_logs(store)
    found = [str(each) for each in verify(view, lambda _finding: None).findings]
    found += [f"set aside: {path}" for path in view.set_aside] + [f"unknown: {path}" for path in view.unknown]
    found += [f"unfinished: {state}" for state in unfinished(store) if not state.is_absent]
    states = Ledger.open(store / "ledger").states()
    for root in (path.parent for path in store.glob("*/meta.properties")):
        mine = {log for log, state in states.items() if state.log_dir == root.name}
        there = {parse_directory_name(path.name) for path in root.iterdir() if path.is_dir()}
        ends_file = root / "replication-offset-checkpoint"  # not there yet in a root that was only made
        ends = parse_offset_checkpoint(ends_file.read_bytes() if ends_file.exists() else b"")
        found += [] if mine == there == set(ends) else [f"{root.name}: {mine=} {there=} {ends=}"]
    return found


def finish(context: ForkServerContext, work: Callable[[Path], None], store: Path, **environment: str) -> int:
    """Do the work in a process of its own; return its exit code: 0 done, 1 failed, negative for a signal."""
    return exit_code(start(context, work, store, **environment))


def start(
    context: ForkServerContext, work: Callable[[Path], None], store: Path, **environment: str
) -> ForkServerProcess:
    """Begin the work in a process of its own, which ends as `finish` says."""
    process = context.Process(target=_run, args=(work, store, environment))
    process.start()
    return process


def _run(work: Callable[[Path], None], store: Path, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    try:
        work(store)
    except BaseException:
        (store.parent / "error.txt").write_text(traceback.format_exc())
        os._exit(1)
    os._exit(0)
