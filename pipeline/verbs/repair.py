"""The verb `repair`: plans the repair of damage that `verify` finds, and with `--execute` repairs it.

Each round checks every log, plans, and carries the plan out, until a check finds nothing to do. So the next repair
completes one that crashed. A repair holds both locks of a store, or the broker's own lock of a broker's folder.

Order of a round in a store: record lost offsets, replace files, correct the ledger, write the files of roots. The steps
before the first and after the last round are in `sink/operations/repair_store.py`. A log's committed end never falls.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparklog.pipeline.checks.verify_logs import VerifyResult, verify
from sparklog.pipeline.control.leases import refuse_leased
from sparklog.pipeline.places.lost_view import cut_folder, cut_folder_of_store, lost_store
from sparklog.pipeline.places.refuse_store import refuse_store
from sparklog.pipeline.places.store_view import LogView, StoreView, open_logs
from sparklog.pipeline.places.stored_logs import Place
from sparklog.pipeline.report import DONE, FAILED, show, to_json
from sparklog.pipeline.terminal import say
from sparklog.sink.ledger.lost_ranges import LostRange
from sparklog.sink.locks.broker_lock import lock_roots
from sparklog.sink.operations.repair_store import MendedStore, repair_store
from sparklog.storage_core.clock import Clock, SystemClock
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.inspect.repair.plan import LogRepair, RepairStep, plan_repair
from sparklog.storage_core.inspect.repair.repair_log import RepairPlace, drop_leftovers, repair_log
from sparklog.storage_core.inspect.verify.findings import HARMLESS_KINDS, Finding, LogReport
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.owned_names import UNSHARED, Owner

__all__ = ["RepairOptions", "RepairResult", "execute_repair", "plan_repairs", "run"]

_WRITTEN_ROOT_RULES = ("offset-checkpoint", "meta-properties")
_ROOT_RULES = (*_WRITTEN_ROOT_RULES, "root-entry")
_ROUNDS = 5
"""A round may uncover damage for the next one: after finished replacements, or where a log now ends earlier."""
_CUT_BACK = "truncated to the committed end"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOptions:
    """Options of a repair.

    Attributes:
        keep_in: folder for bytes dropped from a plain folder's logs; None for the default.
        index_interval_bytes: Kafka's `index.interval.bytes`, for rebuilt indexes.
        jobs: threads that check; one a core if None.
    """

    keep_in: Path | None = None
    index_interval_bytes: int = 4096
    jobs: int | None = None


@dataclass(slots=True)
class RepairResult:
    """Planned or finished steps of a repair.

    Attributes:
        steps: changes, in order.
        left: findings that a repair can't mend.
        is_sound: whether the last check found no damage.
        kept_in: folder of the dropped bytes.
        is_executed: whether the steps were done.
    """

    kept_in: Path
    steps: list[RepairStep] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)
    is_sound: bool = False
    is_executed: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the summary, for JSON."""
        left = [each.as_dict() for each in self.left]
        return {"sound": self.is_sound, "steps": len(self.steps), "kept_in": str(self.kept_in), "left": left}

    def lines(self) -> list[str]:
        """Return the findings that are not repaired, for people."""
        return [f"not repaired: {each} -> {each.remedy}" for each in self.left]

    def verdict(self) -> str:
        """Return the last line for people."""
        if self.is_executed:
            kept = f", dropped bytes are kept in {self.kept_in}" if self.steps and self.kept_in.exists() else ""
            return f"{'sound' if self.is_sound else 'NOT sound'}: {len(self.steps)} steps done{kept}"
        if self.steps:
            return f"{len(self.steps)} steps planned; --execute does them"
        return "nothing to repair" if self.is_sound else "NOT sound, and nothing can be repaired"


@dataclass(slots=True)
class _Round:
    """One check and its plan."""

    view: StoreView
    result: VerifyResult
    repairs: list[LogRepair]
    root_steps: list[RepairStep]

    @property
    def steps(self) -> list[RepairStep]:
        return [*(step for each in self.repairs for step in each.steps()), *self.root_steps]

    @property
    def left(self) -> list[Finding]:
        """Findings without a repair, of logs and of their roots."""
        planned = {(step.log, step.file) for step in self.root_steps}
        of_roots = [
            each
            for each in self.result.findings
            if each.rule in _ROOT_RULES and each.kind not in HARMLESS_KINDS and (each.log, each.file) not in planned
        ]
        return [*(finding for each in self.repairs for finding in each.left), *of_roots]

    def logs(self) -> Iterator[tuple[LogView, LogReport, LogRepair]]:
        yield from zip(self.view.logs, self.result.logs, self.repairs, strict=True)


def run(
    store: Place, execute: bool, index_interval_bytes: int, jobs: int | None, keep_in: Path | None, as_json: bool
) -> int:
    """Carry the verb out; return the exit code."""
    if isinstance(store, StoragePlace):
        from sparklog.pipeline.objects.repair_store import repair_objects

        if keep_in is not None:
            raise InvalidConfigError(f"--keep-cut-in: not for a store of objects: address={store.address}")
        return repair_objects(store, execute=execute, as_json=as_json)

    def report(step: RepairStep) -> None:
        line = to_json({"log": step.log, "file": step.file, "step": step.what})
        say(line if as_json else f"{step.log}/{step.file}: {step.what}")

    options = RepairOptions(keep_in=keep_in, index_interval_bytes=index_interval_bytes, jobs=jobs)
    if execute:
        result = execute_repair(store, options, SystemClock(), report)
    else:
        result = plan_repairs(store, options)
        for step in result.steps:
            report(step)
    show(result, as_json=as_json)
    return DONE if result.is_sound and (execute or not result.steps) else FAILED


