"""Copies logs of a store of a machine into a store of objects; what the copy has already stays.

Batches are copied as they are, with offsets, leader epochs and producers. Logs share objects where they are small; a
large log comes in several commits. What a crash leaves: objects that no version names, and logs that can be read up to
where they have come. The next copy goes on there.
"""

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sparklog.sink.ledger.lost_ranges import LostRange
from sparklog.sink.ledger.rows import LedgerRows, LogState
from sparklog.sink.objects.copying.compare_log import PART_BYTES, LogDifference, LogPart, LogToCopy, read_part
from sparklog.sink.objects.extents import Extent
from sparklog.sink.objects.merge_extents import MERGED, Replacement, replace_extents
from sparklog.sink.objects.new_extents import NewExtents
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.sink.objects.object_writer import LOG_DIR
from sparklog.storage_core.errors import LogStorageError, StorageError
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["CopiedLog", "copy_logs", "is_same", "row_of"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CopiedLog:
    """A log whose copy is complete, or failed.

    Attributes:
        error: why it failed; None if it did not.
    """

    log: TopicPartition
    size_bytes: int
    error: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Gap:
    """Parts of a log that come in one commit, in the place of extents."""

    difference: LogDifference
    parts: tuple[LogPart, ...]
    old: tuple[Extent, ...]
    is_last: bool

    @property
    def log(self) -> TopicPartition:
        return self.difference.source.state.log

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.parts)


@dataclass(slots=True)
class _Unit:
    """Gaps that share a commit."""

    gaps: list[_Gap] = field(default_factory=list)
    size_bytes: int = 0


class _SourceError(Exception):
    """A log can't be copied; others can."""


def copy_logs(
    ledger: ObjectLedger,
    differences: Sequence[LogDifference],
    now_ms: int,
    stop: Callable[[], bool],
    problem_of: Callable[[Sequence[LogToCopy]], Mapping[TopicPartition, str]],
) -> Iterator[CopiedLog]:
    """Copy what is missing; yield each log once it is complete, or has failed.

    Args:
        ledger: of the copy.
        differences: of its logs.
        now_ms: since when what goes is garbage.
        stop: whether to end before the next object is written.
        problem_of: returns why what was read of logs is not what they had, by log; asked before each commit.

    Raises:
        LogStorageError: the storage refuses, or another run changes the copy.
    """
    held = {each.source.state.log: each.held for each in differences}
    failed = set[TopicPartition]()
    for unit in _units(differences):
        if stop():
            return
        new, problems = dict[_Gap, list[Extent]](), dict[TopicPartition, str]()
        for parts in _objects([each for each in unit.gaps if each.log not in failed]):
            if stop():
                return
            written, errors = _write(ledger, [each for each in parts if each[0].log not in problems])
            for gap, found in written:
                new.setdefault(gap, []).extend(found)
            problems |= errors
        sources = {each.log: each.difference.source for each in unit.gaps if each.log not in failed | problems.keys()}
        problems |= problem_of(list(sources.values()))
        yield from (CopiedLog(log, 0, problem) for log, problem in problems.items())
        failed |= problems.keys()
        unit.gaps = [each for each in unit.gaps if each.log not in failed]
        if unit.gaps:
            held |= _commit(ledger, unit.gaps, new, held, now_ms)
        for gap in unit.gaps:
            if gap.is_last:
                yield CopiedLog(gap.log, gap.difference.missing_bytes)


def is_same(difference: LogDifference, row: LogState | None) -> bool:
    """Whether a copy has all of a log, and its ledger row says the same."""
    return not difference.gaps and row is not None and row_of(difference.source, row.updated_ms) == row


def row_of(source: LogToCopy, now_ms: int, end_offset: int | None = None) -> LogState:
    """Return the ledger row of a log's copy.

    Args:
        end_offset: how far it has come; None for all.
    """
    state = source.state
    end = state.log_end_offset if end_offset is None else end_offset
    return replace(
        state,
        log_dir=LOG_DIR,
        log_end_offset=end,
        recovery_point=end,
        active_base_offset=state.log_start_offset,
        active_size_bytes=0,
        updated_ms=now_ms,
        cleaner_limit_offset=-1,
        intent="",
        owes="",
        first_unstable_offset=state.first_unstable_offset if end_offset is None else -1,
    )


def _units(differences: Sequence[LogDifference]) -> Iterator[_Unit]:
    """Yield what is committed together: many small logs, or a part of a large one.

    Only what lies above all extents comes in several commits: the log has no hole between them.
    """
    unit = _Unit()
    for difference in differences:
        gaps: list[tuple[tuple[LogPart, ...], tuple[Extent, ...]]] = []
        for parts, old in difference.gaps:
            is_tail = not old and (not difference.held or parts[0].start_offset >= difference.held[-1].end_offset)
            gaps += [((part,), ()) for part in parts] if is_tail else [(parts, old)]
        for number, (parts, old) in enumerate(gaps or [((), ())]):
            gap = _Gap(difference, parts, old, is_last=number == max(len(gaps) - 1, 0))
            if unit.gaps and unit.size_bytes + gap.size_bytes > PART_BYTES:
                yield unit
                unit = _Unit()
            unit.gaps.append(gap)
            unit.size_bytes += gap.size_bytes
    if unit.gaps:
        yield unit


