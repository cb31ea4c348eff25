"""Named steps of operations on logs other than writing, at which a test ends or stops the process.

See `fault_points`. Tests use the tables; the product names each step at its place.
"""

__all__ = [
    "CLEANER_FAULT_POINTS",
    "DIRECTORY_FAULT_POINTS",
    "FORGET_FAULT_POINTS",
    "IMPORT_FAULT_POINTS",
    "LOAD_FAULT_POINTS",
    "MOUNT_FAULT_POINTS",
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
"""Every step of `sparklog move-log` and `sparklog delete-topic`, in order; the last one is the commit of the next
opening.
"""

FORGET_FAULT_POINTS = ("forget.replaced",)
"""The step between a request's new form in a store of objects and the removal of those before."""

IMPORT_FAULT_POINTS = (
    "import.intended",
    "import.copied",
    "import.settings",
    "import.expected",
    "import.committed",
    "import.finished",
)
"""Every step of `sparklog import --execute`, in order."""

MOUNT_FAULT_POINTS = (
    "mount.copied",
    "mount.placed",
    "mount.unclean",
    "mount.emptied",
    "mount.starts",
    "mount.renamed",
    "mount.finished",
)
"""Every step of `sparklog mount --into --execute`, in order; the first and the sixth for each log."""

TRUNCATE_FAULT_POINTS = ("truncate.committed", "truncate.filled", "truncate.epochs", "truncate.finished")
"""Steps of truncating logs, apart from those of undoing; the second and third for each log."""

UPGRADE_FAULT_POINTS = ("upgrade.written", "upgrade.committed", "upgrade.finished")
"""Every step of `sparklog upgrade --execute`, in order."""

QUARANTINE_FAULT_POINTS = ("quarantine.merged", "quarantine.hidden", "quarantine.shown", "quarantine.removed")
"""Every step of merging a query's diverted rows, in order; the second for each micro-batch: the merger is complete; the
replaced folders are hidden; the merger is shown; the hidden folders are removed.
"""

RETENTION_FAULT_POINTS = ("retain.rolled", "retain.committed", "retain.renamed", "retain.deleted")
"""Every step of `sparklog retain` and `sparklog delete-records`, in order."""

ROLL_FAULT_POINTS = ("roll.closed", "roll.added", "roll.committed")
"""Every step of rolling active segments without an append, before a cleaning; the first two for each log."""

CLEANER_FAULT_POINTS = (
    "clean.announced",
    "clean.cleaned",
    "clean.swap",
    "clean.deleted",
    "clean.renamed",
    "clean.checkpoint",
)
"""Every step of cleaning logs, in order: the ledger says how far each of them will be compacted; then for each group of
segments of a log, the new one is written; complete; the old ones are removed; it has its name; all groups of the log
are done, the checkpoint is not recorded yet.
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
"""Every step of `sparklog repair --execute`, in order."""
