"""Surveys a store before a maintenance run: reads ledger, logs and control tables, and plans. Changes nothing.

No Spark: a plan of ten thousand logs takes seconds, and starting a JVM would take as long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sparklog.pipeline.control.cleaner_checkpoints import CleanerCheckpoint, checkpoints_of
from sparklog.pipeline.control.leases import leased_elsewhere, machine_id
from sparklog.pipeline.control.read_tables import read_columns, read_rows
from sparklog.pipeline.control.schemas import CLEANER_CHECKPOINTS, LEASES, RUNS
from sparklog.pipeline.maintenance.plan import Bounds, MaintenancePlan, SurveyedLog, plan_maintenance
from sparklog.pipeline.maintenance.runs import FORMER_COLUMNS, former_runs
from sparklog.sink.erasure.forget_keys import NO_ERASURE, Erasure
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.opening.access import WRITER_LOCK
from sparklog.sink.operations.clean_logs import plan_cleanings
from sparklog.sink.operations.retain_logs import LogRetention, plan_logs
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import read_topic_configs
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.retention.plan_retention import without_roll
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["Survey", "read_checkpoints", "survey_store"]

_REMEMBERED_MS: Final = 7 * 24 * 3_600_000
"""Older runs are ignored for speed and yield."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The plan of a run, and the logs' states after former runs.

    Attributes:
        checkpoints: of existing logs.
        gone: logs with a checkpoint that are deleted, or belong to a new topic of that name.
    """

    plan: MaintenancePlan
    checkpoints: Mapping[TopicPartition, CleanerCheckpoint]
    gone: Sequence[TopicPartition]


def read_checkpoints(store: Store) -> dict[TopicPartition, CleanerCheckpoint]:
    """Return the cleaner checkpoints of existing logs.

    Raises:
        UnsupportedFormatError: a newer release wrote the table.
        CorruptFileError: the table is damaged.
        LedgerDamagedError: the ledger can't be read.
    """
    states = Ledger.open(store.ledger_path).states()
    return checkpoints_of(read_rows(store.root, CLEANER_CHECKPOINTS), states)


def survey_store(store: Store, bounds: Bounds, clock: Clock, erasure: Erasure = NO_ERASURE) -> Survey:
    """Return the survey of a store; changes nothing.

    Args:
        clock: for the age of records.
        erasure: segments with records of keys to erase.

    Raises:
        UnsupportedFormatError: a newer release wrote a control table.
        CorruptFileError: a control table is damaged, or the topics' settings are.
        LedgerDamagedError: the ledger can't be read.
    """
    now_ms = clock.now_ms()
    rows = read_rows(store.root, CLEANER_CHECKPOINTS)
    leased = leased_elsewhere(read_rows(store.root, LEASES), machine_id(), now_ms)
    remembered = [("started_ms", ">=", now_ms - _REMEMBERED_MS)]
    former = former_runs(read_columns(store.root, RUNS, FORMER_COLUMNS, remembered))
    states = Ledger.open(store.ledger_path).states()
    checkpoints = checkpoints_of(rows, states)
    configs = read_topic_configs(store)
    compacted = {log for log in states if log.topic in configs and configs[log.topic].is_compacted}
    dirty = {log: each.first_dirty_offset for log, each in checkpoints.items()}
    may_roll = not WriterLock.is_held(store.root / WRITER_LOCK)
    retentions = plan_logs(store, clock)
    cleanings = {}
    if compacted:
        plans = plan_cleanings(
            store,
            dirty,
            clock,
            compacted,
            log_starts=_starts_after(retentions, may_roll=may_roll),
            may_roll=may_roll,
            erased_in_active=erasure.active,
        )
        cleanings = {each.log: each for each in plans}
    requests: dict[str, tuple[str, ...]] = {}
    for one in sorted(erasure.requests, key=lambda one: one.request_id):
        requests[one.topic_id] = (*requests.get(one.topic_id, ()), one.request_id)
    rolled = {log for log, each in cleanings.items() if each.plan is not None and each.plan.rolls}
    logs = [
        SurveyedLog(
            retention=each,
            cleaning=cleanings.get(each.log),
            checkpoint=checkpoints.get(each.log),
            leased_by=leased.get(each.log),
            request_ids=requests.get(each.state.topic_id, ()),
        )
        for each in retentions
    ]
    known = {TopicPartition(row["topic"], row["partition"]) for row in rows}
    plan = plan_maintenance(logs, now_ms, bounds, former, {*erasure.closed, *rolled.intersection(erasure.active)})
    return Survey(plan, checkpoints, sorted(known - checkpoints.keys()))


def _starts_after(retentions: Sequence[LogRetention], *, may_roll: bool) -> dict[TopicPartition, int]:
    """Return start offsets of logs after the deletions, which the same run does first.

    Args:
        may_roll: whether the run may delete active segments, as no sink holds the store.
    """
    starts = {}
    for each in retentions:
        if each.plan is not None and each.is_due:
            plan = each.plan if may_roll else without_roll(each.plan, each.state.log_start_offset)
            starts[each.log] = plan.log_start_offset
    return starts
