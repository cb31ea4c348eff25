"""Named steps at which a test ends or stops the process, as a crash would.

Every write path calls `reach` between two steps that touch the disk. The environment variable
`SPARKLOG_FAULT_POINT=<name>` kills the process at that step, `<name>:<n>` at its n-th visit. On an executor
`SPARKLOG_FAULT_PID` names the driver, which is killed as well. `SPARKLOG_FAULT_SIGNAL=STOP` suspends the process
instead, once, until SIGCONT. Unset, a visit costs one look-up.

Here are the steps of writing; those of other operations on logs are in `operation_fault_points`.
"""

import contextlib
import os
import signal
import threading

__all__ = [
    "CHECKPOINT_FAULT_POINTS",
    "CUT_FAULT_POINTS",
    "FAULT_POINTS",
    "FLUSH_FAULT_POINTS",
    "GROUP_FAULT_POINTS",
    "LEDGER_FAULT_POINTS",
    "OWNED_NAMES_FAULT_POINTS",
    "reach",
]

FAULT_POINTS = (
    "open.created",
    "open.directories",
    "undo.deleted",
    "undo.cut",
    "stage.started",
    "stage.written",
    "stage.reported",
    "place.planned",
    "place.created",
    "place.copied",
    "place.indexed",
    "place.published",
    "place.synced",
    "commit.quarantined",
    "commit.data",
    "commit.written",
    "commit.synced",
    "clean.derived",
    "clean.staging",
)
"""Every step: of a new store, of crash recovery, and then of a micro-batch, in its order."""

FLUSH_FAULT_POINTS = ("flush.synced",)
"""Steps of syncing logs outside of a micro-batch: by a close, and by a reopen after a crash."""

GROUP_FAULT_POINTS = ("groups.written",)
"""A mirror's step before its micro-batch: the offsets of consumer groups are durable."""

CHECKPOINT_FAULT_POINTS = ("checkpoint.written", "checkpoint.replaced")
"""Steps of replacing a small file: after the write under another name; after the rename, before the folder's fsync."""

LEDGER_FAULT_POINTS = ("tidy.checkpointed", "tidy.synced", "tidy.cleaned")
"""Steps of tidying the ledger, every 100 commits: its checkpoint is written; synced; older entries are removed."""

CUT_FAULT_POINTS = ("cut.written", "cut.dropped")
"""Steps before the commit of a micro-batch, if a cut is due: it is durable; an old one is dropped, a visit for each."""

OWNED_NAMES_FAULT_POINTS = ("names.held",)
"""Between the check of an owner and each removal or rename by path, where a successor must wait."""

_visits: dict[str, int] = {}


def reach(name: str) -> None:
    """Die or stop here if the environment says so; otherwise do nothing."""
    wanted = os.environ.get("SPARKLOG_FAULT_POINT")
    if wanted is None:
        return
    point, _, count = wanted.partition(":")
    if point != name:
        return
    _visits[name] = _visits.get(name, 0) + 1
    if os.environ.get("SPARKLOG_FAULT_SIGNAL") == "STOP":
        if _visits[name] == int(count or 1):
            # A signal to the process may go to another thread, and this one would run on for a while.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        return
    if _visits[name] < int(count or 1):
        return
    driver = os.environ.get("SPARKLOG_FAULT_PID")
    if driver is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(driver), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
