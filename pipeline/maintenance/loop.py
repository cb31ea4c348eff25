"""`maintain --every`: repeats maintenance runs at an interval, until a signal.

If another run holds or takes over the store, the loop continues: the next run starts afresh.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from sparklog.pipeline.report import AT_WORK, DONE, FAILED
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import (
    LogStorageError,
    SparkLostError,
    StoreLockedError,
    UnsupportedFormatError,
    WriterFencedError,
)

__all__ = ["run_every"]

logger = logging.getLogger(__name__)

_LONGEST_SLEEP_MS = 500


def run_every(
    run_once: Callable[[], int],
    every_ms: int | None,
    is_asked: Callable[[], bool],
    clock: Clock,
    sleep: Callable[[float], None],
) -> int:
    """Run once, or at an interval from start to start; return the exit code of the last run.

    Args:
        run_once: does a run, returns its exit code.
        every_ms: the interval; None for one run.

    Raises:
        LogStorageError: of a single run; of a loop only errors that a later run can't overcome.
    """
    if every_ms is None:
        return run_once()
    code = DONE
    while not is_asked():
        began_ms = clock.monotonic_ms()
        try:
            code = run_once()
        except (UnsupportedFormatError, SparkLostError):
            raise
        except (StoreLockedError, WriterFencedError) as error:
            logger.warning("%s", error)
            code = AT_WORK
        except LogStorageError as error:
            logger.error("The run failed, the next run retries: %s", error)
            code = FAILED
        while (left_ms := began_ms + every_ms - clock.monotonic_ms()) > 0 and not is_asked():
            sleep(min(left_ms, _LONGEST_SLEEP_MS) / 1000)
    return code
