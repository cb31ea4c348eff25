"""The verb `repair`: plans by default, changes with `--execute` only.

A round checks every log, plans, and carries the plan out; the next round sees what is left, until nothing is. So a
repair that died half way is completed by the next one. A store is repaired under both of its locks, a broker's folder
under the broker's own.

In a store the order is: bytes above committed ends kept that no crash left, lost offsets written down, files replaced,
ledger corrected, uncommitted bytes cut back. The committed end of a log never goes back.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sparklog.pipeline.control.leases import refuse_leased
from sparklog.pipeline.places.lost_view import cut_folder, lost_store, lost_table
from sparklog.pipeline.places.refuse_store import refuse_store
from sparklog.pipeline.places.store_view import LogView, StoreView, open_logs
from sparklog.pipeline.verbs.verify import VerifyResult, verify
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.lost_ranges import LostRange
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.locks.broker_lock import broker_locked_out
from sparklog.sink.locks.signed_off_version import sign_off_version
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.opening.access import both_locks
from sparklog.sink.opening.clean_end import surplus_files
from sparklog.sink.opening.finish_pending import finish_pending
from sparklog.sink.opening.finish_truncation import finish_truncations
from sparklog.sink.opening.open_log_dirs import LogDirs, take_roots
from sparklog.sink.opening.undo import renew
from sparklog.sink.opening.unflushed import flush_logs
from sparklog.sink.store.derived_files import DerivedFiles
from sparklog.sink.store.log_dirs import find_unreadable
from sparklog.sink.store.set_aside import remove_deleted
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.cleaner.hold_log import wait_for_tasks
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import StorageError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.inspect.repair.plan import LogRepair, RepairStep, plan_repair
from sparklog.storage_core.inspect.repair.repair_log import RepairPlace, drop_leftovers, keep_bytes, repair_log
from sparklog.storage_core.inspect.verify.findings import HARMLESS_KINDS, Finding, LogReport
from sparklog.storage_core.inspect.verify.verify_root import META_FILE
from sparklog.storage_core.log.append.cut_back import cut_back, has_leftovers, needs_cut_back
from sparklog.storage_core.log.append.state import CommittedEnd
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.owned_names import UNSHARED, Owner, remove_file
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["RepairOptions", "RepairResult", "execute_repair", "plan_repairs", "verdict"]

_WRITTEN_ROOT_RULES = ("offset-checkpoint", "meta-properties")
_ROOT_RULES = (*_WRITTEN_ROOT_RULES, "root-entry")
_ROUNDS = 5
"""A round may uncover the next one's work: behind finished replacements, or where a log ends earlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOptions:
    """What a repair is told.

    Attributes:
        keep_in: folder for what is cut off a plain folder's logs; None for the default.
        index_interval_bytes: Kafka's `index.interval.bytes`, for indexes that are built anew.
        jobs: threads that check; as many as there are cores if None.
    """

    keep_in: Path | None = None
    index_interval_bytes: int = 4096
    jobs: int | None = None


