"""Selects the offsets of consumer groups that a cluster gets: of the mirror's newest micro-batch in the state it has.

A group never gets an offset above the mounted end, nor one below the start: it would begin where its own policy says,
and perhaps skip records. Nor one of an earlier topic of that name, above a truncation, or above what the mirror had of
the log: other records may lie there now. What is not given is listed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from sparklog.sink.ledger.group_table import GroupRow, GroupTable
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.ledger.versions import AsOf, open_ledger_at
from sparklog.sink.past.judge_past import read_epochs
from sparklog.sink.past.past_state import PastState
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.checkpoint.leader_epochs import end_offset_for
from sparklog.storage_core.kraft.group_offsets import GroupOffset
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = [
    "FoundGroups",
    "GroupPlan",
    "LogSpan",
    "RefusedOffset",
    "find_groups",
    "misfit",
    "newest_batches",
    "plan_groups",
]


class LogSpan(Protocol):
    """Which offsets a log has; a topic id is empty where a cluster has none."""

    @property
    def topic_id(self) -> str:
        """Id of its topic."""

    @property
    def log_start_offset(self) -> int:
        """First offset."""

    @property
    def log_end_offset(self) -> int:
        """Above its last offset."""


@dataclass(frozen=True, slots=True)
class RefusedOffset:
    """An offset that its group does not get.

    Attributes:
        reason: why, for people.
    """

    offset: GroupOffset
    reason: str

    def __str__(self) -> str:
        each = self.offset
        return f"{each.group}: {each.topic}-{each.partition} offset {each.offset} {self.reason}"


@dataclass(frozen=True, slots=True)
class FoundGroups:
    """The rows that belong to a version of the ledger.

    Attributes:
        gone: why there are none, for people, although a mirror has written some; empty otherwise.
    """

    rows: tuple[GroupRow, ...] = ()
    gone: str = ""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What groups get, and what they do not get.

    Attributes:
        gone: as of `FoundGroups`.
    """

    given: tuple[GroupOffset, ...] = ()
    refused: tuple[RefusedOffset, ...] = ()
    gone: str = ""

    @property
    def groups_count(self) -> int:
        """Number of groups that get an offset."""
        return len({each.group for each in self.given})


def find_groups(table: GroupTable, newest_batch: Callable[[str], int | None]) -> FoundGroups:
    """Return the rows that belong to a version of the ledger. A mirror keeps them for 8 micro-batches: read them first.

    Args:
        newest_batch: returns a query's newest micro-batch in that version.

    Raises:
        LogStorageError: the table of group offsets is damaged.
    """
    micro_batch = table.newest(newest_batch)
    if micro_batch is None:
        return FoundGroups()
    rows = table.read(micro_batch)
    if rows is None:
        return FoundGroups(
            gone=f"the offsets of consumer groups are gone, so no group gets one: query={micro_batch[0]}"
            f" micro_batch={micro_batch[1]}; beside a mirror try again, in a copy take control/group_offsets after the"
            " ledger"
        )
    return FoundGroups(tuple(sorted(rows, key=_order)))


def newest_batches(store: Store, ledger: Ledger, past: PastState | None) -> Callable[[str], int | None]:
    """Return a function that returns a query's newest micro-batch in a state.

    Args:
        ledger: the newest one.
        past: the earlier state that is asked for; None for the newest.

    Raises:
        InvalidConfigError: the ledger does not have the earlier state any more.
    """
    if past is None:
        return ledger.transaction_version
    cut = past.cut
    if cut is not None:
        return lambda query_id: cut.batch_id if query_id == cut.query_id else None
    return open_ledger_at(store.ledger_path, AsOf(version=past.ledger_version)).transaction_version


def plan_groups(store: Store, found: FoundGroups, mounted: Mapping[TopicPartition, LogState]) -> GroupPlan:
    """Return which offsets groups get.

    Args:
        found: of the same version of the ledger as `mounted`.

    Raises:
        StorageError: the disk refused.
    """
    given, refused = [], []
    ends = _Ends(store)
    for row in found.rows:
        state = mounted.get(TopicPartition(row.offset.topic, row.offset.partition))
        reason = _reason(row, state, ends)
        if reason is None:
            given.append(row.offset)
        else:
            refused.append(RefusedOffset(row.offset, reason))
    return GroupPlan(tuple(given), tuple(refused), found.gone)


def misfit(offset: GroupOffset, topic_id: str, log: LogSpan | None) -> str | None:
    """Return why an offset does not belong into a log; None if it does.

    Args:
        topic_id: of the log that the offset is of; may be empty.
        log: of that name, None without one.
    """
    if log is None:
        return "is of a log that is not there"
    if topic_id and log.topic_id and topic_id != log.topic_id:
        return f"is of another topic of that name: its_id={topic_id} id={log.topic_id}"
    if offset.offset > log.log_end_offset:
        return f"is above the log's end {log.log_end_offset}"
    if offset.offset < log.log_start_offset:
        return f"is below the log's start {log.log_start_offset}"
    return None


class _Ends:
    """Where the offsets of an earlier leader epoch end; each log's epochs are read once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._epochs: dict[TopicPartition, list[tuple[int, int]] | None] = {}

    def of(self, row: GroupRow, state: LogState) -> int:
        """Return the end of a row's epoch in a log; the log's start if that is unknown."""
        if row.leader_epoch in (state.leader_epoch, -1):
            return state.log_end_offset
        if state.log not in self._epochs:
            self._epochs[state.log] = read_epochs(self._store.log_path(state))
        epochs = self._epochs[state.log]
        if epochs is None:
            return state.log_start_offset
        end = end_offset_for(epochs, row.leader_epoch, state.log_end_offset)
        return state.log_end_offset if end is None else min(end, state.log_end_offset)


def _reason(row: GroupRow, state: LogState | None, ends: _Ends) -> str | None:
    reason = misfit(row.offset, row.topic_id, state)
    if state is None or reason is not None:
        return reason
    if row.is_ahead:
        return "was above the log's end as the mirror wrote it, and others have appended since"
    if row.offset.offset > (end := ends.of(row, state)):
        return f"is above {end}, where the log was truncated since or its writer changed"
    return None


def _order(row: GroupRow) -> tuple[str, str, int]:
    return row.offset.group, row.offset.topic, row.offset.partition
