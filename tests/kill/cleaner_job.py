"""A cleaning that tests kill; it can be started again after any crash. A refusal goes to `<store>-error.txt`."""

import os
import traceback
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from sparklog.sink.opening.access import maintaining
from sparklog.sink.operations.clean_logs import clean_logs, plan_cleanings
from tests.build.compacted_store import BUDGET, NOW_MS
from tests.build.manual_clock import ManualClock
from tests.kill.harness import exit_code

__all__ = ["finish_cleaning", "start_cleaning"]


def start_cleaning(context: ForkServerContext, store: Path, **environment: str) -> ForkServerProcess:
    """Clean a store's logs in a process of its own."""
    process = context.Process(target=_run, args=(store, environment))
    process.start()
    return process


def finish_cleaning(context: ForkServerContext, store: Path, **environment: str) -> int:
    """Do that to its end; return its exit code: 0 done, 1 failed, 3 refused, negative for a signal."""
    return exit_code(start_cleaning(context, store, **environment))


def _run(store: Path, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    clock = ManualClock(NOW_MS)
    try:
        with maintaining(store) as maintained:
            rows = list(clean_logs(maintained, plan_cleanings(maintained.store, {}, clock), BUDGET, clock))
    except BaseException:
        store.with_name(f"{store.name}-error.txt").write_text(traceback.format_exc())
        os._exit(3)
    os._exit(0 if all(row.outcome == "cleaned" for row in rows) else 1)
