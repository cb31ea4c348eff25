"""What brings a writer to each of its removals and renames by path: how a store is left, and what is done with it then.

In every scenario the micro-batches of `fenced_job` are written in the end. Each function is called in a process of its
own, which may be killed at a step.
"""

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import sparklog.sink.delta.tidy
import sparklog.sink.quarantine.diverted_rows
from sparklog.pipeline.verbs.delete_topic import execute_deletion
from sparklog.pipeline.verbs.move_log import execute_move
from sparklog.sink.erasure.forget_request import make_request
from sparklog.sink.erasure.request_files import put_request
from sparklog.sink.ledger.group_table import GroupRow, GroupTable
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.operations.truncate_logs import truncate_fully_and_start_at
from sparklog.sink.past.cuts import CutTable, cuts_path
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.checkpoint.offset_checkpoint import render_offset_checkpoint
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.kraft.group_offsets import GroupOffset
from sparklog.storage_core.storage.owned_names import UNSHARED
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.cut_store import HOUR_MS, MINUTE_MS, NOON_MS
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import in_process, numbers
from tests.build.truncated import truncate_to
from tests.kill.fenced_job import BATCH_COUNT, BATCH_ROWS, TOPICS, open_job, write_batches

__all__ = ["SCENARIOS", "Scenario"]

_EXTRA = TopicPartition("extra", 0)
_TWO_TOPICS = {**TOPICS, "extra": {"segment.bytes": 600, "batch.size": 200, "file.delete.delay.ms": 0}}
_PAST_ONE: dict[str, Any] = {"clock": ManualClock(NOON_MS + HOUR_MS + MINUTE_MS), "cuts": {"every": "1h"}}
"""Of a sink whose first commit finds a cut due."""


def _write(store: Path) -> None:
    sparklog.sink.delta.tidy._DATA_FILE_AGE_S = 0.0
    sparklog.sink.quarantine.diverted_rows.MERGED_COUNT = 2  # type: ignore[misc]
    with closing(open_job(store)) as writer:
        write_batches(writer)


@dataclass(frozen=True)
class Scenario:
    """A way to some of the removals.

    Attributes:
        left_by: leaves the store, each in its own process, killed at the step if one is named.
        work: of the writer that is stopped.
        options: with which its successor opens the store.
        diverts: whether the micro-batches have rows that are diverted.
        write: what the successor writes.
        problems: what is wrong with the store then, besides its records and diverted rows.
    """

    left_by: tuple[tuple[Callable[[Path], None], str], ...] = ()
    work: Callable[[Path], None] = _write
    options: dict[str, object] = field(default_factory=dict)
    diverts: bool = True
    write: Callable[..., None] = write_batches
    problems: Callable[[Path], list[str]] = lambda _: []


def _write_by_force(store: Path) -> None:
    with closing(open_job(store, by_force=True)) as writer:
        write_batches(writer)


def _write_sound_rows(store: Path) -> None:
    with closing(open_job(store)) as writer:
        write_batches(writer, diverts=False)


def _write_both(store: Path) -> None:
    with closing(open_job(store, topics=_TWO_TOPICS)) as writer:
        write_batches(writer)


def _write_extra(store: Path) -> None:
    with closing(open_job(store, topics=_TWO_TOPICS, topic="extra")) as writer:
        writer.append("extra", 0, in_process(numbers(0, 60)))


def _write_idle(store: Path) -> None:
    """Up to the version before the ledger's checkpoint."""
    with closing(open_job(store)) as writer:
        for number in range(98 - writer._ledger.version):
            writer.append("idle", number, in_process())


def _write_idle_on(store: Path) -> None:
    with closing(open_job(store)) as writer:
        for number in range(98, 103):
            writer.append("idle", number, in_process())


def _leave_token_folder(store: Path) -> None:
    (query,) = (store / "quarantine").glob("store-*/query-job")
    left = query / "_building-0.0badcafe"
    left.mkdir()
    (left / "part-00000.parquet").write_bytes(b"half")


