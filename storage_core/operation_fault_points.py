"""Named steps of what is done to logs apart from writing them, at which a test ends or stops the process.

What happens there says `fault_points`. Tests take the tables; the product names each step where it passes it.
"""

__all__ = [
    "CLEANER_FAULT_POINTS",
    "DIRECTORY_FAULT_POINTS",
    "LOAD_FAULT_POINTS",
    "QUARANTINE_FAULT_POINTS",
    "REPAIR_FAULT_POINTS",
    "RETENTION_FAULT_POINTS",
    "ROLL_FAULT_POINTS",
    "TRUNCATE_FAULT_POINTS",
    "UPGRADE_FAULT_POINTS",
]

DIRECTORY_FAULT_POINTS = (
    "move.intended",
    "move.copied",
    "move.committed",
    "move.renamed",
    "move.deleted",
    "delete-topic.committed",
    "delete-topic.renamed",
    "delete-topic.deleted",
    "open.settled",
)
"""Every step of `sparklog move-log` and `sparklog delete-topic`, in the order in which they pass them; the last one is
the next opening's, which has committed what is done.
"""

TRUNCATE_FAULT_POINTS = ("truncate.committed", "truncate.filled", "truncate.finished")
"""Steps of truncating a log, apart from those of undoing."""

UPGRADE_FAULT_POINTS = ("upgrade.written", "upgrade.committed", "upgrade.finished")
"""Every step of `sparklog upgrade --execute`, in the order in which it passes them."""

QUARANTINE_FAULT_POINTS = ("quarantine.merged", "quarantine.hidden", "quarantine.shown", "quarantine.removed")
"""Every step of merging a query's diverted rows, in the order in which it passes them; the second for each micro-batch:
the merger is complete; what it replaces is hidden; the merger is shown; what was hidden is gone.
"""

RETENTION_FAULT_POINTS = ("retain.rolled", "retain.committed", "retain.renamed", "retain.deleted")
"""Every step of `sparklog retain` and `sparklog delete-records`, in the order in which they pass them."""

ROLL_FAULT_POINTS = ("roll.closed", "roll.added", "roll.committed")
"""Every step of rolling active segments without an append, before a cleaning; the first two for each log."""

CLEANER_FAULT_POINTS = ("clean.cleaned", "clean.swap", "clean.deleted", "clean.renamed", "clean.checkpoint")
"""Every step of cleaning a log, in the order in which it passes them; all but the last one for each group of segments:
the new one is written; is complete; the old ones are gone; it has its name; all groups are done, and nobody was told.
"""

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

REPAIR_FAULT_POINTS = (
    "repair.surplus",
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
