"""A loading of a root that tests kill; it can be started again after any crash. A refusal goes to `<root>.txt`."""

import os
import traceback
from multiprocessing.context import ForkServerContext
from pathlib import Path

from sparklog.pipeline.verbs.recover import RecoverOptions, execute_and_close, execute_recovery
from tests.build.loaded_log import NOW_MS
from tests.build.manual_clock import ManualClock
from tests.kill.harness import exit_code

__all__ = ["finish_load", "load_and_close"]

_OPTIONS = RecoverOptions(index_interval_bytes=200, jobs=1)


def finish_load(context: ForkServerContext, root: Path, **environment: str) -> int:
    """Load a root in a process of its own; return its exit code, negative for a signal."""
    process = context.Process(target=_run, args=(root, environment))
    process.start()
    return exit_code(process)


def load_and_close(root: Path) -> None:
    """Load a root in this process, and shut it down cleanly."""
    execute_and_close([root], _OPTIONS, ManualClock(NOW_MS))


def _run(root: Path, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    try:
        execute_recovery([root], _OPTIONS, ManualClock(NOW_MS))
    except BaseException:
        root.with_suffix(".txt").write_text(traceback.format_exc())
        os._exit(3)
    os._exit(0)
