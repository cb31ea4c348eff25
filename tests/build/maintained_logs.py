"""Logs as a maintenance plan sees them, without a store: plans of retention and cleaning from a few numbers."""

from pathlib import Path
from typing import Any

from sparklog.pipeline.control.cleaner_checkpoints import CleanerCheckpoint
from sparklog.pipeline.maintenance.plan import SurveyedLog
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.operations.clean_logs import LogCleaning
from sparklog.sink.operations.retain_logs import LogRetention
from sparklog.storage_core.cleaner.survey.cleanable import CleaningPlan, Decision
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.retention.log_facts import ListedLog
from sparklog.storage_core.retention.plan_retention import RetentionPlan, SegmentDeletion, SegmentFacts
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["NOW_MS", "checkpoint", "log_state", "surveyed"]

NOW_MS = 1_700_000_000_000


def log_state(topic: str, partition: int = 0, **values: Any) -> LogState:
    """Return a row of the ledger, of a log with 100 records in segments of 50."""
    usual = {
        "log_dir": "logs",
        "topic_id": f"id-of-{topic}",
        "log_start_offset": 0,
        "log_end_offset": 100,
        "recovery_point": 100,
        "active_base_offset": 50,
        "active_size_bytes": 500,
        "max_timestamp_ms": NOW_MS,
        "leader_epoch": 0,
        "updated_ms": NOW_MS,
    }
    return LogState(topic=topic, partition=partition, **{**usual, **values})


def checkpoint(topic: str, partition: int = 0, **values: Any) -> CleanerCheckpoint:
    """Return what is known of a log that was never cleaned."""
    usual = {"topic_id": f"id-of-{topic}", "first_dirty_offset": 0, "log_start_offset": 0}
    return CleanerCheckpoint(topic=topic, partition=partition, **{**usual, **values})


def surveyed(
    topic: str,
    decision: Decision | None = None,
    *,
    partition: int = 0,
    clean_bytes: int = 0,
    cleanable_bytes: int = 0,
    delay_ms: int = 0,
    deleted_bytes: int = 0,
    failure: str | None = None,
    known: CleanerCheckpoint | None = None,
    leased_by: str | None = None,
) -> SurveyedLog:
    """Return a log: with a decision of the cleaner it is compacted, with bytes to delete retention has one segment."""
    log, state = TopicPartition(topic, partition), log_state(topic, partition)
    cleaning = None
    if decision is not None:
        plan = CleaningPlan(
            decision=decision,
            reason=f"it is {decision}",
            first_dirty_offset=0,
            first_uncleanable_offset=50,
            clean_bytes=clean_bytes,
            cleanable_bytes=cleanable_bytes,
            compaction_delay_ms=delay_ms,
        )
        config = LogConfig(cleanup_policy="compact")
        cleaning = LogCleaning(log=log, state=state, directory=Path("logs"), config=config, plan=plan)
    retention = LogRetention(log=log, state=state, directory=Path("logs"), delay_ms=0, failure=failure)
    if failure is None:
        deletions = (
            SegmentDeletion(base_offset=0, next_offset=50, size_bytes=deleted_bytes, rule="size", reason="too large"),
        )
        retention = LogRetention(
            log=log,
            state=state,
            directory=Path("logs"),
            delay_ms=0,
            plan=RetentionPlan(deletions=deletions, log_start_offset=50)
            if deleted_bytes
            else RetentionPlan(deletions=(), log_start_offset=0),
            listed=ListedLog((SegmentFacts(0, 50, deleted_bytes), SegmentFacts(50, 100, 500)), (), has_stray=False),
        )
    return SurveyedLog(retention=retention, cleaning=cleaning, checkpoint=known, leased_by=leased_by)
