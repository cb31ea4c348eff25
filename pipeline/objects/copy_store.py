"""The verb `copy`: compares a store of a machine with its copy at an address, and with `--execute` completes that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sparklog.pipeline.places.placed_logs import place_logs
from sparklog.pipeline.report import DONE, FAILED, show
from sparklog.pipeline.stop_request import StopRequest
from sparklog.pipeline.terminal import say, say_at_once
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.objects.copying.compare_log import LogDifference, LogToCopy, compare_log
from sparklog.sink.objects.copying.copy_logs import CopiedLog, copy_logs, is_same
from sparklog.sink.objects.extents import Extent
from sparklog.sink.objects.ledger_files import changed_settings
from sparklog.sink.objects.maintaining.searched_objects import expect_keys_again
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.sink.objects.repair_objects import object_sizes
from sparklog.sink.opening.clean_end import find_surplus
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import read_topic_configs
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import (
    InvalidConfigError,
    LedgerDamagedError,
    LogStorageError,
    UnknownTopicError,
)
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.quantity_text import size_text
from sparklog.storage_core.topic_partition import TopicPartition
from sparklog.storage_core.topic_pattern import is_named

__all__ = ["run"]


@dataclass(frozen=True, slots=True)
class _Copy:
    """A planned or finished copy.

    Attributes:
        has_settings: whether settings of topics differ.
        done: logs that were copied, or failed; None for a plan.
    """

    source: Path
    target: StoragePlace
    differences: Sequence[LogDifference]
    failed: Mapping[TopicPartition, str]
    has_settings: bool
    done: Sequence[CopiedLog] | None
    is_stopped: bool = False

    def lines(self) -> Iterator[str]:
        """Return the logs that differ, and those that failed."""
        for each in self.differences if self.done is None else ():
            yield f"{each.source.state.log}: {size_text(each.missing_bytes)}, {size_text(each.kept_bytes)} stay"
        yield from (f"{log}: failed: {error}" for log, error in self._failed().items())

    def verdict(self) -> str:
        """Return the line for people."""
        failed = f"; {len(self._failed()):,} failed" if self._failed() else ""
        if self.done is None and self.is_stopped:
            return f"stopped: not all logs were compared{failed}"
        if self.done is None:
            size = size_text(sum(each.missing_bytes for each in self.differences))
            if not self.differences and not self.has_settings:
                return f"planned: nothing{failed}" if failed else "planned: nothing: the copy is complete"
            what = f"{len(self.differences):,} logs, {size}" + (", settings of topics" if self.has_settings else "")
            return f"planned: {what}{failed}; --execute does it"
        copied = [each for each in self.done if each.error is None]
        what = f"{len(copied):,} logs, {size_text(sum(each.size_bytes for each in copied))}"
        begun = "stopped" if self.is_stopped else "copied"
        return f"{begun}: {what}, from {self.source} to {self.target.address}{failed}"

    def as_dict(self) -> dict[str, Any]:
        """Return the copy for JSON."""
        return {
            "executed": self.done is not None,
            "store": str(self.source),
            "address": str(self.target.address),
            "logs": [
                {
                    "log": str(each.source.state.log),
                    "log_start_offset": each.source.state.log_start_offset,
                    "log_end_offset": each.source.state.log_end_offset,
                    "missing_bytes": each.missing_bytes,
                    "kept_bytes": each.kept_bytes,
                }
                for each in self.differences
            ],
            "copied": None if self.done is None else [str(each.log) for each in self.done if each.error is None],
            "failed": [{"log": str(log), "error": error} for log, error in self._failed().items()],
        }

    def code(self) -> int:
        """Return the exit code."""
        return FAILED if self._failed() or self.is_stopped else DONE

    def _failed(self) -> dict[TopicPartition, str]:
        return {**self.failed, **{each.log: each.error for each in self.done or () if each.error is not None}}


def run(store: Path, target: StoragePlace, topics: str | None, execute: bool, as_json: bool) -> int:
    """Carry the verb out; return the exit code."""
    if target.address.scheme == "file" and Path(f"/{target.address.path}").resolve().is_relative_to(store.resolve()):
        raise InvalidConfigError(f"a copy can't lie in its store: store={store} address={target.address}")
    found = Store.find(store)
    sources, failed = _sources(found, topics)
    ledger = ObjectLedger.find(target)
    states = {} if ledger is None else ledger.states()
    _check_topics(sources, states, target)
    names = {each.state.topic for each in sources}
    configs = {topic: config for topic, config in read_topic_configs(found).items() if topic in names}
    has_settings = changed_settings({} if ledger is None else ledger.settings(), configs) is not None
    with StopRequest(say_at_once, "log") as stop:
        differences = _compare(sources, ledger, failed, stop)
        differences = [each for each in differences if not is_same(each, states.get(each.source.state.log))]
        plan = _Copy(store, target, differences, failed, has_settings, None, stop.requested)
        report = _execute(plan, found, sources, configs, ledger, stop) if execute and not stop.requested else plan
    show(report, as_json=as_json)
    return report.code()


def _sources(store: Store, topics: str | None) -> tuple[list[LogToCopy], dict[TopicPartition, str]]:
    """Return the logs of a store, as its ledger has committed them, and why others can't be read.

    Raises:
        UnknownTopicError: no topic has such a name.
        LedgerDamagedError: the ledger can't be trusted.
    """
    ledger = Ledger.open(store.ledger_path)
    states = {log: state for log, state in ledger.states().items() if topics is None or is_named(log.topic, topics)}
    if topics is not None and not states:
        known = ", ".join(sorted({log.topic for log in ledger.states()})) or "none"
        raise UnknownTopicError(f"no topic has such a name: topics={topics} known={known} store={store.root}")
    surplus = find_surplus(store, ledger.states(), ledger.version)
    if surplus is not None:
        raise LedgerDamagedError(surplus)
    placed = place_logs(store, states, ledger)
    offline = {
        log: f"log directory is offline: log_dir={placed.directories[log].parent} reason={reason}"
        for log, reason in placed.offline.items()
    }
    return [LogToCopy(placed.directories[log], states[log]) for log in sorted(states.keys() - offline)], offline


def _problems_now(store: Store, sources: Sequence[LogToCopy]) -> dict[TopicPartition, str]:
    """Return the logs that a compaction, a truncation or a deletion has changed below the copied end meanwhile."""
    now, found = Ledger.open(store.ledger_path).states(), dict[TopicPartition, str]()
    for each in sources:
        state, later = each.state, now.get(each.state.log)
        if (
            later is None
            or later.topic_id != state.topic_id
            or later.log_end_offset < state.log_end_offset
            or later.cleaner_limit_offset != state.cleaner_limit_offset
            or later.compacted_offset > state.log_end_offset
        ):
            found[state.log] = f"the log has changed meanwhile, copy it again: log={state.log}"
    return found


def _check_topics(sources: Sequence[LogToCopy], states: Mapping[TopicPartition, Any], target: StoragePlace) -> None:
    """Refuse to copy over logs of others.

    Raises:
        InvalidConfigError: with every log that is another one, or ends above its source.
    """
    ids = {log.topic: state.topic_id for log, state in states.items()}
    problems = {
        f"another topic of this name is there: topic={each.state.topic} topic_id={ids[each.state.topic]}"
        f" in the store={each.state.topic_id} address={target.address}"
        for each in sources
        if ids.get(each.state.topic, each.state.topic_id) != each.state.topic_id
    }
    problems |= {
        f"the copy ends above its store: log={each.state.log} log_end_offset={states[each.state.log].log_end_offset}"
        f" in the store={each.state.log_end_offset} address={target.address}; copy to another address"
        for each in sources
        if each.state.log in states and states[each.state.log].log_end_offset > each.state.log_end_offset
    }
    if problems:
        raise InvalidConfigError(*sorted(problems))


def _compare(
    sources: Sequence[LogToCopy], ledger: ObjectLedger | None, failed: dict[TopicPartition, str], stop: StopRequest
) -> list[LogDifference]:
    """Return the differences of logs that can be read; add the others to those that failed."""
    extents = {} if ledger is None else ledger.extents()
    sizes = {} if ledger is None else object_sizes(ledger.place.open())

    def is_there(each: Extent) -> bool:
        return sizes.get(each.object, -1) >= each.position + each.size_bytes

    found = list[LogDifference]()
    for source in sources:
        if stop.requested:
            break
        try:
            found.append(compare_log(source, extents.get(source.state.log, ()), is_there))
        except LogStorageError as error:
            failed[source.state.log] = str(error)
    return found


def _execute(
    plan: _Copy,
    store: Store,
    sources: Sequence[LogToCopy],
    configs: Mapping[str, LogConfig],
    ledger: ObjectLedger | None,
    stop: StopRequest,
) -> _Copy:
    """Record the topics' settings, then copy; forgotten keys may come back, so maintenance searches the logs again.

    Raises:
        LogStorageError: as `copy_logs`.
    """
    ledger = ledger or ObjectLedger.create(plan.target)
    ledger.begin_writing()  # nobody else keeps the ledger of a copy small
    if plan.has_settings:
        ledger.change(lambda rows: rows, settings=lambda: changed_settings(ledger.settings(), configs))
    ids = {each.state.log: each.state.topic_id for each in sources}  # of all: an earlier copy may have been killed
    expect_keys_again(ledger, ids)
    done, now_ms = list[CopiedLog](), SystemClock().now_ms()
    problem_of = partial(_problems_now, store)
    try:
        for each in copy_logs(ledger, plan.differences, now_ms, lambda: stop.requested, problem_of):
            done.append(each)
            if each.error is None:
                say(f"{each.log}: {size_text(each.size_bytes)}", err=True)
    finally:
        expect_keys_again(ledger, ids)  # a maintenance run may have searched the logs meanwhile
    return replace(plan, done=done, is_stopped=stop.requested and len(done) < len(plan.differences))
