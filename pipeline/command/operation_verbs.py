"""The verbs that operate on what is there: retention, deletion, moves, recovery. `cli` has the command itself.

Each plans by default and acts with `--execute`. Imports stand inside the verbs, as there.
"""

from typing import Any, Final

import click

from sparklog.pipeline.command.options import EXECUTE, JSON, PLACE, TIME

__all__ = ["OPERATION_VERBS"]


@click.command()
@click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=PLACE)
@EXECUTE
@click.option(
    "--clean-shutdown", is_flag=True, help="With --execute: then shut down cleanly; the next start trusts it."
)
@click.option("--index-interval-bytes", type=click.IntRange(0), default=4096, show_default=True, help="As Kafka's.")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Threads; four a core if not given.")
@JSON
def recover(**given: Any) -> int:
    """Load a broker's log directories as its start would: finish what was interrupted, cut what is torn or damaged.

    DIR is a root, several are all roots of one broker, or it is one log. Unlike `repair` this drops every record
    behind damage, as Kafka does. Exit code 1: records would go.
    """
    from sparklog.pipeline.verbs.recover import run

    return run(**given)


@click.command()
@click.argument("store", type=PLACE)
@click.argument("topic", metavar="TOPIC[:PARTITION]", required=False)
@EXECUTE
@JSON
def retain(**given: Any) -> int:
    """Delete old segments by each topic's retention.bytes, retention.ms and log start, as a broker does.

    Works beside a running sink, which keeps its active segments. Exit code 1: a log failed.
    """
    from sparklog.pipeline.verbs.retain import run

    return run(**given)


@click.command("delete-records")
@click.argument("store", type=PLACE)
@click.argument("name", metavar="TOPIC:PARTITION")
@click.option("--before", type=int, metavar="OFFSET", help="The log will start here; -1 is its end.")
@click.option("--before-time", type=TIME, metavar="TIME", help="It will start at the first record of this time.")
@EXECUTE
@JSON
def delete_records(**given: Any) -> int:
    """Let a log start later: earlier records are not shown any more, and whole segments of them go."""
    from sparklog.pipeline.verbs.delete_records import run

    return run(**given)


@click.command("delete-topic")
@click.argument("store", type=PLACE)
@click.argument("topic")
@EXECUTE
@JSON
def delete_topic(**given: Any) -> None:
    """Delete a TOPIC of a store with all its logs; no sink may run.

    A stream whose settings still name the topic makes it again, empty, when it starts.
    """
    from sparklog.pipeline.verbs.delete_topic import run

    run(**given)


@click.command()
@click.argument("store", type=PLACE)
@click.argument("log_dirs", metavar="[LOG_DIR]...", nargs=-1)
@EXECUTE
@JSON
def adopt(**given: Any) -> None:
    """Take log directories and quarantined rows over from another copy of STORE, which is refused from then on.

    LOG_DIR names further ones, in which the store has no logs yet.
    """
    from sparklog.pipeline.verbs.adopt import run

    run(**given)


@click.command("move-log")
@click.argument("store", type=PLACE)
@click.argument("name", metavar="TOPIC:PARTITION")
@click.option("--to", "target", required=True, metavar="LOG_DIR", help="Relative to the store, or absolute.")
@EXECUTE
@JSON
def move_log(**given: Any) -> None:
    """Move a log to another log directory of the store, or to a new one; no sink may run."""
    from sparklog.pipeline.verbs.move_log import run

    run(**given)


OPERATION_VERBS: Final[tuple[click.Command, ...]] = (
    recover,
    retain,
    delete_records,
    delete_topic,
    move_log,
    adopt,
)
"""What the command gets from here."""
