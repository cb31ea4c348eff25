"""A maintenance of a quiet store, with its rolls, that tests kill; a refusal goes to `<store>-error.txt`."""

import os
import traceback
from multiprocessing.context import ForkServerContext
from pathlib import Path

from sparklog.sink.opening.access import maintaining
from sparklog.sink.operations.clean_logs import clean_logs, pending_removals, plan_cleanings
from sparklog.sink.operations.retain_logs import RetentionRun, remove_deleted
from sparklog.sink.operations.roll_active import roll_without_sink
from tests.build.compacted_store import BUDGET, NOW_MS
from tests.build.manual_clock import ManualClock
from tests.kill.harness import exit_code

__all__ = ["LATER_MS", "finish_rolling"]

LATER_MS = NOW_MS + 10_000_000


def finish_rolling(context: ForkServerContext, store: Path, **environment: str) -> int:
    """Roll and clean a store's logs in a process of its own; return its exit code: 0 done, negative for a signal."""
    process = context.Process(target=_run, args=(store, environment))
    process.start()
    return exit_code(process)


def _run(store: Path, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    clock = ManualClock(LATER_MS)
    try:
        with maintaining(store) as maintained:
            plans = plan_cleanings(maintained.store, {}, clock, may_roll=True)
            roll_without_sink(maintained, [each.log for each in plans if each.plan and each.plan.rolls], clock)
            rows = list(clean_logs(maintained, plans, BUDGET, clock))
        remove_deleted(RetentionRun([], pending_removals(plans, clock)), clock)
    except BaseException:
        store.with_name(f"{store.name}-error.txt").write_text(traceback.format_exc())
        os._exit(3)
    os._exit(0 if all(row.outcome == "cleaned" for row in rows) else 1)