@dataclass(slots=True)
class RepairResult:
    """What a repair plans, or did.

    Attributes:
        steps: changes, in order.
        left: findings that no repair does anything about.
        is_sound: whether the place is, as it is now.
        kept_in: folder of what was cut off.
    """

    kept_in: Path
    steps: list[RepairStep] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)
    is_sound: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the summary, for JSON."""
        left = [each.as_dict() for each in self.left]
        return {"sound": self.is_sound, "steps": len(self.steps), "kept_in": str(self.kept_in), "left": left}


@dataclass(slots=True)
class _Round:
    """One check and what follows from it."""

    view: StoreView
    result: VerifyResult
    repairs: list[LogRepair]
    root_steps: list[RepairStep]

    @property
    def steps(self) -> list[RepairStep]:
        return [*(step for each in self.repairs for step in each.steps()), *self.root_steps]

    @property
    def left(self) -> list[Finding]:
        """What nothing is done about, of logs and of the roots that they lie in."""
        planned = {(step.log, step.file) for step in self.root_steps}
        of_roots = [
            each
            for each in self.result.findings
            if each.rule in _ROOT_RULES and each.kind not in HARMLESS_KINDS and (each.log, each.file) not in planned
        ]
        return [*(finding for each in self.repairs for finding in each.left), *of_roots]

    def logs(self) -> Iterator[tuple[LogView, LogReport, LogRepair]]:
        yield from zip(self.view.logs, self.result.logs, self.repairs, strict=True)


def verdict(result: RepairResult, *, is_executed: bool) -> list[str]:
    """Return the last lines for people."""
    lines = [f"not repaired: {each} -> {each.remedy}" for each in result.left]
    if is_executed:
        state = "sound" if result.is_sound else "NOT sound"
        kept = f", what was cut off is in {result.kept_in}" if result.steps and result.kept_in.exists() else ""
        lines.append(f"{state}: {len(result.steps)} steps done{kept}")
    elif result.steps:
        lines.append(f"{len(result.steps)} steps planned; --execute does them")
    else:
        lines.append("nothing to repair" if result.is_sound else "NOT sound, and nothing that can be repaired")
    return lines


def plan_repairs(root: Path, options: RepairOptions) -> RepairResult:
    """Return what `execute_repair` would do first; nothing is changed.

    Raises:
        InvalidConfigError: the folder is part of a store.
    """
    view = open_logs(root)
    if view.ledger_version is None:
        refuse_store(_folders(view))
    planned = _check(view, options)
    cuts = [] if view.surplus is None else [RepairStep(root.absolute().name, "logs", "keep and cut off what is above")]
    result = RepairResult(cut_folder(view, options.keep_in), [*planned.steps, *cuts], planned.left)
    result.is_sound = planned.result.is_sound
    return result


def execute_repair(
    root: Path, options: RepairOptions, clock: Clock, report: Callable[[RepairStep], None]
) -> RepairResult:
    """Repair a place until a check finds nothing that can be repaired.

    Args:
        root: a store, a folder of log directories, or one log.
        options: of the repair.
        clock: says when offsets were found to be lost.
        report: gets each step once it is done.

    Raises:
        InvalidConfigError: the folder is part of a store.
        StoreLockedError: a writer, a maintenance or a broker holds the place, or a task of a dead maintenance run is
            still at work on a log.
        StorageError: the disk refused; what was done is done.
    """
    if (root / "store.properties").exists():
        return _execute_in_store(root, options, clock, report)
    refuse_store(_folders(open_logs(root)))
    with broker_locked_out(_folders(open_logs(root))):
        result = RepairResult(cut_folder(open_logs(root), options.keep_in))
        for _ in range(_ROUNDS):
            now = _check(open_logs(root), options)
            _judge(now, result)
            if not now.steps:
                break
            _write_down_lost(now, options, clock)
            for each, log_report, repair in now.logs():
                _repair_one(repair, log_report, _place(now.view, each, options, UNSHARED))
            _note(now.steps, result, report)
        return result


def _execute_in_store(
    root: Path, options: RepairOptions, clock: Clock, report: Callable[[RepairStep], None]
) -> RepairResult:
    refuse_leased(root, clock)
    with both_locks(root) as (lock, maintenance):
        store = Store.find(root)
        follows_crash = lock.follows_crash or maintenance.follows_crash
        ledger = Ledger.open_for_writing(store.ledger_path, lock, follows_crash=follows_crash)
        states = ledger.states()
        offline = dict(find_unreadable(store, states.values()))
        take_roots(store, states.values(), lock, "renew" if lock.owes_renewal else "look", offline)
        online = {log: state for log, state in states.items() if state.log_dir not in offline}
        for state in online.values():
            with contextlib.suppress(StorageError):  # nor is it repaired
                wait_for_tasks([store.log_path(state)])
        result = RepairResult(cut_folder(open_logs(root)))
        if not lock.follows_crash:
            _keep_surplus(store, online, result.kept_in)
        for held in (lock, maintenance):
            held.begin()
        if lock.owes_renewal:
            ledger.fence()
        lost_table(root).drop_torn(lock)
        remove_deleted(finish_pending(store, ledger, lock))
        for _ in range(_ROUNDS):
            now = _check(open_logs(root), options)
            _judge(now, result)
            if not now.steps:
                break
            _write_down_lost(now, options, clock)
            for each, log_report, repair in now.logs():
                _repair_one(repair, log_report, _place(now.view, each, options, lock))
            _correct_ledger(ledger, now, clock)
            _repair_roots(store, ledger, now, lock)
            _note(now.steps, result, report)
        untouched = {each.log for each in result.left if each.kind == "missing" or each.rule == "unreadable"}
        for step in _cut_back(store, ledger, lock, untouched):
            result.steps.append(step)
            report(step)
        if lock.owes_renewal and not untouched:
            renew(LogDirs(store, lock, {}, {}), ledger.states(), lock)
        if not untouched:
            finish_truncations(store, ledger, lock, ())
            flush_logs(ledger, store.log_path, lock)
            sign_off_version(store.ledger_path, lock, ledger.version)
            maintenance.sign_off()
            lock.sign_off()
        return result


def _check(view: StoreView, options: RepairOptions) -> _Round:
    result = verify(view, lambda _finding: None, jobs=options.jobs, keep_in=options.keep_in)
    repairs = [
        plan_repair(log_report, each.expected, _sizes(log_report))
        for each, log_report in zip(view.logs, result.logs, strict=True)
    ]
    return _Round(view, result, repairs, _root_steps(view, result))


def _root_steps(view: StoreView, result: VerifyResult) -> list[RepairStep]:
    """In a store the files of a root are written from the ledger; elsewhere they are a broker's."""
    if view.ledger_version is None:
        return []
    findings = [each for each in result.findings if each.rule in _WRITTEN_ROOT_RULES]
    return [RepairStep(*place, "write it anew") for place in sorted({(each.log, each.file) for each in findings})]


def _sizes(report: LogReport) -> dict[str, int]:
    """Return the sizes of a log's files; of a log that can't be read none are needed."""
    if not report.directory.is_dir() or any(each.rule == "unreadable" for each in report.findings):
        return {}
    with storage_errors(report.directory), os.scandir(report.directory) as entries:
        return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}


