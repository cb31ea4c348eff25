"""The ledger, a Delta table of all that is committed: one row per log, and each commit replaces all rows.

A commit is one Delta version that carries the application transaction `(query_id, batch_id)`. Two writers from one
version conflict, so a second writer is detected by the commit itself. The data file is synced before the log entry is
written, the entry after that, and only then the commit counts.

A crash before the log entry exists leaves only an unreferenced data file. A power cut may leave the newest log entry
torn; it was not acknowledged, so the opening drops it. The opening refuses any other damage: without an entry that is
missing, empty or of another program the ledger would end lower, and the opening would truncate committed records.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from deltalake import DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError

from sparklog.sink.delta.damage import Damage, one_line
from sparklog.sink.delta.delta_log import DeltaLog
from sparklog.sink.delta.tidy import SHORT_PAST, TableTidy
from sparklog.sink.delta.torn import drop_torn_checkpoint, drop_torn_entry
from sparklog.sink.ledger.crc import (
    CHANGED_MS,
    ROWS_CRC,
    TRANSACTIONS_CRC,
    read_committed,
    rows_crc,
    transactions_crc,
)
from sparklog.sink.ledger.rows import LEDGER_PARTITION, LEDGER_SCHEMA, ROWS_SCHEMA, LedgerRows, LogState
from sparklog.sink.locks.signed_off_version import require_signed_off, signed_off_version
from sparklog.storage_core.errors import (
    CommitStateUnknownError,
    CorruptFileError,
    LedgerDamagedError,
    StorageError,
    WriterFencedError,
)
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.storage.local import storage_errors, sync_directory
from sparklog.storage_core.storage.open_regular import check_regular_files
from sparklog.storage_core.storage.owned_names import Owner, change_names
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["Ledger", "ledger_log"]

logger = logging.getLogger(__name__)

_FAILURES = (DeltaError, OSError, ValueError, StorageError)
"""Errors of a table's files: what the disk answers, or holds."""
_DAMAGE = Damage(
    "the ledger",
    "a writer that starts after a crash drops an entry that a power cut tore, any other damage means: restore it from a"
    " copy",
)


def ledger_log(path: Path) -> DeltaLog:
    """Return the files of the ledger in a folder."""
    return DeltaLog(path, _DAMAGE)


