"""A writer whose micro-batches divert rows, which tests kill or stop while it merges them."""

import os
import traceback
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from sink.quarantine import MERGED_COUNT
from tests.sink_store import in_process, open_events, rows

__all__ = ["MICRO_BATCHES", "start_diverting"]

MICRO_BATCHES = 2 * MERGED_COUNT + 2
"""Two mergers; the second one takes in what the first one made."""


def start_diverting(
    context: ForkServerContext, store: Path, *, take_lock_by_force: bool = False, **environment: str
) -> ForkServerProcess:
    """Write micro-batches with two rows each that are diverted; those that are committed are skipped."""
    process = context.Process(target=_run, args=(store, take_lock_by_force, environment))
    process.start()
    return process


def _run(store: Path, take_lock_by_force: bool, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    try:
        writer = open_events(store, on_invalid="quarantine", take_lock_by_force=take_lock_by_force)
        for number in range(MICRO_BATCHES):
            values = [f"{number}/{row}" for row in range(2)]
            writer.append("query", number, in_process(rows(value=values, timestamp=[-9, None])))
        writer.close()
    except BaseException:
        store.with_name(f"{store.name}-error.txt").write_text(traceback.format_exc())
        os._exit(3)
    os._exit(0)