def plan_repairs(root: Path, options: RepairOptions) -> RepairResult:
    """Return the first round of `execute_repair`; changes nothing.

    Raises:
        InvalidConfigError: the folder is part of a store.
    """
    view = open_logs(root)
    if view.ledger_version is None:
        refuse_store(_folders(view))
    planned = _check(view, options)
    cuts = [] if view.surplus is None else [RepairStep(root.absolute().name, "logs", "keep and drop the bytes above")]
    result = RepairResult(cut_folder(view, options.keep_in), [*planned.steps, *cuts], planned.left)
    result.is_sound = planned.result.is_sound
    return result


def execute_repair(
    root: Path, options: RepairOptions, clock: Clock, report: Callable[[RepairStep], None]
) -> RepairResult:
    """Repair a place until a check finds nothing that can be repaired.

    Args:
        root: a store, a folder of log directories, or one log.
        clock: for the time of lost ranges.
        report: gets each step after it is done.

    Raises:
        InvalidConfigError: the folder is part of a store.
        StoreLockedError: a writer, a maintenance run or a broker holds the place, or a Spark task of a dead
            maintenance run still cleans a log.
        StorageError: the disk refused; steps done until then stay done.
    """
    if (root / "store.properties").exists():
        return _execute_in_store(root, options, clock, report)
    refuse_store(_folders(open_logs(root)))
    with lock_roots(_folders(open_logs(root))):
        result = RepairResult(cut_folder(open_logs(root), options.keep_in), is_executed=True)
        for now in _rounds(root, options, result, report):
            _repair_logs(now, options, clock, UNSHARED)
        return result


def _execute_in_store(
    root: Path, options: RepairOptions, clock: Clock, report: Callable[[RepairStep], None]
) -> RepairResult:
    refuse_leased(root, clock)
    result = RepairResult(cut_folder_of_store(root), is_executed=True)

    def mend(store: MendedStore) -> bool:
        for now in _rounds(root, options, result, report):
            _repair_logs(now, options, clock, store.lock)
            store.correct_ledger([(each.log, repair) for each, _, repair in now.logs()], clock.now_ms())
            store.write_roots([(step.log, step.file) for step in now.root_steps])
        return bool(result.left)

    cut = repair_store(root, result.kept_in, mend)
    _note([RepairStep(str(log), log.directory_name, _CUT_BACK) for log in cut], result, report)
    return result


def _rounds(
    root: Path, options: RepairOptions, result: RepairResult, report: Callable[[RepairStep], None]
) -> Iterator[_Round]:
    """Check, and yield each round that has steps; report them after they are done."""
    for _ in range(_ROUNDS):
        now = _check(open_logs(root), options)
        _judge(now, result)
        if not now.steps:
            break
        yield now
        _note(now.steps, result, report)


def _repair_logs(now: _Round, options: RepairOptions, clock: Clock, owner: Owner) -> None:
    _write_down_lost(now, options, clock)
    for each, log_report, repair in now.logs():
        _repair_one(repair, log_report, _place(now.view, each, log_report, options, owner))


def _check(view: StoreView, options: RepairOptions) -> _Round:
    result = verify(view, lambda _finding: None, jobs=options.jobs, keep_in=options.keep_in)
    repairs = [
        plan_repair(log_report, each.expected, _sizes(log_report))
        for each, log_report in zip(view.logs, result.logs, strict=True)
    ]
    return _Round(view, result, repairs, _root_steps(view, result))


def _root_steps(view: StoreView, result: VerifyResult) -> list[RepairStep]:
    """In a store the files of a root are rewritten from the ledger; elsewhere they belong to a broker."""
    if view.ledger_version is None:
        return []
    findings = [each for each in result.findings if each.rule in _WRITTEN_ROOT_RULES]
    return [RepairStep(*place, "write it anew") for place in sorted({(each.log, each.file) for each in findings})]


def _sizes(report: LogReport) -> dict[str, int]:
    """Return the sizes of a log's files; none for an unreadable log."""
    if not report.directory.is_dir() or any(each.rule == "unreadable" for each in report.findings):
        return {}
    with storage_errors(report.directory), os.scandir(report.directory) as entries:
        return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}


def _place(view: StoreView, each: LogView, report: LogReport, options: RepairOptions, owner: Owner) -> RepairPlace:
    expected = each.expected
    return RepairPlace(
        directory=each.directory,
        keep_in=cut_folder(view, options.keep_in),
        index_interval_bytes=options.index_interval_bytes,
        leader_epoch=report.epochs[-1][0] if report.epochs else expected.leader_epoch if expected else 0,
        committed=(expected.active_base_offset, expected.active_size_bytes) if expected else None,
        owner=owner,
    )


def _repair_one(repair: LogRepair, report: LogReport, place: RepairPlace) -> None:
    """Carry out one log's plan; damage that an unfinished replacement hides is left to the next round."""
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


def _judge(now: _Round, result: RepairResult) -> None:
    """Take the check's result; a log that a repair had to empty is sound."""
    result.left = now.left
    result.is_sound = now.result.is_clean if result.steps else now.result.is_sound


def _note(steps: Sequence[RepairStep], result: RepairResult, report: Callable[[RepairStep], None]) -> None:
    for step in steps:
        result.steps.append(step)
        report(step)


def _folders(view: StoreView) -> list[Path]:
    """Return the folders that may be, or lie in, a broker's roots: the place itself, and the parent of each log."""
    return [view.root, *(each.directory.absolute().parent for each in view.logs)]