class Ledger:
    """The committed state of every log, at one version.

    Rows keep their place for the life of this object: a log's row number is its id inside the sink.
    """

    def __init__(self, log: DeltaLog, table: DeltaTable) -> None:
        self._log = log
        self._table = table
        self._version = int(table.version())
        self._tidy: TableTidy | None = None
        self._rows = LedgerRows.from_table(log.read(table, ROWS_SCHEMA, LEDGER_PARTITION))
        self._changed_ms = int(self.column("updated_ms").max(initial=0))  # unless the entry has it

    @classmethod
    def create(cls, path: Path, owner: Owner) -> "Ledger":
        """Create an empty ledger."""
        log = ledger_log(path)
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            change_names(owner, partial(log.create, LEDGER_SCHEMA, SHORT_PAST, LEDGER_PARTITION[0]))
            try:
                ledger = cls(log, log.open())
                log.make_durable(ledger._table)
            except _FAILURES:
                owner.check()  # one that took the store since has removed this ledger
                raise
            sync_directory(path.parent)
            ledger._tidy = TableTidy(log, log.data_files(ledger._table), owner)
        return ledger

    @classmethod
    def open(cls, path: Path) -> "Ledger":
        """Open the ledger at its newest version, read-only: a torn newest entry is an error here.

        A writer may tidy entries away while they are read; then they are read again.

        Raises:
            LedgerDamagedError: it can't be read.
        """
        log = ledger_log(path)
        if not log.folder.is_dir():
            raise LedgerDamagedError(f"no ledger: path={path}")
        try:
            least = signed_off_version(path)  # before the entries: a writer may commit, and end, while they are read
        except CorruptFileError as error:  # a writer refuses it
            logger.warning("Sparklog can't check whether the ledger has lost its newest entries: %s", error)
            least = -1
        ledger = log.read_beside_writer(lambda: cls._checked(log, None))
        require_signed_off(path, ledger.version, least)
        return ledger

    @classmethod
    def open_at(cls, path: Path, version: int) -> "Ledger":
        """Open the ledger as it was at a version, read-only.

        Raises:
            LedgerDamagedError: it can't be read; `__cause__` is a `FileNotFoundError` if its data file is gone.
        """
        log = ledger_log(path)
        with log.refusing_damage():
            return cls._checked(log, version)

    @classmethod
    def open_for_writing(cls, path: Path, owner: Owner, *, follows_crash: bool = True) -> "Ledger":
        """Open the ledger, after dropping a newest entry that a power cut left torn.

        Args:
            path: of the table.
            owner: of the store.
            follows_crash: whether the previous writer crashed. A writer that ended well made its newest entry durable,
                so damage there has another cause, and dropping the entry would drop acknowledged records.

        Raises:
            LedgerDamagedError: it is damaged otherwise, or after a writer that ended well; nothing was changed.
            CorruptFileError: the file with the last committed version is damaged; nothing was changed.
        """
        log = ledger_log(path)
        with storage_errors(path):
            check_regular_files(path, log.folder)
        signed_off = signed_off_version(path)
        drop_torn_checkpoint(log, owner)
        if follows_crash:
            drop_torn_entry(log, owner, signed_off)
        ledger = cls.open(path)
        with storage_errors(path):
            log.make_durable(ledger._table)  # the version counts now, and its writer may have crashed before this
            ledger._tidy = TableTidy(log, log.data_files(ledger._table), owner)
        ledger._tidy_up(None)
        return ledger

    @classmethod
    def open_beside_writer(cls, path: Path) -> "Ledger":
        """Open the ledger to commit beside a running writer: nothing is dropped or tidied.

        The newest version is synced first: its writer may not have done it yet, and an entry must never outlive the one
        before it.

        Raises:
            LedgerDamagedError: it can't be read.
            CorruptFileError: the file with the last committed version is damaged.
        """
        signed_off_version(path)
        ledger = cls.open(path)
        with storage_errors(path):
            ledger._log.make_durable(ledger._table)
        return ledger

    def newest(self) -> "Ledger":
        """Return the ledger at its newest version, read-only; this one unless one came since. Raises as `open`."""
        return self if self._log.last_version() == self.version else Ledger.open(self._log.path)

    @property
    def version(self) -> int:
        """Version of the table that this state is."""
        return self._version

    @property
    def changed_ms(self) -> int:
        """When a micro-batch, or a command, last made a state that cuts tell apart; 0 for an empty store."""
        return self._changed_ms

    @property
    def held_rows(self) -> LedgerRows:
        """All rows of this version; they never change, a commit makes others."""
        return self._rows

    @property
    def topics(self) -> list[str]:
        """(logs,) topic of each log that there is."""
        return [log.topic for log in self._rows.number_of]

    @property
    def rows(self) -> Mapping[TopicPartition, int]:
        """Row number of each log that there is."""
        return self._rows.number_of

    def column(self, name: str) -> npt.NDArray[np.int64]:
        """Return (n,) values of an integer column, of every row; not to be changed."""
        return self._rows.integers[name]

    def state(self, row: int) -> LogState:
        """Return one row."""
        return self._rows.state(row)

    def states(self) -> dict[TopicPartition, LogState]:
        """Return the rows of logs that there are, by log."""
        return dict(self._rows.states)

    def all_states(self) -> Sequence[LogState]:
        """Return (n,) every row, with the rows of deleted logs whose directories still exist."""
        return self._rows.all_states

    def transaction_version(self, query_id: str) -> int | None:
        """Return the newest micro-batch committed for a query, None if there is none.

        Raises:
            LedgerDamagedError: the ledger can't be read.
        """
        with self._log.refusing_damage():
            version = self._table.transaction_version(query_id)
        return None if version is None else int(version)

    def add(self, states: list[LogState], owner: Owner, changed_ms: int | None = None) -> None:
        """Append rows for new logs, in one commit; as `change`."""
        self.change(lambda rows: rows.with_added(states), owner, changed_ms=changed_ms)

    def update(
        self,
        rows: npt.NDArray[np.int64],
        values: Mapping[str, npt.NDArray[np.int64]],
        transaction: tuple[str, int],
        changed_ms: int,
        owner: Owner,
    ) -> None:
        """Replace values of some rows and record the micro-batch, in one commit; arguments as of `change`.

        Beside the writer, maintenance may commit log start offsets and cleaner limits. Then the writer loses the race
        for the next version, takes these changes over and tries again. Any other commit means that the store was taken.

        Raises:
            WriterFencedError: another writer committed since this state was read.
            CommitStateUnknownError: the ledger's folder failed; the commit may or may not count.
        """
        self.change(lambda held: held.with_risen(rows, values), owner, transaction, changed_ms)

    def raise_recovery_points(self, rows: npt.NDArray[np.int64], points: npt.NDArray[np.int64], owner: Owner) -> None:
        """Record that logs are synced up to these offsets, in one commit; as `change`."""
        self.change(lambda held: held.with_risen(rows, {"recovery_point": points}), owner)

    def change(
        self,
        change: Callable[[LedgerRows], LedgerRows],
        owner: Owner,
        transaction: tuple[str, int] | None = None,
        changed_ms: int | None = None,
    ) -> None:
        """Commit changed rows; takes changes of maintenance over as `update` does.

        Args:
            change: of the rows; called again on rows that maintenance has changed.
            owner: of the store.
            transaction: query id and number of a micro-batch.
            changed_ms: the time, if this makes a state that cuts tell apart; None for maintenance and openings.
        """
        while True:
            try:
                self._commit(change(self._rows), transaction, changed_ms)
                return
            except WriterFencedError:
                if not self._take_over_maintenance():
                    raise
                owner.check()  # after the reading: a later take-over commits, which is a conflict again

    def correct(
        self,
        rows: npt.NDArray[np.int64],
        values: Mapping[str, npt.NDArray[np.int64] | Sequence[str]],
        changed_ms: int | None = None,
    ) -> None:
        """Replace values of some rows, in one commit that is no micro-batch; `changed_ms` as in `change`.

        Raises:
            WriterFencedError: another writer committed since this state was read.
            CommitStateUnknownError: the ledger's folder failed; the commit may or may not count.
        """
        self._commit(self._rows.with_values(rows, values), None, changed_ms)

    def fence(self) -> None:
        """Commit the next leader epoch of every log: a writer that read an earlier version can't commit any more.

        Raises:
            LedgerDamagedError: another writer's commit can't be read.
        """
        while True:
            try:
                self._commit(self._rows.with_next_epochs())
                return
            except WriterFencedError:
                self._reload()

    @classmethod
    def _checked(cls, log: DeltaLog, version: int | None) -> "Ledger":
        ledger = cls(log, log.open(version))
        ledger._check()
        return ledger

    def _reload(self) -> None:
        """Read the newest version and sync it: an entry must never outlive the one before it.

        Table and rows change together, at the end. New rows must never be missing from a commit on the new version, so
        after an error this state is still the old one, from which no commit succeeds.
        """
        with self._log.refusing_damage():
            newest = self._checked(self._log, None)
        with storage_errors(self._log.path):
            self._log.make_durable(newest._table)
        self._table, self._version, self._rows = newest._table, newest._version, newest._rows
        self._changed_ms = newest._changed_ms

    def _take_over_maintenance(self) -> bool:
        """Read the newest version; return whether maintenance alone committed since this one."""
        before = self._rows
        self._reload()
        return before.differs_by_maintenance_only(self._rows)

    def _check(self) -> None:
        """Compare the rows and the micro-batches with the CRCs of their commits.

        A micro-batch that only a checkpoint still names has no CRC and is not checked.

        Raises:
            ValueError: they are not what was committed.
        """
        committed = read_committed(self._log, self.version)
        found = rows_crc(self._rows.text, self._rows.integers)
        if found != committed.rows_crc:
            raise ValueError(f"its rows are not what was committed: crc={found} committed={committed.rows_crc}")
        for query_id, batch_id in committed.transactions.items():
            held = self._table.transaction_version(query_id)
            if held != batch_id:
                raise ValueError(f"a micro-batch is not what was committed: {query_id=} {held=} committed={batch_id}")
        if committed.changed_ms is not None:
            self._changed_ms = committed.changed_ms

    def _commit(
        self, rows: LedgerRows, transaction: tuple[str, int] | None = None, changed_ms: int | None = None
    ) -> None:
        changed_ms = self._changed_ms if changed_ms is None else changed_ms
        transactions = [Transaction(*transaction)] if transaction else []
        old_files, known = self._log.data_files(self._table), self._version
        if self._table.version() != known:  # an earlier commit failed half-way: its rows are not these
            raise WriterFencedError(f"the ledger has moved on: path={self._log.path} version={known}")
        try:
            metadata = {
                ROWS_CRC: rows_crc(rows.text, rows.integers),
                TRANSACTIONS_CRC: transactions_crc([transaction] if transaction else [], changed_ms),
                CHANGED_MS: str(changed_ms),
            }
            self._log.commit(self._table, rows.to_table(), "overwrite", metadata, transactions, LEDGER_PARTITION)
            self._table.update_incremental()
            if self._table.version() != known + 1:  # another commit came after it
                self._table.load_as_version(known + 1)
        except CommitFailedError as error:
            raise WriterFencedError(
                f"another writer committed to the ledger: path={self._log.path} version={self.version}"
            ) from error
        except (DeltaError, OSError) as error:
            self._raise_unless_absent(known, transaction, error)
        reach("commit.written")
        try:
            self._log.make_durable(self._table)
        except _FAILURES as error:
            raise CommitStateUnknownError(
                f"the ledger's folder can't be synced: {error}", *(transaction or ("", -1))
            ) from error
        reach("commit.synced")
        self._version, self._rows, self._changed_ms = int(self._table.version()), rows, changed_ms
        self._tidy_up(old_files)

    def _tidy_up(self, replaced: list[Path] | None) -> None:
        """Keep the folder small if this is the writer's ledger.

        Args:
            replaced: data files that a commit has replaced; None without a commit.
        """
        if self._tidy is None:
            return
        current = self._log.data_files(self._table)
        try:
            if replaced is not None:
                self._tidy.drop_replaced(replaced, current)
            self._tidy.checkpoint_if_due(self._table, current)
        except _FAILURES as error:
            logger.warning("The ledger was not tidied, a later commit will: path=%s (%s)", self._log.path, error)

    def _raise_unless_absent(self, known: int, transaction: tuple[str, int] | None, error: Exception) -> None:
        """Raise the error of a failed write: that it left no version, or that its outcome is unknown.

        The table is opened again: this object's handle may have moved on before the write failed.
        """
        try:
            newest = self._log.open().version()
        except _FAILURES:
            newest = None
        if newest == known:
            raise StorageError(f"the ledger can't be written: path={self._log.path} ({one_line(error)})") from error
        query_id, batch_id = transaction or ("", -1)
        raise CommitStateUnknownError(f"the ledger did not answer: {one_line(error)}", query_id, batch_id) from error
