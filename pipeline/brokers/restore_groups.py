"""The verb `restore-groups`: gives consumer groups of a running cluster the offsets that a mirror has of them."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from sparklog.pipeline.brokers.admin_jvm import admin_jvm
from sparklog.pipeline.brokers.client_properties import ClientProperties
from sparklog.pipeline.brokers.kafka_admin import KafkaAdmin
from sparklog.pipeline.report import DONE, FAILED, show
from sparklog.pipeline.terminal import say
from sparklog.sink.ledger.group_table import GroupTable
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.ledger.versions import AsOf
from sparklog.sink.mount.plan_groups import (
    GroupPlan,
    RefusedOffset,
    find_groups,
    misfit,
    newest_batches,
    plan_groups,
)
from sparklog.sink.past.past_state import PastState, find_past
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import InvalidConfigError, LogStorageError
from sparklog.storage_core.kraft.group_offsets import GroupOffset
from sparklog.storage_core.topic_partition import TopicPartition
from sparklog.storage_core.topic_pattern import matches

__all__ = ["ClusterLog", "TargetState", "judge_offsets", "run"]

_MOST_NAMED: Final = 20


@dataclass(frozen=True, slots=True)
class ClusterLog:
    """A log of the cluster; its topic id is empty where brokers have none."""

    topic_id: str
    log_start_offset: int
    log_end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetState:
    """What the cluster has.

    Attributes:
        logs: those of the wanted offsets' topics.
        committed: offsets that groups have there.
        active: groups with members.
    """

    logs: Mapping[TopicPartition, ClusterLog]
    committed: Mapping[tuple[str, str, int], int]
    active: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Restored:
    """A planned or finished restoration."""

    given: Sequence[GroupOffset]
    refused: Sequence[RefusedOffset]
    kept_count: int
    past: PastState | None
    executed: bool

    def lines(self) -> Iterator[str]:
        """Return a line per group, and what it does not get."""
        groups: dict[str, int] = {}
        for each in self.given:
            groups[each.group] = groups.get(each.group, 0) + 1
        yield from (f"{group}: {count:,} offsets" for group, count in groups.items())
        yield from (f"warning: not given to its group: {each}" for each in self.refused[:_MOST_NAMED])
        if self.refused[_MOST_NAMED:]:
            yield f"warning: and {len(self.refused) - _MOST_NAMED:,} more; --json lists all"

    def verdict(self) -> str:
        """Return the line for people."""
        counts = f"{len(self.given):,} offsets, {self.kept_count:,} are there, {len(self.refused):,} are not given"
        counts += "" if self.past is None else f", as of the {self.past}"
        return f"restored: {counts}" if self.executed else f"planned: {counts}; --execute does it"

    def as_dict(self) -> dict[str, Any]:
        """Return the restoration for JSON."""
        return {
            "executed": self.executed,
            **({} if self.past is None else {"as_of": str(self.past)}),
            "given": [[each.group, each.topic, each.partition, each.offset] for each in self.given],
            "kept": self.kept_count,
            "refused": [str(each) for each in self.refused],
        }


def run(
    store: Path,
    bootstrap_server: str | None,
    command_config: Path | None,
    groups: str | None,
    as_of: AsOf | None,
    as_csv: bool,
    execute: bool,
    as_json: bool,
) -> int:
    """Carry the verb out."""
    found = Store.find(store)
    past = None if as_of is None else find_past(found.ledger_path, as_of)
    ledger = Ledger.open(found.ledger_path)
    states = ledger.states() if past is None else _states_then(past, ledger.states())
    plan = plan_groups(found, find_groups(GroupTable(found.root), newest_batches(found, ledger, past)), states)
    if plan.gone:
        raise InvalidConfigError(plan.gone)
    plan = _named(plan, groups)
    if as_csv:
        say(*_csv_lines(plan.given))
        say(*(f"warning: not given to its group: {each}" for each in plan.refused), err=True)
        return DONE
    if bootstrap_server is None:
        raise InvalidConfigError("give --bootstrap-server, or --csv for a file that kafka-consumer-groups takes")
    ids = {state.topic: state.topic_id for state in states.values()}
    properties = ClientProperties.read(bootstrap_server, command_config)
    with admin_jvm() as jvm, closing(KafkaAdmin(jvm, properties)) as admin:
        given, refused, kept_count = judge_offsets(plan.given, ids, _look_at(admin, plan.given))
        refused = [*plan.refused, *refused]
        if execute:
            given, more = _give(given, admin.give_offsets)
            refused += more
    show(_Restored(given, refused, kept_count, past, execute), as_json=as_json)
    return FAILED if execute and refused else DONE


def judge_offsets(
    wanted: Sequence[GroupOffset], ids: Mapping[str, str], target: TargetState
) -> tuple[list[GroupOffset], list[RefusedOffset], int]:
    """Return what to give, what is refused, and the number of offsets that the cluster has already.

    Args:
        ids: of the store's topics.
    """
    given, refused, kept_count = [], [], 0
    for each in wanted:
        held = target.committed.get((each.group, each.topic, each.partition), -1)
        if reason := misfit(each, ids[each.topic], target.logs.get(TopicPartition(each.topic, each.partition))):
            refused.append(RefusedOffset(each, f"{reason} (in the cluster)"))
        elif held == each.offset:
            kept_count += 1
        elif held > each.offset:
            refused.append(RefusedOffset(each, f"is below the group's offset {held} there"))
        elif each.group in target.active:
            refused.append(RefusedOffset(each, "is of a group that is active: stop its consumers"))
        else:
            given.append(each)
    return given, refused, kept_count


def _states_then(past: PastState, now: Mapping[TopicPartition, LogState]) -> dict[TopicPartition, LogState]:
    """Return the rows of an earlier state; the logs' directories are where they are now."""
    return {log: replace(then, log_dir=now.get(log, then).log_dir) for log, then in past.states.items()}


