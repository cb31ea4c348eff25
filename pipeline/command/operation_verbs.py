"""The verbs that operate on what is there: retention, deletion, moves, recovery. `cli` has the command itself.

Each plans by default and acts with `--execute`. Imports stand inside the verbs, as there.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from sparklog.pipeline.command.options import DONE, EXECUTE, FAILED, JSON, PLACE, TIME
from sparklog.pipeline.report import say_waiting, to_json
from sparklog.pipeline.terminal import say

if TYPE_CHECKING:
    from sparklog.sink.operations.retain_logs import LogRetention
    from sparklog.sink.store.store_folder import Store

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
def recover(
    folders: tuple[Path, ...],
    execute: bool,
    clean_shutdown: bool,
    index_interval_bytes: int,
    jobs: int | None,
    as_json: bool,
) -> int:
    """Load a broker's log directories as its start would: finish what was interrupted, cut what is torn or damaged.

    DIR is a root, several are all roots of one broker, or it is one log. Unlike `repair` this drops every record
    behind damage, as Kafka does. Exit code 1: records would go.
    """
    from sparklog.pipeline.verbs import recover as recover_command
    from sparklog.storage_core.clock import SystemClock

    if clean_shutdown and not execute:
        raise click.UsageError("--clean-shutdown needs --execute")
    run = recover_command.execute_recovery if execute else recover_command.plan_recovery
    if clean_shutdown:
        run = recover_command.execute_and_close
    with recover_command.progress_bar(folders) as progress:
        options = recover_command.RecoverOptions(
            index_interval_bytes=index_interval_bytes, jobs=jobs, progress=progress
        )
        result = run(folders, options, SystemClock())
    for step in result.steps:
        say(to_json(step.as_dict()) if as_json else str(step))
    summary = result.as_dict() | {"executed": execute}
    if as_json:
        say(to_json(summary))
    else:
        say(*recover_command.verdict(result, is_executed=execute))
    return DONE if execute or not result.lost_bytes else FAILED


@click.command()
@click.argument("store", type=PLACE)
@click.argument("topic", metavar="TOPIC[:PARTITION]", required=False)
@EXECUTE
@JSON
def retain(store: Path, topic: str | None, execute: bool, as_json: bool) -> int:
    """Delete old segments by each topic's retention.bytes, retention.ms and log start, as a broker does.

    Works beside a running sink, which keeps its active segments. Exit code 1: a log failed.
    """
    from sparklog.pipeline.verbs import retain as retain_command
    from sparklog.storage_core.clock import SystemClock

    clock = SystemClock()
    return _retain(store, lambda _: retain_command.plan_retention_of(store, topic, clock), execute, as_json)


@click.command("delete-records")
@click.argument("store", type=PLACE)
@click.argument("name", metavar="TOPIC:PARTITION")
@click.option("--before", type=int, metavar="OFFSET", help="The log will start here; -1 is its end.")
@click.option("--before-time", type=TIME, metavar="TIME", help="It will start at the first record of this time.")
@EXECUTE
@JSON
def delete_records(
    store: Path, name: str, before: int | None, before_time: int | None, execute: bool, as_json: bool
) -> int:
    """Let a log start later: earlier records are not shown any more, and whole segments of them go."""
    from sparklog.pipeline.verbs import delete_records as delete_records_command
    from sparklog.storage_core.clock import SystemClock

    if (before is None) == (before_time is None):
        raise click.UsageError("one of --before and --before-time is needed")
    clock = SystemClock()
    log, offset = delete_records_command.find_offset(store, name, before, before_time)
    if not as_json:
        say(*delete_records_command.plan_deletion(store, log, offset, clock).lines())
    return _retain(store, delete_records_command.planner(log, offset, clock), execute, as_json)


@click.command("delete-topic")
@click.argument("store", type=PLACE)
@click.argument("topic")
@EXECUTE
@JSON
def delete_topic(store: Path, topic: str, execute: bool, as_json: bool) -> None:
    """Delete a TOPIC of a store with all its logs; no sink may run.

    A stream whose settings still name the topic makes it again, empty, when it starts.
    """
    from sparklog.pipeline.verbs import delete_topic as delete_topic_command
    from sparklog.storage_core.clock import SystemClock, sleep

    def waits(directories: "Sequence[Path]", until_ms: int) -> None:
        say_waiting(f"{len(directories):,} directories; Ctrl-C leaves them", until_ms)

    if execute:
        done = delete_topic_command.execute_deletion(store, topic, SystemClock(), waits, sleep)
    else:
        done = delete_topic_command.plan_deletion(store, topic)
    if as_json:
        say(to_json(delete_topic_command.as_dict(done, is_executed=execute)))
    else:
        say(*delete_topic_command.lines(done), delete_topic_command.verdict(done, is_executed=execute))


@click.command()
@click.argument("store", type=PLACE)
@click.argument("log_dirs", metavar="[LOG_DIR]...", nargs=-1)
@EXECUTE
@JSON
def adopt(store: Path, log_dirs: tuple[str, ...], execute: bool, as_json: bool) -> None:
    """Take log directories and quarantined rows over from another copy of STORE, which is refused from then on.

    LOG_DIR names further ones, in which the store has no logs yet.
    """
    from sparklog.sink.opening.adopt_roots import adopt_roots, plan_adoption

    claimed = (adopt_roots if execute else plan_adoption)(store, log_dirs)
    if as_json:
        say(to_json([{each.kind: str(each.path), "other": str(each.other)} for each in claimed]))
        return
    say(*(f"{each.path}: named {each.other}" for each in claimed))
    if not claimed:
        say("no other copy has a log directory or quarantined rows of this store")
    elif execute:
        say(f"adopted by {store}: {len(claimed):,} folders")
    else:
        say(
            f"{len(claimed):,} folders; --execute takes them over: the other copy can't be opened any more, and"
            f" what only that one has committed is no part of {store}"
        )


@click.command("move-log")
@click.argument("store", type=PLACE)
@click.argument("name", metavar="TOPIC:PARTITION")
@click.option("--to", "target", required=True, metavar="LOG_DIR", help="Relative to the store, or absolute.")
@EXECUTE
@JSON
def move_log(store: Path, name: str, target: str, execute: bool, as_json: bool) -> None:
    """Move a log to another log directory of the store, or to a new one; no sink may run."""
    from sparklog.pipeline.verbs import move_log as move_log_command

    log = move_log_command.parse_log(name)
    done = (move_log_command.execute_move if execute else move_log_command.plan_log_move)(store, log, target)
    if as_json:
        say(to_json(move_log_command.as_dict(done, store, is_executed=execute)))
    else:
        say(move_log_command.verdict(done, store, is_executed=execute))


def _retain(store: Path, plan: "Callable[[Store], list[LogRetention]]", execute: bool, as_json: bool) -> int:
    """Show a plan of retention, or carry it out; what is waited for goes to stderr."""
    from sparklog.pipeline.verbs import retain as retain_command
    from sparklog.sink.store.store_folder import Store
    from sparklog.storage_core.clock import SystemClock, sleep

    def shown(found: Store) -> "list[LogRetention]":
        planned = plan(found)
        if not as_json:
            retain_command.print_plan(planned)
        return planned

    def waits(files: int, until_ms: int) -> None:
        say_waiting(retain_command.waiting_files(files), until_ms)

    if execute:
        logs = retain_command.execute_retention(store, shown, SystemClock(), waits, sleep)
    else:
        logs = shown(Store.find(store))
    if as_json:
        say(to_json(retain_command.as_dict(logs, is_executed=execute)))
    else:
        say(*retain_command.notes(logs), retain_command.verdict(logs, is_executed=execute))
    return FAILED if retain_command.has_failures(logs) else DONE


OPERATION_VERBS: Final[tuple[click.Command, ...]] = (
    recover,
    retain,
    delete_records,
    delete_topic,
    move_log,
    adopt,
)
"""What the command gets from here."""
