"""The verbs of the command `sparklog` that are scheduled: `maintain`."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from pipeline.verb_options import DONE, EXECUTE, FAILED, JSON, PLACE

if TYPE_CHECKING:
    from pipeline.maintain_command import MaintainedPlace
    from pipeline.maintenance_plan import MaintenancePlan

__all__ = ["MAINTENANCE_VERBS"]


@click.command()
@click.argument("store", type=PLACE, required=False)
@click.option("--config", metavar="FILE", help="Settings file (YAML), in place of STORE.")
@EXECUTE
@click.option("--max-bytes", metavar="SIZE", help="What the cleanings of a run may read, such as 10GiB.")
@click.option("--max-time", metavar="TIME", help="How long a run may be expected to take, such as 30m.")
@click.option("--memory", metavar="SIZE", help="What the offset map of a task may take; 128MiB if not given.")
@click.option("--all", "with_kept", is_flag=True, help="Show what is not due, too.")
@click.option("--rebuild-control", is_flag=True, help="Make the control tables anew from the logs.")
@JSON
def maintain(
    store: Path | None,
    config: str | None,
    execute: bool,
    with_kept: bool,
    rebuild_control: bool,
    as_json: bool,
    **given: str | None,
) -> int:
    """Plan retention and compaction of all logs of a STORE, and with --execute do it, on Spark.

    Works beside a running sink, which keeps its active segments. Exit code 1: a log failed, or is another run's.
    """
    from pipeline import maintain_command, maintenance_report, tools
    from storage_core.clock import SystemClock

    if (store is None) == (config is None):
        raise click.UsageError("one of STORE and --config is needed")
    place = maintain_command.find_place(store, config, given)
    if rebuild_control:
        return _rebuild_control(place, execute)
    if execute:
        return _maintain(place, as_json, with_kept)
    plan = maintain_command.plan_maintenance_of(place, SystemClock())
    if as_json:
        click.echo(tools.to_json(maintenance_report.plan_as_dict(plan)))
    else:
        maintenance_report.print_plan(plan, with_kept=with_kept)
        click.echo(maintenance_report.plan_verdict(plan))
    return DONE


def _maintain(place: "MaintainedPlace", as_json: bool, with_kept: bool) -> int:
    """Carry a run of maintenance out; what is waited for goes to stderr."""
    from pipeline import forget_command, maintain_command, maintenance_report, retain_command, tools
    from pipeline.maintenance_session import lazy_session
    from storage_core.clock import SystemClock

    def planned(plan: "MaintenancePlan") -> None:
        if not as_json:
            maintenance_report.print_plan(plan, with_kept=with_kept)

    def waits(files: int, until_ms: int) -> None:
        click.echo(retain_command.waiting_line(files, until_ms), err=True)

    telling = maintain_command.Telling(plan=planned, waits=waits, sleep=time.sleep)
    with lazy_session(place.spark) as spark:
        run = maintain_command.execute_maintenance(place, spark, SystemClock(), telling)
    if as_json:
        click.echo(tools.to_json(maintenance_report.run_as_dict(run)))
    else:
        told = [line for each in run.erasures for line in forget_command.lines(each)]
        for line in (*map(maintenance_report.result_line, run.results), *told, maintenance_report.run_verdict(run)):
            click.echo(line)
    return FAILED if run.has_failures else DONE


def _rebuild_control(place: "MaintainedPlace", execute: bool) -> int:
    """Make the control tables anew, or say what of them would be set aside."""
    from pipeline.control.rebuild import rebuild_control, tables_to_replace
    from pipeline.maintenance_session import lazy_session
    from storage_core.clock import SystemClock

    for name, problem in tables_to_replace(place.root).items():
        click.echo(f"control/{name}: {'set aside' if execute else 'would be set aside'}: {problem}")
    if not execute:
        click.echo("planned: checkpoints of all logs from their starts; --execute does it")
        return DONE
    with lazy_session(place.spark) as spark:
        count = rebuild_control(place.root, spark, SystemClock())
    click.echo(f"done: checkpoints of {count:,} logs, each from its start")
    return DONE


MAINTENANCE_VERBS: Final[Sequence[click.Command]] = (maintain,)
"""In the order in which they are listed."""
