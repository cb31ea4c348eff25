"""The Delta table `control/cuts`: the ledger's rows at moments of the past, for as long as the settings say.

The ledger keeps its own past for minutes. A cut is all of its rows at one moment, in one data file, which is one
partition of the table. It pins no record: how far back a cut can be read is for retention and compaction to say.

A CRC in the data file covers its rows: entries of the table are tidied away, and with them what they say.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sparklog.sink.delta.damage import Damage
from sparklog.sink.delta.delta_log import DeltaLog
from sparklog.sink.delta.tidy import SHORT_PAST, TableTidy
from sparklog.sink.delta.torn import drop_torn_commit
from sparklog.sink.ledger.crc import rows_crc
from sparklog.sink.ledger.rows import ROWS_SCHEMA, LedgerRows
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.storage.local import make_directory, storage_errors, sync_directory
from sparklog.storage_core.storage.owned_names import Owner, change_names

__all__ = ["Cut", "CutTable", "cuts_path"]

_PARTITION: Final = "cut_ms"
_DIGITS: Final = 20
_OWN_SCHEMA = pa.schema(
    [
        pa.field("ledger_version", pa.int64(), nullable=False),
        pa.field("query_id", pa.string(), nullable=False),
        pa.field("batch_id", pa.int64(), nullable=False),
        pa.field("rows_crc", pa.string(), nullable=False),
    ]
)
_FILE_SCHEMA = pa.schema([*_OWN_SCHEMA, *ROWS_SCHEMA])
_TABLE_SCHEMA = pa.schema([*_FILE_SCHEMA, pa.field(_PARTITION, pa.string(), nullable=False)])
_DAMAGE = Damage("the table of cuts", "no record is touched by this; with its folder moved away new cuts are made")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The state of a store at a moment.

    Attributes:
        cut_ms: the moment.
        ledger_version: of the ledger then.
        query_id, batch_id: micro-batch of a mirror whose offsets of consumer groups belong to it; empty and -1 without
            a mirror.
        rows: of the ledger then.
    """

    cut_ms: int
    ledger_version: int
    query_id: str
    batch_id: int
    rows: LedgerRows

    @property
    def crc(self) -> str:
        """Of all fields."""
        integers = {"cut_ms": self.cut_ms, "ledger_version": self.ledger_version, "batch_id": self.batch_id}
        own = {name: np.array([value], np.int64) for name, value in integers.items()}
        return rows_crc({**self.rows.text, "query_id": [self.query_id]}, {**self.rows.integers, **own})


def cuts_path(root: Path) -> Path:
    """Return the table's folder in a store."""
    return root / "control" / "cuts"


class CutTable:
    """The cuts of a store; the owner of the writer lock adds and drops them, anybody may read.

    Args:
        path: of the table's folder; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self._log = DeltaLog(path, _DAMAGE)
        self._tidy: TableTidy | None = None
        self._found: tuple[int, dict[int, list[Path]]] = (-1, {})

    def times(self) -> list[int]:
        """Return the moments of all cuts in ms, oldest first.

        Raises:
            LedgerDamagedError: the table can't be read.
            StorageError: the disk refused.
        """
        return self._log.read_beside_writer(self._times) if self._log.files() else []

    def read(self, cut_ms: int) -> Cut:
        """Return one cut.

        Raises:
            LedgerDamagedError: it can't be read, or is not what was written.
            StorageError: the disk refused.
        """
        return self._log.read_beside_writer(partial(self._read, cut_ms))

    def add(self, cut: Cut, owner: Owner) -> None:
        """Write a cut, durably.

        The owner is held for its entry: after a taking by force these rows may not be what the store has.

        Raises:
            WriterFencedError: another writer owns the store.
            LedgerDamagedError: the table can't be read.
            StorageError: the disk refused.
        """
        log, own = self._log, {"ledger_version": cut.ledger_version, "query_id": cut.query_id, "batch_id": cut.batch_id}
        values = {**own, "rows_crc": cut.crc}
        columns = [pa.array([values[field.name]] * len(cut.rows), field.type) for field in _OWN_SCHEMA]
        with storage_errors(log.path):
            make_directory(log.path)
            if not log.files():
                change_names(owner, partial(log.create, _TABLE_SCHEMA, SHORT_PAST, _PARTITION))
                self._sync()
                sync_directory(log.path.parent)
        rows = cut.rows.to_table()
        self._replace(cut.cut_ms, pa.table([*columns, *rows.columns], schema=_FILE_SCHEMA), owner)
        reach("cut.written")

    def drop(self, moments: Collection[int], owner: Owner) -> None:
        """Drop cuts, durably, in a commit each."""
        for cut_ms in moments:
            self._replace(cut_ms, pa.Table.from_batches([], _FILE_SCHEMA), owner)
            reach("cut.dropped")

    def drop_torn(self, owner: Owner) -> None:
        """Drop a commit that a power cut tore: the writer of that cut had not counted on it.

        Raises:
            LedgerDamagedError: the table is damaged otherwise.
        """
        drop_torn_commit(self._log, owner)

    def _times(self) -> list[int]:
        return sorted(self._find_files())

    def _find_files(self) -> dict[int, list[Path]]:
        """Return the data files of each cut, as of the newest version; that of a version is looked up once."""
        version = self._log.last_version()
        if self._found[0] != version:
            table = self._log.open()
            list(self._log.read_entries(table.version()))  # Delta takes an empty one for one without actions
            files = self._log.files_by_partition(table, _PARTITION)
            self._found = int(table.version()), {int(value): found for value, found in files.items()}
        return self._found[1]

    def _read(self, cut_ms: int) -> Cut:
        table = self._log.read_files(self._find_files().get(cut_ms, []), _FILE_SCHEMA)
        if not len(table):
            raise ValueError(f"there is no cut of this moment: {cut_ms=}")
        own: dict[str, Any] = {name: table.column(name)[0].as_py() for name in _OWN_SCHEMA.names}
        committed = own.pop("rows_crc")
        cut = Cut(cut_ms=cut_ms, rows=LedgerRows.from_table(table.select(ROWS_SCHEMA.names)), **own)
        if cut.crc != committed:
            raise ValueError(f"a cut is not what was written: {cut_ms=} crc={cut.crc} {committed=}")
        return cut

    def _replace(self, cut_ms: int, rows: pa.Table, owner: Owner) -> None:
        """Commit the rows of one partition in place of those it has, durably."""
        log = self._log
        with log.refusing_damage():
            table = log.open()
            before = log.data_files(table)
            if self._tidy is None:
                self._tidy = TableTidy(log, before, owner)
            with storage_errors(log.path):
                log.commit(table, rows, "overwrite", {}, (), _value(cut_ms), owner)
                table = self._sync()
                current = log.data_files(table)
                self._tidy.drop_replaced(set(before) - set(current), current)
                self._tidy.checkpoint_if_due(table, current)

    def _sync(self) -> Any:
        table = self._log.open()
        self._log.make_durable(table)
        return table


def _value(cut_ms: int) -> tuple[str, str]:
    """Return the partition of a cut; as text, in which order and time agree."""
    return _PARTITION, f"{cut_ms:0{_DIGITS}}"
