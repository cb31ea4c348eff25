"""Named steps at which a test ends the process, as a crash would.

Every write path calls `reach` between two steps that touch the disk. With the environment variable
`SPARKLOG_FAULT_POINT=<name>` the process that gets there is killed; `<name>:<n>` waits for its n-th visit. On an
executor `SPARKLOG_FAULT_PID` names the driver, which is killed as well. Unset, a visit costs one dictionary lookup.
"""

import contextlib
import os
import signal

__all__ = ["FAULT_POINTS", "reach"]

FAULT_POINTS = (
    "stage.started",
    "stage.written",
    "stage.reported",
    "place.planned",
    "place.created",
    "place.copied",
    "place.published",
    "place.indexed",
    "place.synced",
    "commit.quarantined",
    "commit.written",
    "commit.synced",
    "clean.derived",
    "clean.staging",
)
"""Every step, in the order in which a micro-batch passes them."""

_visits: dict[str, int] = {}


def reach(name: str) -> None:
    """Die here if the environment says so; otherwise do nothing."""
    wanted = os.environ.get("SPARKLOG_FAULT_POINT")
    if wanted is None:
        return
    point, _, count = wanted.partition(":")
    if point != name:
        return
    _visits[name] = _visits.get(name, 0) + 1
    if _visits[name] < int(count or 1):
        return
    driver = os.environ.get("SPARKLOG_FAULT_PID")
    if driver is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(driver), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
