"""A ledger row as `verify` takes it."""

from sparklog.sink.ledger.rows import LogState
from sparklog.storage_core.inspect.verify.findings import ExpectedLog

__all__ = ["expected_log"]


def expected_log(state: LogState, *, has_gaps: bool | None, preserves_offsets: bool) -> ExpectedLog:
    """Return what a log's files must agree with; arguments as in `ExpectedLog`."""
    return ExpectedLog(
        log_start_offset=state.log_start_offset,
        log_end_offset=state.log_end_offset,
        active_base_offset=state.active_base_offset,
        active_size_bytes=state.active_size_bytes,
        topic_id=state.topic_id,
        leader_epoch=state.leader_epoch,
        recovery_point=state.recovery_point,
        has_gaps=has_gaps,
        preserves_offsets=preserves_offsets,
        first_unstable_offset=state.first_unstable_offset,
    )
