"""Named steps at which a test ends or stops the process, as a crash would.

Every write path calls `reach` between two steps that touch the disk. With the environment variable
`SPARKLOG_FAULT_POINT=<name>` the process that gets there is killed; `<name>:<n>` waits for its n-th visit. On an
executor `SPARKLOG_FAULT_PID` names the driver, which is killed as well. `SPARKLOG_FAULT_SIGNAL=STOP` stops the process
instead, once, like a machine that is suspended: it goes on when it is told to. Unset, a visit costs one look-up.
"""

import contextlib
import os
import signal

__all__ = [
    "CHECKPOINT_FAULT_POINTS",
    "CLEANER_FAULT_POINTS",
    "DIRECTORY_FAULT_POINTS",
    "FAULT_POINTS",
    "FLUSH_FAULT_POINTS",
    "LEDGER_FAULT_POINTS",
    "LOAD_FAULT_POINTS",
    "REPAIR_FAULT_POINTS",
    "RETENTION_FAULT_POINTS",
    "ROLL_FAULT_POINTS",
    "TRUNCATE_FAULT_POINTS",
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
    "commit.written",
    "commit.synced",
    "clean.derived",
    "clean.staging",
)
"""Every step: of a new store, of undoing a crash, and then in the order in which a micro-batch passes them."""

REPAIR_FAULT_POINTS = (
    "repair.dropped",
    "repair.swapped",
    "repair.recorded",
    "repair.kept",
    "repair.written",
    "repair.replaced",
    "repair.indexed",
    "repair.committed",
)
"""Every step of `sparklog repair --execute`, in the order in which it passes them."""

LOAD_FAULT_POINTS = (
    "load.dropped",
    "load.replaced",
    "load.renamed",
    "split.written",
    "split.swapped",
    "recover.cut",
    "recover.indexed",
    "recover.deleted",
    "recover.snapshot",
)
"""Every step of loading a log directory: its leftovers, an overflowed segment that is split, recovery."""

FLUSH_FAULT_POINTS = ("flush.synced",)
"""Steps of bringing logs onto the disk apart from a micro-batch: by a close, and by an opening after a crash."""

DIRECTORY_FAULT_POINTS = (
    "move.copied",
    "move.committed",
    "move.renamed",
    "move.deleted",
    "delete-topic.committed",
    "delete-topic.renamed",
    "delete-topic.deleted",
)
"""Every step of `sparklog move-log` and `sparklog delete-topic`, in the order in which they pass them."""

CHECKPOINT_FAULT_POINTS = ("checkpoint.written", "checkpoint.replaced")
"""Steps of replacing a small file: it is written under another name; it has its name, and its folder is not synced."""

TRUNCATE_FAULT_POINTS = ("truncate.noted", "truncate.committed", "truncate.finished")
"""Steps of truncating a log, apart from those of undoing."""

RETENTION_FAULT_POINTS = ("retain.rolled", "retain.committed", "retain.renamed", "retain.deleted")
"""Every step of `sparklog retain` and `sparklog delete-records`, in the order in which they pass them."""

ROLL_FAULT_POINTS = ("roll.closed", "roll.added", "roll.committed")
"""Every step of rolling active segments without an append, before a cleaning; the first two for each log."""

CLEANER_FAULT_POINTS = ("clean.cleaned", "clean.swap", "clean.deleted", "clean.renamed", "clean.checkpoint")
"""Every step of cleaning a log, in the order in which it passes them; all but the last one for each group of segments:
the new one is written; is complete; the old ones are gone; it has its name; all groups are done, and nobody was told.
"""

LEDGER_FAULT_POINTS = ("tidy.checkpointed", "tidy.synced", "tidy.cleaned")
"""Steps of tidying the ledger, every 100 commits: its checkpoint is written; is durable; older entries are gone."""

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
            os.kill(os.getpid(), signal.SIGSTOP)
        return
    if _visits[name] < int(count or 1):
        return
    driver = os.environ.get("SPARKLOG_FAULT_PID")
    if driver is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(driver), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
