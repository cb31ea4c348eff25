"""Maintenance again and again: a run every so often, until a signal asks it to stop.

A run that finds the store held by another one, or loses it to another one, is no end: the next one comes and begins
afresh.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

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
    """Run once, or once every so often, counted from start to start; return the exit code of the last run.

    Args:
        run_once: makes a run, returns its exit code.
        every_ms: None for one run.
        is_asked: whether to stop.
        clock: tells the time.
        sleep: waits for so many seconds.

    Raises:
        LogStorageError: of a single run; of a loop only what another run can't mend.
    """
    if every_ms is None:
        return run_once()
    code = 0
    while not is_asked():
        began_ms = clock.monotonic_ms()
        try:
            code = run_once()
        except (UnsupportedFormatError, SparkLostError):
            raise
        except (StoreLockedError, WriterFencedError) as error:
            logger.warning("%s", error)
            code = 1
        except LogStorageError as error:
            logger.error("The run failed, the next one tries again: %s", error)
            code = 1
        while (left_ms := began_ms + every_ms - clock.monotonic_ms()) > 0 and not is_asked():
            sleep(min(left_ms, _LONGEST_SLEEP_MS) / 1000)
    return code