def _tear_entry(store: Path) -> None:
    newest = max((store / "ledger" / "_delta_log").glob("*.json"))
    os.truncate(newest, newest.stat().st_size // 2)


def _tear_checkpoint(store: Path) -> None:
    newest = max((store / "ledger" / "_delta_log").glob("*.checkpoint.parquet"))
    os.truncate(newest, newest.stat().st_size // 2)


def _begin_lost_ranges(store: Path) -> None:
    (store / "control" / "lost_ranges" / "_delta_log").mkdir(parents=True)


def _tear_lost_ranges(store: Path) -> None:
    _begin_lost_ranges(store)
    (store / "control" / "lost_ranges" / "_delta_log" / f"{0:020}.json").write_text('{"commitInfo":')


def _name_no_store(store: Path) -> None:
    path = store / "logs" / "meta.properties"
    path.write_text("".join(line for line in path.open() if not line.startswith("sparklog.store")))


def _move(store: Path) -> None:
    execute_move(store, _EXTRA, "moved")


def _delete(store: Path) -> None:
    execute_deletion(store, "extra", SystemClock(), lambda _directories, _until_ms: None, lambda _seconds: None)


def _truncate(store: Path) -> None:
    truncate_to(store, _EXTRA, 30, SystemClock())


def _truncate_fully(store: Path) -> None:
    truncate_fully_and_start_at(store, _EXTRA, 20, SystemClock())


def _note_clean(store: Path) -> None:
    """As a broker and a request to forget keys leave it."""
    (store / "logs" / "cleaner-offset-checkpoint").write_bytes(render_offset_checkpoint({_EXTRA: 50}))
    found = Store.find(store)
    states = Ledger.open(found.ledger_path).states()
    put_request(found, make_request("extra", pa.array([b"key-1"]), states, 1), UNSHARED)


def _write_one_at_noon(store: Path) -> None:
    with closing(open_job(store, clock=ManualClock(NOON_MS))) as writer:
        write_batches(writer, 1)


def _write_past_one(store: Path) -> None:
    with closing(open_job(store, **_PAST_ONE)) as writer:
        write_batches(writer)


def _problems_of_cuts(store: Path) -> list[str]:
    """There is one cut, of the micro-batch at noon."""
    table = CutTable(cuts_path(store))
    states = {cut_ms: table.read(cut_ms).rows.states.values() for cut_ms in table.times()}
    ends = {cut_ms: sum(each.log_end_offset for each in found) for cut_ms, found in states.items()}
    return [] if ends == {NOON_MS + HOUR_MS: BATCH_ROWS} else [f"cuts: {ends}"]


def _groups(number: int) -> list[GroupRow]:
    return [GroupRow(GroupOffset(group="g", topic="events", partition=0, offset=number, metadata=""), "", 0)]


def _write_with_groups(writer: StoreWriter, *, diverts: bool = True) -> None:
    """As a mirror does: the rows of a micro-batch come before its commit, and not again after it."""
    known = writer._ledger.transaction_version("job")
    for number in range(0 if known is None else known + 1, BATCH_COUNT):
        GroupTable(writer._store.root).write(("job", number), number, _groups(number), writer.owner)
        write_batches(writer, number + 1, diverts=diverts)


def _write_groups(store: Path) -> None:
    with closing(open_job(store)) as writer:
        _write_with_groups(writer)


def _problems_of_groups(store: Path) -> list[str]:
    table = GroupTable(store)
    found = [table.read(("job", number)) for number in range(BATCH_COUNT)]
    return [] if found == [_groups(number) for number in range(BATCH_COUNT)] else [f"group offsets: {found}"]


_BOTH = ((_write_both, ""), (_write_extra, ""))
SCENARIOS = {
    "a new store": Scenario(),
    "unfinished segments": Scenario(((_write, "place.published:3"),)),
    "unfinished topics": Scenario(((_write, "open.directories"),)),
    "by force": Scenario(((_write, "place.published:3"),), _write_by_force),
    "diverted twice": Scenario(((_write, "commit.quarantined:2"), (_leave_token_folder, ""))),
    "not diverted": Scenario(((_write, "commit.quarantined:1"),), _write_sound_rows, diverts=False),
    "a torn ledger entry": Scenario(((_write, "commit.written:3"), (_tear_entry, ""))),
    "a ledger to tidy": Scenario(((_write_idle, ""),)),
    "a torn ledger checkpoint": Scenario(
        ((_write_idle, ""), (_write_idle_on, "tidy.checkpointed"), (_tear_checkpoint, ""))
    ),
    "lost ranges begun": Scenario(((_write, "place.copied:2"), (_begin_lost_ranges, ""))),
    "lost ranges torn": Scenario(((_write, "place.copied:2"), (_tear_lost_ranges, ""))),
    "a root that names no store": Scenario(((_write, "place.copied:2"), (_name_no_store, ""))),
    "a moved log": Scenario((*_BOTH, (_move, "move.committed")), _write_both, {"topics": _TWO_TOPICS}),
    "a deleted topic": Scenario((*_BOTH, (_delete, "delete-topic.committed"))),
    "a truncation": Scenario((*_BOTH, (_note_clean, "")), _truncate, {"topics": _TWO_TOPICS}),
    "an emptied log": Scenario((*_BOTH, (_truncate_fully, "truncate.committed")), _write_both, {"topics": _TWO_TOPICS}),
    "a cut": Scenario(((_write_one_at_noon, ""),), _write_past_one, _PAST_ONE, problems=_problems_of_cuts),
    "group offsets": Scenario(work=_write_groups, write=_write_with_groups, problems=_problems_of_groups),
}