def _objects(gaps: Sequence[_Gap]) -> Iterator[list[tuple[_Gap, LogPart]]]:
    """Yield the parts of each object of a unit."""
    parts: list[tuple[_Gap, LogPart]] = []
    size_bytes = 0
    for gap in gaps:
        for part in gap.parts:
            if parts and size_bytes + part.size_bytes > PART_BYTES:
                yield parts
                parts, size_bytes = [], 0
            parts.append((gap, part))
            size_bytes += part.size_bytes
    if parts:
        yield parts


def _write(
    ledger: ObjectLedger, parts: Sequence[tuple[_Gap, LogPart]]
) -> tuple[list[tuple[_Gap, list[Extent]]], dict[TopicPartition, str]]:
    """Write an object of parts; return the extents of each, and why logs can't be read."""
    if not parts:
        return [], {}
    name = f"{MERGED}/{uuid.uuid4().hex}.batches"
    failed: dict[TopicPartition, str] = {}
    with ledger.place.open().writing(name) as writing:
        new = NewExtents(name, writing)
        for gap, part in parts:
            if gap.log in failed:
                continue
            try:
                _write_part(new, gap.difference.source, part)
            except _SourceError as error:
                failed[gap.log] = str(error)
            new.end_run()
        found = new.finish()
    written: list[tuple[_Gap, list[Extent]]] = []
    for gap, part in parts:
        if gap.log not in failed:
            mine = [each for each in found[gap.log] if part.start_offset <= each.base_offset < part.end_offset]
            written.append((gap, mine))
    return written, failed


def _write_part(new: NewExtents, source: LogToCopy, part: LogPart) -> None:
    """Append a part's batches to an object.

    Raises:
        _SourceError: the log can't be read, or has changed since it was compared.
    """
    log, reached = source.state.log, part.start_offset
    batches = read_part(source, part.start_offset, part.end_offset)
    while True:
        try:
            each = next(batches, None)
        except LogStorageError as error:
            raise _SourceError(str(error)) from error
        if each is None:
            break
        scan = each.scan
        if scan.base_offset[0] < reached or scan.last_offset[-1] >= part.end_offset:
            raise _SourceError(f"the log has changed meanwhile, copy it again: log={log}")
        if each.begins_segment:
            new.end_run()  # retention removes whole segments: then whole extents go
        new.add(log, each.data, scan, scan.base_offset, scan.leader_epoch)
        reached = int(scan.last_offset[-1]) + 1
    if reached != part.end_offset:
        raise _SourceError(f"the log has changed meanwhile, copy it again: log={log}")


def _commit(
    ledger: ObjectLedger,
    gaps: Sequence[_Gap],
    new: Mapping[_Gap, Sequence[Extent]],
    held: Mapping[TopicPartition, tuple[Extent, ...]],
    now_ms: int,
) -> dict[TopicPartition, tuple[Extent, ...]]:
    """Commit extents, and rows of logs as far as they have come; return the logs' extents."""
    sources = {gap.log: gap.difference.source for gap in gaps}
    complete = {gap.log for gap in gaps if gap.is_last}
    after: dict[TopicPartition, tuple[Extent, ...]] = {}

    def still_lost(lost: list[LostRange]) -> list[LostRange]:
        """Return those of other logs: what a complete copy lacks, its store lacks as well."""
        return [each for each in lost if TopicPartition(each.topic, each.partition) not in complete]

    def change(rows: LedgerRows, extents: dict[TopicPartition, list[Extent]]) -> LedgerRows:
        for log in sources:
            if tuple(extents.get(log, ())) != held[log]:
                raise StorageError(
                    f"another run has changed the copy meanwhile, copy again: log={log} address={ledger.place.address}"
                )
        for gap in gaps:
            replace_extents(extents, Replacement(gap.log, gap.old, tuple(new.get(gap, ()))))
        after.update({log: tuple(extents.get(log, ())) for log in sources})
        states = {
            log: row_of(source, now_ms, None if log in complete else _end_of(after[log], source))
            for log, source in sources.items()
        }
        return _with_states(rows, states)

    ledger.rewrite(change, now_ms, lost=still_lost)
    return after


def _end_of(extents: Sequence[Extent], source: LogToCopy) -> int:
    return extents[-1].end_offset if extents else source.state.log_start_offset


def _with_states(rows: LedgerRows, states: Mapping[TopicPartition, LogState]) -> LedgerRows:
    """Return rows with these, in the place of those before or as new ones."""
    known = [log for log in states if log in rows.number_of]
    numbers = np.array([rows.number_of[log] for log in known], np.int64)
    values = {name: np.array([getattr(states[log], name) for log in known], np.int64) for name in rows.integers}
    changed = rows.with_values(numbers, values)
    added = [state for log, state in states.items() if log not in rows.number_of]
    return changed.with_added(added) if added else changed
