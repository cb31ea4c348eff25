"""A retention that tests kill; it can be started again after any crash. A refusal goes to `<store>-error.txt`."""

import os
import time
import traceback
from multiprocessing.context import ForkServerContext
from pathlib import Path

from sparklog.pipeline.verbs.retain import execute_retention
from sparklog.sink.operations.retain_logs import plan_logs
from sparklog.storage_core.clock import SystemClock
from tests.kill.harness import exit_code

__all__ = ["finish_retention"]


def finish_retention(context: ForkServerContext, store: Path, **environment: str) -> int:
    """Retain a store's logs in a process of its own; return its exit code: 0 done, 1 failed, negative for a signal."""
    process = context.Process(target=_run, args=(store, environment))
    process.start()
    return exit_code(process)


def _run(store: Path, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    clock = SystemClock()
    try:
        logs = execute_retention(store, lambda found: plan_logs(found, clock), clock, lambda *_: None, time.sleep)
    except BaseException:
        store.with_name(f"{store.name}-error.txt").write_text(traceback.format_exc())
        os._exit(3)
    os._exit(1 if any(each.failure for each in logs) else 0)
