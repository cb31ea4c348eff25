"""Offsets of consumer groups that a mirror reads with each micro-batch: the Delta table `control/group_offsets`.

Rows of a micro-batch are durable before the ledger commits it, and count only after that. Each micro-batch has all
offsets, also of topics that an earlier mirror of another cluster has brought, so those of the newest one count alone:
each reader asks the ledger which that is. A retry of a micro-batch replaces its rows.

| column | type | meaning |
|---|---|---|
| `group`, `topic`, `partition` | string, string, int | who reads what |
| `offset` | bigint | of the next record that the group wants |
| `metadata` | string | text of the consumer beside it |
| `topic_id`, `leader_epoch` | string, int | of the store's log then; empty and -1 without one |
| `is_ahead` | boolean | whether the offset is above the log's end in that micro-batch |
| `cut` | string | partition column: `<query>/<micro-batch>` |

One more row of each micro-batch has the partition -1, as its offset the ledger's version before the micro-batch, and as
its metadata the number of rows: so micro-batches of several queries have an order, and one without groups differs from
one whose rows are gone.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from sparklog.sink.delta.damage import Damage
from sparklog.sink.delta.delta_log import DeltaLog
from sparklog.sink.delta.tidy import SHORT_PAST, TableTidy
from sparklog.sink.delta.torn import drop_torn_commit
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.kraft.group_offsets import GroupOffset
from sparklog.storage_core.storage.local import make_directory, storage_errors
from sparklog.storage_core.storage.owned_names import Owner, change_names

__all__ = ["GroupRow", "GroupTable", "MicroBatch"]

MicroBatch = tuple[str, int]
"""Query and number."""

_COLUMN: Final = "cut"
_ROWS: Final = pa.schema(
    [
        pa.field("group", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("metadata", pa.string(), nullable=False),
        pa.field("topic_id", pa.string(), nullable=False),
        pa.field("leader_epoch", pa.int32(), nullable=False),
        pa.field("is_ahead", pa.bool_(), nullable=False),
    ]
)
_SCHEMA: Final = pa.schema([*_ROWS, pa.field(_COLUMN, pa.string(), nullable=False)])
_OF_MICRO_BATCH: Final = -1
_KEPT: Final = 8
"""Micro-batches of a query whose rows stay, for readers beside the mirror."""

_DAMAGE: Final = Damage(
    "the table of group offsets",
    "move its folder away: a mount then gives no group an offset, the next run of the mirror makes the table anew",
)


@dataclass(frozen=True, slots=True)
class GroupRow:
    """An offset, and which log's it is.

    Attributes:
        topic_id, leader_epoch: of the store's log then; empty and -1 if it had none.
        is_ahead: whether it is above the log's end in that micro-batch, however far others append later.
    """

    offset: GroupOffset
    topic_id: str
    leader_epoch: int
    is_ahead: bool = False


class GroupTable:
    """The table of a store; only the owner of the writer lock adds to it, an object for each owner.

    Args:
        root: of the store.
    """

    def __init__(self, root: Path) -> None:
        self._log = DeltaLog(root / "control" / "group_offsets", _DAMAGE)
        self._tidy: TableTidy | None = None

    def newest(self, newest_batch: Callable[[str], int | None]) -> MicroBatch | None:
        """Return the micro-batch whose rows count in a version of the ledger; one whose rows are gone comes first.

        Args:
            newest_batch: returns a query's newest micro-batch in that version.

        Returns:
            None without a mirror.

        Raises:
            LogStorageError: the table is damaged.
        """
        numbers = {query: newest_batch(query) for query in sorted({query for query, _ in self._micro_batches()})}
        found = [(query, number) for query, number in numbers.items() if number is not None]
        if len(found) < 2:
            return found[0] if found else None
        gone = [each for each in found if self._read(each) is None]
        return gone[0] if gone else max(found, key=self._ledger_version)

    def read(self, micro_batch: MicroBatch) -> list[GroupRow] | None:
        """Return the rows of a micro-batch, None if they are gone or it never had some; raises as `newest`."""
        rows = self._read(micro_batch)
        return None if rows is None else [_row(**each) for each in rows if each["partition"] != _OF_MICRO_BATCH]

    def write(
        self,
        micro_batch: MicroBatch,
        ledger_version: int,
        rows: Sequence[GroupRow],
        owner: Owner,
        kept: Collection[MicroBatch] | None = (),
    ) -> None:
        """Replace the rows of a micro-batch, durably, and drop those of others that are stale, in one commit.

        Stale are micro-batches long before it, and those of its query above it: a ledger had them that is lost.

        Args:
            ledger_version: before the micro-batch.
            kept: micro-batches that cuts name: their rows stay; None keeps all.

        Raises:
            LogStorageError: the table is damaged, or the disk refused.
        """
        about = GroupOffset(
            group="", topic="", partition=_OF_MICRO_BATCH, offset=ledger_version, metadata=str(len(rows))
        )
        own = GroupRow(about, "", -1)
        stale = set() if kept is None else _stale(micro_batch, self._micro_batches()).difference(kept)
        self._commit(micro_batch, _to_table([own, *rows]), stale, owner)
        reach("groups.written")

    def drop_torn(self, owner: Owner) -> None:
        """Drop a commit that a power cut tore: the ledger has no micro-batch of it."""
        drop_torn_commit(self._log, owner)

    def _ledger_version(self, micro_batch: MicroBatch) -> int:
        rows = self._read(micro_batch) or []
        return max(int(each["offset"]) for each in rows if each["partition"] == _OF_MICRO_BATCH)

    def _read(self, micro_batch: MicroBatch) -> list[dict[str, Any]] | None:
        if not self._log.files():
            return None
        of = _COLUMN, _cut(micro_batch)
        return self._log.read_beside_writer(lambda: _checked(self._log.read(self._log.open(), _ROWS, of))) or None

    def _micro_batches(self) -> list[MicroBatch]:
        if not self._log.files():
            return []
        files = self._log.read_beside_writer(lambda: self._log.files_by_partition(self._log.open(), _COLUMN))
        return [(query, int(number)) for query, _, number in (each.rpartition("/") for each in files)]

    def _commit(self, micro_batch: MicroBatch, rows: pa.Table, stale: Iterable[MicroBatch], owner: Owner) -> None:
        log, partition = self._log, (_COLUMN, _cut(micro_batch))
        with storage_errors(log.path), log.refusing_damage():
            make_directory(log.path)
            if not log.files():
                change_names(owner, partial(log.create, _SCHEMA, SHORT_PAST, _COLUMN))
                log.make_durable(log.open())
            table = log.open()
            before = log.data_files(table)
            log.commit(table, rows, "overwrite", {}, (), partition, owner, [_cut(each) for each in sorted(stale)])
            after = log.open()
            log.make_durable(after)
            current = log.data_files(after)
            self._tidy = self._tidy or TableTidy(log, current, owner)
            self._tidy.drop_replaced([each for each in before if each not in current], current)
            self._tidy.checkpoint_if_due(after, current)


def _cut(micro_batch: MicroBatch) -> str:
    query_id, batch_id = micro_batch
    return f"{query_id}/{batch_id}"


def _checked(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    counts = [int(each["metadata"]) for each in rows if each["partition"] == _OF_MICRO_BATCH]
    if rows and counts != [len(rows) - 1]:
        raise ValueError(f"rows are missing: rows={len(rows) - 1} written={counts}")
    return rows


def _stale(written: MicroBatch, found: Sequence[MicroBatch]) -> set[MicroBatch]:
    """Return micro-batches whose rows no reader takes; never the one that is written."""
    query_id, batch_id = written
    newest: dict[str, int] = {}
    for query, number in found:
        newest[query] = max(number, newest.get(query, number))
    newest[query_id] = batch_id  # in a ledger that was restored alone; rows above it would make its own look old
    return {(query, number) for query, number in found if not newest[query] - _KEPT < number <= newest[query]}


def _row(topic_id: str, leader_epoch: int, is_ahead: bool, **offset: Any) -> GroupRow:
    return GroupRow(GroupOffset(**offset), topic_id, leader_epoch, is_ahead)


def _to_table(rows: Iterable[GroupRow]) -> pa.Table:
    held = list(rows)
    own = {name: [getattr(each, name) for each in held] for name in ("topic_id", "leader_epoch", "is_ahead")}
    names = [name for name in _ROWS.names if name not in own]
    return pa.table({**{name: [getattr(each.offset, name) for each in held] for name in names}, **own}, _ROWS)
