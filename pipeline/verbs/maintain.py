"""The verb `maintain`: plans retention and compaction of a store's logs, and with `--execute` does them on Spark.

Imports Spark only where needed: a plan does not need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sparklog.pipeline.maintenance.given_plan import read_plan
from sparklog.pipeline.maintenance.loop import run_every
from sparklog.pipeline.maintenance.metrics_file import recording_failure, write_metrics
from sparklog.pipeline.maintenance.plan import MaintenancePlan
from sparklog.pipeline.maintenance.report import PlanReport, RunReport, print_plan
from sparklog.pipeline.maintenance.run import (
    Callbacks,
    MaintainedPlace,
    execute_maintenance,
    find_place,
    plan_maintenance_of,
)
from sparklog.pipeline.maintenance.stop_file import StopFile
from sparklog.pipeline.places.stored_logs import Place
from sparklog.pipeline.prometheus import make_metrics_folder
from sparklog.pipeline.report import DONE, FAILED, show, to_json
from sparklog.pipeline.settings.maintenance_settings import MaintenanceSettings, maintenance_options
from sparklog.pipeline.settings.stream_settings import Settings, load_settings
from sparklog.pipeline.stop_request import StopRequest
from sparklog.pipeline.terminal import say, say_at_once
from sparklog.pipeline.verbs.retain import say_files_wait
from sparklog.sink.past.overtaken_cuts import describe_overtaken
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import SystemClock, sleep
from sparklog.storage_core.errors import InvalidConfigError, StorageError
from sparklog.storage_core.objects.open_storage import StoragePlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparklog.sink.objects.maintaining.maintain_objects import ObjectTask

__all__ = ["run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """Options of the output."""

    as_json: bool
    with_kept: bool


def run(
    store: Place | None,
    config: str | None,
    plan_file: str | None,
    execute: bool,
    with_kept: bool,
    rebuild_control: bool,
    as_json: bool,
    **given: str | None,
) -> int:
    """Carry the verb out; return the exit code."""
    if (store is None) == (config is None):
        raise click.UsageError("one of STORE and --config is needed")
    settings = None if config is None else _settings_of_objects(config, given)
    objects = store if settings is None else settings.objects
    if isinstance(objects, StoragePlace):
        chosen = maintenance_options(given) if settings is None else settings.maintenance
        others: dict[str, object] = {name: value for name, value in given.items() if name != "memory"}
        others |= {"plan": plan_file, "all": with_kept, "rebuild_control": rebuild_control}
        return _run_objects(objects, chosen, others, execute=execute, as_json=as_json)
    store = None if isinstance(store, StoragePlace) else store
    problems = _useless({**given, "plan": plan_file, "all": with_kept, "json": as_json}, execute, rebuild_control)
    place = _find_place(store, config, given, None if plan_file is None else Path(plan_file), problems)
    if place is not None and execute and not rebuild_control:
        problems += _metrics_problems(place)
    if problems or place is None:
        raise InvalidConfigError(*problems)
    if rebuild_control:
        return _rebuild_control(place, execute)
    if execute:
        return _maintain(place, _Shown(as_json=as_json, with_kept=with_kept))
    plan = plan_maintenance_of(place, SystemClock())
    if not as_json:
        print_plan(plan, with_kept=with_kept)
    found = Store.find(place.root)
    overtaken = describe_overtaken(found.ledger_path, plan.rows_after())
    show(PlanReport(plan, found.store_id, overtaken), as_json=as_json)
    return DONE


def _settings_of_objects(config: str, given: Mapping[str, str | None]) -> Settings | None:
    """Return the settings of a store of objects; None for others, and for a file with problems, which others name."""
    overrides = [f"maintenance.{name}={value}" for name, value in given.items() if value is not None]
    try:
        settings = load_settings(config, overrides)
    except InvalidConfigError:
        return None
    return settings if settings.objects is not None else None


def _useless(given: Mapping[str, object], execute: bool, rebuild_control: bool) -> list[str]:
    """Return a problem that names options without effect in this form of the command, if any."""
    names = [name for name, value in given.items() if value] if rebuild_control else []
    if not execute and not rebuild_control:
        names = [name for name in ("plan", "every", "metrics_file") if given[name]]
    where = "not with --rebuild-control" if rebuild_control else "only with --execute"
    return [f"{', '.join(f'--{name}'.replace('_', '-') for name in names)}: {where}"] if names else []


def _find_place(
    store: Path | None,
    config: str | None,
    given: Mapping[str, str | None],
    plan_file: Path | None,
    problems: list[str],
) -> MaintainedPlace | None:
    """Return the place to maintain; add the problems of settings and plan."""
    place, plan = None, None
    try:
        place = find_place(store, config, given)
    except InvalidConfigError as error:
        problems += error.problems
    try:
        plan = None if plan_file is None else read_plan(plan_file)
    except InvalidConfigError as error:
        problems += error.problems
    if plan is not None and place is not None:
        problems += plan.problems(Store.find(place.root).store_id, SystemClock().now_ms())
        if place.settings.every_ms is not None:
            problems.append("plan: a given plan runs only once: leave out every")
    return None if place is None else replace(place, given_plan=plan)


def _metrics_problems(place: MaintainedPlace) -> list[str]:
    """Return the problem that the run could not write its metrics file, if so."""
    if place.settings.metrics_file is None:
        return []
    try:
        make_metrics_folder(Path(place.settings.metrics_file))
    except StorageError as error:
        return [f"metrics_file: {error}"]
    return []


def _maintain(place: MaintainedPlace, shown: _Shown) -> int:
    """Do one maintenance run, or one at each interval; the first signal ends it between two logs."""
    from sparklog.pipeline.maintenance.session import lazy_session

    stop_file = StopFile.of(place.root)

    def asked(line: str) -> None:
        stop_file.ask()
        say_at_once(line)

    stop_file.clear()
    with StopRequest(asked, "logs") as stop, lazy_session(_named(place)) as start_spark:

        def spark() -> SparkSession:
            session = start_spark()
            stop.install()  # starting Spark has replaced the handlers
            return session

        def rest(seconds: float) -> None:
            if stop.requested:
                raise KeyboardInterrupt
            sleep(seconds)

        def run_once() -> int:
            return _maintain_once(place, spark, rest, shown)

        try:
            return run_every(run_once, place.settings.every_ms, lambda: stop.requested, SystemClock(), sleep)
        finally:
            if stop.requested:
                stop_file.clear()


def _named(place: MaintainedPlace) -> Mapping[str, str]:
    """Return Spark's settings with a name of the application for Spark's UI."""
    return {"spark.app.name": f"sparklog maintain {place.root.name}", **place.spark}


def _maintain_once(
    place: MaintainedPlace, spark: Callable[[], SparkSession], rest: Callable[[float], None], shown: _Shown
) -> int:
    """Do one maintenance run; print waits to stderr."""
    clock = SystemClock()
    began_ms = clock.monotonic_ms()

    def planned(plan: MaintenancePlan) -> None:
        if not shown.as_json:
            print_plan(plan, with_kept=shown.with_kept)

    callbacks = Callbacks(plan=planned, waits=say_files_wait, sleep=rest)
    metrics = None if place.settings.metrics_file is None else Path(place.settings.metrics_file)
    with recording_failure(metrics, clock):
        done = execute_maintenance(place, spark, clock, callbacks)
    ended_ms, duration_ms = clock.now_ms(), clock.monotonic_ms() - began_ms
    report = RunReport(done, Store.find(place.root).store_id, has_given_plan=place.given_plan is not None)
    show(report, as_json=shown.as_json)
    is_written = metrics is None or write_metrics(metrics, done, ended_ms, duration_ms)
    return DONE if is_written and not done.has_failures else FAILED


def _rebuild_control(place: MaintainedPlace, execute: bool) -> int:
    """Rebuild the control tables, or show which of them would be set aside."""
    from sparklog.pipeline.control.rebuild import rebuild_control, tables_to_replace
    from sparklog.pipeline.maintenance.session import lazy_session

    replaced, said = tables_to_replace(place.root), "would be set aside"
    last = "planned: cleaner checkpoints of all logs at their starts; --execute does it"
    if execute:
        with lazy_session(_named(place)) as spark:
            count = rebuild_control(place.root, spark, SystemClock())
        said, last = "set aside", f"done: cleaner checkpoints of {count:,} logs, each at its start"
    for name, problem in replaced.items():
        say(f"control/{name}: {said}: {problem}")
    say(last)
    return DONE


_KINDS = ("retain", "clean", "erase", "merge", "remove", "forget", "wait")


@dataclass(frozen=True, slots=True)
class _ObjectsReport:
    """Tasks as JSON has them."""

    tasks: Sequence[ObjectTask]
    is_executed: bool

    def as_dict(self) -> dict[str, Any]:
        """Return counts of tasks by kind."""
        kinds = {kind: sum(each.kind == kind for each in self.tasks) for kind in _KINDS}
        return {"executed": self.is_executed, **kinds, "failed": sum(each.error is not None for each in self.tasks)}

    def lines(self) -> Sequence[str]:
        """Return nothing: tasks are shown at once."""
        return ()

    def verdict(self) -> str:
        """Return the counts, for people."""
        counts = self.as_dict()
        found = ", ".join(f"{counts[kind]:,} {kind}" for kind in _KINDS if counts[kind])
        failed = f"; {counts['failed']:,} failed" if counts["failed"] else ""
        what = f"{found or 'nothing is due'}{failed}"
        return f"done: {what}" if self.is_executed else f"planned: {what}" + ("; --execute does it" if found else "")


def _run_objects(
    place: StoragePlace, settings: MaintenanceSettings, given: Mapping[str, object], *, execute: bool, as_json: bool
) -> int:
    """Carry the verb out; return the exit code.

    Args:
        given: options that such a store does not have, by their names; those with a value are refused.

    Raises:
        InvalidConfigError: such an option is given.
        LogStorageError: the ledger can't be read or written.
    """
    from sparklog.sink.objects.maintaining.maintain_objects import MaintainedObjects, maintain_objects, plan_objects

    useless = sorted(name for name, value in given.items() if value)
    if useless:
        names = ", ".join(f"--{name}".replace("_", "-") for name in useless)
        raise InvalidConfigError(f"{names}: not for a store of objects: address={place.address}")
    store = MaintainedObjects(place, SystemClock(), settings.memory_bytes)
    tasks: list[ObjectTask] = []
    if not execute:
        tasks = plan_objects(store)
        for task in tasks:
            _say_task(task, as_json=as_json)
    else:
        with _platform_session(), StopRequest(say_at_once, "logs") as stop:
            for task in maintain_objects(store, lambda: stop.requested):
                tasks.append(task)
                _say_task(task, as_json=as_json)
    report = _ObjectsReport(tasks, execute)
    show(report, as_json=as_json)
    return FAILED if any(each.error is not None for each in tasks) else DONE


@contextmanager
def _platform_session() -> Iterator[None]:
    """Start the session that a platform waits for, though no task needs it: else YARN takes the job for failed."""
    from sparklog.pipeline.spark.submitted import is_submitted

    if not is_submitted():
        yield
        return
    from sparklog.pipeline.maintenance.session import lazy_session

    with lazy_session({}) as session:
        session()
        yield


def _say_task(task: ObjectTask, *, as_json: bool) -> None:
    if as_json:
        say(to_json(asdict(task) | {"log": None if task.log is None else str(task.log)}))
        return
    where = "" if task.log is None else f" {task.log}"
    say(f"{task.kind}{where}: {task.what if task.error is None else f'failed: {task.error}'}")