def _place(view: StoreView, each: LogView, options: RepairOptions, owner: Owner) -> RepairPlace:
    expected = each.expected
    return RepairPlace(
        directory=each.directory,
        keep_in=cut_folder(view, options.keep_in),
        index_interval_bytes=options.index_interval_bytes,
        leader_epoch=expected.leader_epoch if expected else 0,
        committed=(expected.active_base_offset, expected.active_size_bytes) if expected else None,
        owner=owner,
    )


def _repair_one(repair: LogRepair, report: LogReport, place: RepairPlace) -> None:
    """Carry out one log's plan; what stands behind an unfinished replacement is for the next round."""
    if repair.has_swaps or repair.leftovers:
        drop_leftovers(repair, place)
    if not repair.has_swaps:
        repair_log(repair, report, place)


def _write_down_lost(now: _Round, options: RepairOptions, clock: Clock) -> None:
    found_ms = clock.now_ms()
    ranges = [
        LostRange(
            topic=each.log.topic,
            partition=each.log.partition,
            first_offset=lost.first,
            last_offset=lost.last,
            file=lost.file,
            reason=lost.reason,
            found_ms=found_ms,
        )
        for each, _, repair in now.logs()
        for lost in ([] if repair.has_swaps else repair.lost)
    ]
    if ranges:
        lost_store(now.view, options.keep_in).add(ranges)
        reach("repair.recorded")


def _correct_ledger(ledger: Ledger, now: _Round, clock: Clock) -> None:
    """Commit the sizes and starts that the repaired files have."""
    changes: dict[int, tuple[int, int]] = {}
    for each, _, repair in now.logs():
        row = ledger.rows[each.log]
        state = ledger.state(row)
        size, start = state.active_size_bytes, state.log_start_offset
        if repair.checks_size:
            path = each.directory / segment_file_name(state.active_base_offset, LOG)
            with storage_errors(path):
                size = min(size, path.stat().st_size)
        if repair.log_start_offset is not None:
            start = repair.log_start_offset
        if (size, start) != (state.active_size_bytes, state.log_start_offset):
            changes[row] = (size, start)
    if not changes:
        return
    sizes, starts = zip(*changes.values(), strict=True)
    values = {
        "active_size_bytes": np.array(sizes, np.int64),
        "log_start_offset": np.array(starts, np.int64),
        "updated_ms": np.full(len(changes), clock.now_ms(), np.int64),
    }
    ledger.correct(np.array(list(changes), np.int64), values)
    reach("repair.committed")


def _repair_roots(store: Store, ledger: Ledger, now: _Round, lock: WriterLock) -> None:
    if not now.root_steps:
        return
    states = ledger.states().values()
    log_dirs = tuple(sorted({state.log_dir for state in states} - set(find_unreadable(store, states))))
    lock.check()
    for name in log_dirs:
        root = store.log_dir(name)
        if any((step.log, step.file) == (root.name, META_FILE) for step in now.root_steps):
            with storage_errors(root):
                remove_file(lock, root / META_FILE)
    store.prepare_log_dirs(log_dirs, lock)
    DerivedFiles(store, ledger, lock).write()


def _cut_back(store: Store, ledger: Ledger, lock: WriterLock, untouched: Set[str]) -> Iterator[RepairStep]:
    """Undo what was written but not committed, as a sink does when it starts: this one signs off behind it.

    Logs that can't be read, or of which committed bytes are gone, stay as they are.
    """
    for log, state in ledger.states().items():
        directory = store.log_path(state)
        if directory.name in untouched:
            continue
        end = CommittedEnd(state.active_base_offset, state.active_size_bytes, state.log_end_offset)
        if needs_cut_back(directory, end) or has_leftovers(directory, end):
            cut_back(directory, end, lock)
            yield RepairStep(str(log), directory.name, "cut back to the committed end")
    store.sweep_staging(lock)


def _keep_surplus(store: Store, states: Mapping[TopicPartition, LogState], kept_in: Path) -> None:
    """Keep what is going to be cut off, though no crash left it: it may be records of a newer ledger.

    Before the locks say that this repair has begun: behind that, whoever opens the store next cuts it off.
    """
    for log, state in states.items():
        found: list[tuple[Path, int, int]] = []
        with contextlib.suppress(StorageError):  # nor is it cut
            found = list(surplus_files(store, {log: state}))
        for path, start, end in found:
            keep_bytes(path, start, end, kept_in / path.parent.name / f"{path.name}.{start}-{end}")
            reach("repair.surplus")


def _judge(now: _Round, result: RepairResult) -> None:
    """Take over what a check says; a log of which a repair could save nothing is empty, and that is sound."""
    result.left = now.left
    result.is_sound = now.result.is_clean if result.steps else now.result.is_sound


def _note(steps: Sequence[RepairStep], result: RepairResult, report: Callable[[RepairStep], None]) -> None:
    for step in steps:
        result.steps.append(step)
        report(step)


def _folders(view: StoreView) -> list[Path]:
    """Return the folders that may be a broker's roots, or be in one: the place itself, and the one around each log."""
    return [view.root, *(each.directory.absolute().parent for each in view.logs)]
