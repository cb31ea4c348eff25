"""A maintenance run from lock to release: plans all logs of a store, and carries the plan out.

    maintenance.lock -> plan -> Spark -> leases -> tasks -> control tables -> lock released -> waiting files removed

A plan starts no Spark. The control tables record a run after its tasks. If the run is killed before, its finished
cleanings stay, and the next run finds them by reading the logs.
"""

from __future__ import annotations

import logging
import secrets
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparklog.pipeline.control.leases import refuse_leased
from sparklog.pipeline.control.owner_check import OwnerCheck
from sparklog.pipeline.control.read_tables import check_tables
from sparklog.pipeline.maintenance.given_plan import GivenPlan, compare_plans
from sparklog.pipeline.maintenance.plan import Bounds, MaintenancePlan
from sparklog.pipeline.maintenance.runs import RunFacts, TaskResult
from sparklog.pipeline.maintenance.survey import Survey, survey_store
from sparklog.pipeline.settings.maintenance_settings import MaintenanceSettings, maintenance_options
from sparklog.pipeline.settings.stream_settings import load_settings
from sparklog.sink.erasure.forget_keys import RequestState, finish_requests, known_erasure, prepare_erasure
from sparklog.sink.erasure.forget_request import ForgetRequest, erased_keys
from sparklog.sink.erasure.searched_folder import SearchedFolder
from sparklog.sink.opening.access import MaintainedStore, maintaining
from sparklog.sink.operations.clean_logs import CleanerBudget
from sparklog.sink.operations.cut_before import write_cut_before_maintenance
from sparklog.sink.operations.retain_logs import PendingRemoval, RetentionRun, last_removal_ms, remove_deleted
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import LogStorageError, StoreLockedError, WriterFencedError
from sparklog.storage_core.topic_partition import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Callbacks", "MaintainedPlace", "MaintenanceRun", "execute_maintenance", "find_place", "plan_maintenance_of"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintainedPlace:
    """The store of a run, and the run's settings.

    Attributes:
        spark: Spark's settings.
        given_plan: the only tasks that the run may do; None for all that are due.
    """

    root: Path
    settings: MaintenanceSettings
    spark: Mapping[str, str]
    given_plan: GivenPlan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceRun:
    """A finished run.

    Attributes:
        plan: in which tasks on logs that other runs have leased wait.
        results: in the order of the tasks.
        unremoved: by log, why renamed files could not be removed.
        erasures: requests to forget keys, each with its remaining records.
    """

    run_id: str
    plan: MaintenancePlan
    results: Sequence[TaskResult] = ()
    unremoved: Mapping[TopicPartition, str] = field(default_factory=dict)
    erasures: Sequence[RequestState] = ()

    @property
    def has_failures(self) -> bool:
        """Whether a task failed, now or not long ago, could not be planned, or is leased by another run."""
        failed = any(each.is_failure for each in self.results) or bool(self.unremoved)
        return failed or any(each.decision in ("fail", "wait") for each in self.plan.tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """Functions that a run calls.

    Attributes:
        plan: gets the plan before the first task.
        waits: gets the number of files that wait to be removed, and until when.
        sleep: waits that many seconds; raises KeyboardInterrupt if the run was asked to end.
    """

    plan: Callable[[MaintenancePlan], None]
    waits: Callable[[int, int], None]
    sleep: Callable[[float], None]


def find_place(store: Path | None, config: str | None, given: Mapping[str, str | None]) -> MaintainedPlace:
    """Return the store to maintain, with its settings.

    Args:
        store: folder of the store; None if a settings file names it.
        given: options of the command, which override the file's settings.

    Raises:
        InvalidConfigError: settings are invalid; names every problem. Or the folder is no store.
    """
    options = {name: value for name, value in given.items() if value is not None}
    if config is None:
        place = MaintainedPlace(root=(store or Path()).absolute(), settings=maintenance_options(options), spark={})
    else:
        found = load_settings(config, [f"maintenance.{name}={value}" for name, value in options.items()])
        place = MaintainedPlace(root=Path(found.store).absolute(), settings=found.maintenance, spark=found.spark)
    Store.find(place.root)
    return place


def plan_maintenance_of(place: MaintainedPlace, clock: Clock) -> MaintenancePlan:
    """Return the plan of a run; changes nothing.

    Raises:
        UnsupportedFormatError: a newer release wrote a control table.
        CorruptFileError: a control table is damaged, or the topics' settings are.
        LedgerDamagedError: the ledger can't be read.
    """
    store = Store.find(place.root)
    return survey_store(store, _bounds(place.settings), clock, known_erasure(SearchedFolder(store))).plan


def execute_maintenance(
    place: MaintainedPlace,
    spark: Callable[[], SparkSession],
    clock: Clock,
    callbacks: Callbacks,
) -> MaintenanceRun:
    """Plan, and carry the plan out; return the finished run.

    Args:
        place: the store, and the run's settings.
        spark: returns the session; called when it is needed.

    Raises:
        StoreLockedError: another run maintains the store, or has leased its logs; the message names the run.
        UnsupportedFormatError: a newer release wrote a control table.
        CorruptFileError: a control table is damaged.
        WriterFencedError: another run took over.
    """
    check_tables(place.root)
    refuse_leased(place.root, clock)
    with maintaining(place.root) as maintained:
        write_cut_before_maintenance(maintained, clock)
        erasure = prepare_erasure(SearchedFolder(maintained.store), clock)
        survey = survey_store(maintained.store, _bounds(place.settings), clock, erasure)
        if place.given_plan is not None:
            survey = replace(survey, plan=compare_plans(place.given_plan, survey.plan))
        callbacks.plan(survey.plan)
        run, pending = _carry_out(maintained, (survey, erasure.requests), place.settings, spark(), clock)
        erasures = finish_requests(SearchedFolder(maintained.store), erasure.requests, clock)
    if (until_ms := last_removal_ms(pending, clock)) is not None:
        callbacks.waits(sum(len(each.files) for each in pending), until_ms)
    unremoved: dict[TopicPartition, str] = {}
    with suppress(KeyboardInterrupt):  # the tasks are done and recorded; the next run removes the files
        unremoved = remove_deleted(RetentionRun([], pending), clock, callbacks.sleep)
    return replace(run, unremoved=unremoved, erasures=erasures)


def _bounds(settings: MaintenanceSettings) -> Bounds:
    return Bounds(max_bytes=settings.max_bytes, max_time_ms=settings.max_time_ms)


@contextmanager
def _failure_recorded(record: Callable[[str], None]) -> Iterator[None]:
    """Record a failed run. A fenced run records nothing: its successor does."""
    from sparklog.sink.spark.errors import explain

    try:
        yield
    except WriterFencedError:
        raise
    except Exception as error:
        try:
            record(f"{type(error).__name__}: {explain(error)}")
        except LogStorageError as further:
            logger.warning("A failed run can't be recorded: %s", further)
        raise


@contextmanager
def _spark_failure_named() -> Iterator[None]:
    """Turn Spark's own errors, such as after the death of its JVM, into an error that ends the run but not the loop."""
    from sparklog.sink.spark.errors import SPARK_ERRORS, explain

    try:
        yield
    except SPARK_ERRORS as error:
        raise LogStorageError(f"Spark failed: {explain(error)}") from error


@_spark_failure_named()
def _carry_out(
    maintained: MaintainedStore,
    surveyed: tuple[Survey, Sequence[ForgetRequest]],
    settings: MaintenanceSettings,
    spark: SparkSession,
    clock: Clock,
) -> tuple[MaintenanceRun, list[PendingRemoval]]:
    """Take leases, do the tasks, and record them in the control tables."""
    from sparklog.pipeline.control.leases import acquire_leases, holding_leases
    from sparklog.pipeline.control.tables import ControlTables
    from sparklog.pipeline.maintenance.job import run_plan
    from sparklog.pipeline.maintenance.record_run import record_run

    owner = OwnerCheck.of(maintained.store.root)
    maintained.lock.check()  # executors compare with the signature of this run, not with that of a run elsewhere
    survey, requests = surveyed
    started_ms, began_ms = clock.now_ms(), clock.monotonic_ms()
    run_id = f"{started_ms}-{uuid.uuid4().hex[:8]}"
    spark.sparkContext.setJobDescription(f"sparklog: maintenance run {run_id}")
    tables = ControlTables(spark, maintained.store.root)
    leases = acquire_leases(tables, {each.log for each in survey.plan.due}, run_id, clock)
    if leases.refused and not leases.epochs:
        log, holder = min(leases.refused.items())
        raise StoreLockedError(f"another maintenance run has leased all {len(leases.refused)} logs: log={log} {holder}")
    plan = survey.plan.with_leases(leases.refused)
    budget = CleanerBudget(
        map_bytes=settings.memory_bytes, hash_key=secrets.token_bytes(16), erased_keys=erased_keys(requests)
    )

    def record(results: Sequence[TaskResult], failure: str | None = None) -> None:
        spent_ms = clock.monotonic_ms() - began_ms
        run = RunFacts(
            run_id=run_id, started_ms=started_ms, duration_ms=spent_ms, epochs=leases.epochs, failure=failure
        )
        record_run(tables, maintained, survey.checkpoints, survey.gone, (run, plan, results))

    with holding_leases(tables, leases, maintained.lock.sign_off):
        with _failure_recorded(lambda failure: record((), failure)):
            results, pending = run_plan(spark, maintained, plan, budget, clock, owner)
            leases.check()
        record(results)
    return MaintenanceRun(run_id=run_id, plan=plan, results=results), pending
