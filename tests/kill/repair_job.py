"""A repair that tests kill; it can be started again after any crash. A refusal goes to `<folder>/error.txt`."""

import os
import traceback
from multiprocessing.context import ForkServerContext
from pathlib import Path

from sparklog.pipeline.verbs.repair import RepairOptions, execute_repair
from sparklog.storage_core.clock import SystemClock
from tests.kill.harness import exit_code

__all__ = ["finish_repair"]


def finish_repair(context: ForkServerContext, place: Path, **environment: str) -> int:
    """Repair a place in a process of its own; return its exit code: 0 sound, 1 not sound, negative for a signal."""
    process = context.Process(target=_run, args=(place, environment))
    process.start()
    return exit_code(process)


def _run(place: Path, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    try:
        result = execute_repair(place, RepairOptions(jobs=1), SystemClock(), lambda _step: None)
    except BaseException:
        (place.parent / "error.txt").write_text(traceback.format_exc())
        os._exit(3)
    os._exit(0 if result.is_sound else 1)