def _named(plan: GroupPlan, groups: str | None) -> GroupPlan:
    if groups is None:
        return plan
    offsets = [*plan.given, *(each.offset for each in plan.refused)]
    named = {group for group in {each.group for each in offsets} if matches(group, groups, "groups")}
    return GroupPlan(
        tuple(each for each in plan.given if each.group in named),
        tuple(each for each in plan.refused if each.offset.group in named),
    )


def _look_at(admin: KafkaAdmin, wanted: Sequence[GroupOffset]) -> TargetState:
    topics = admin.known_topics({each.topic for each in wanted})
    logs = [(name, number) for name, topic in topics.items() for number in range(topic.partitions)]
    starts, ends = admin.starts(logs), admin.ends(logs)
    committed = {(each.group, each.topic, each.partition): each.offset for each in admin.group_offsets()}
    return TargetState(
        logs={TopicPartition(*log): ClusterLog(topics[log[0]].topic_id, starts[log], ends[log]) for log in logs},
        committed=committed,
        active=admin.active_groups({each.group for each in wanted}),
    )


def _give(
    given: Sequence[GroupOffset], give: Callable[[str, Sequence[GroupOffset]], None]
) -> tuple[list[GroupOffset], list[RefusedOffset]]:
    """Give each group its offsets at once; a group that is refused does not stop the others."""
    by_group: dict[str, list[GroupOffset]] = {}
    for each in given:
        by_group.setdefault(each.group, []).append(each)
    done, refused = list[GroupOffset](), list[RefusedOffset]()
    for group, offsets in by_group.items():
        try:
            give(group, offsets)
            done += offsets
        except LogStorageError as error:
            refused += [RefusedOffset(each, f"was refused: {error}") for each in offsets]
    return done, refused


def _csv_lines(offsets: Sequence[GroupOffset]) -> list[str]:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        (each.group, each.topic, each.partition, each.offset) for each in offsets
    )
    return text.getvalue().splitlines()
