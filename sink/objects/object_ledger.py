"""The ledger of a store of objects: the rows of its logs, their extents, and the only lock of the store.

A commit is one Delta version. It replaces the rows of logs, and adds the extents of a micro-batch, both or neither. The
storage lets one of two commits from the same version win. A writer that opens the store commits the next leader epoch
of every log, so a writer before it can commit no more; objects that it still writes are named by no version.

If the answer to a commit is lost, `settle_commit` finds out whether it counts.
"""

import json
import logging
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction

from sparklog.sink.delta.delta_log import NO_HOOKS
from sparklog.sink.ledger.lost_ranges import LOST_RANGES_SCHEMA, LostRange
from sparklog.sink.ledger.rows import ROWS_SCHEMA, LedgerRows, LogState
from sparklog.sink.ledger.versions import AsOf
from sparklog.sink.objects.diverted_objects import DIVERTED_SCHEMA, DivertedObject
from sparklog.sink.objects.extents import EXTENTS_SCHEMA, Extent, extents_of, table_of
from sparklog.sink.objects.ledger_files import (
    DAMAGE,
    DIVERTED_KIND,
    EXTENT_KIND,
    FAILURES,
    FOLDER,
    GARBAGE_KIND,
    GARBAGE_SCHEMA,
    LOST_KIND,
    PARTITION,
    ROWS_KIND,
    SETTINGS_KIND,
    SETTINGS_SCHEMA,
    LedgerFiles,
)
from sparklog.sink.objects.object_tidy import ObjectTidy
from sparklog.sink.objects.settle_commit import COMMIT_ID, settle_commit
from sparklog.storage_core.errors import (
    InvalidConfigError,
    ObjectMissingError,
    StorageError,
    WriterFencedError,
)
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["ObjectLedger"]

logger = logging.getLogger(__name__)

_FENCE_TRIES = 20
_REWRITE_TRIES = 100
_READ_TRIES = 5
_READERS = 16


class ObjectLedger:
    """The committed state of a store of objects, at one version.

    Rows keep their place for the life of this object: a log's row number is its id inside the sink.
    """

    def __init__(self, files: LedgerFiles, table: DeltaTable) -> None:
        self._files = files
        self._table = table
        self._read_extents: dict[str, pa.Table] = {}
        self._tidy: ObjectTidy | None = None
        parts = [files.read(name, ROWS_SCHEMA) for name in files.by_kind(table).get(ROWS_KIND, [])]
        self._rows = LedgerRows.from_table(pa.concat_tables([pa.Table.from_batches([], ROWS_SCHEMA), *parts]))

    @classmethod
    def open(cls, place: StoragePlace, as_of: AsOf | None = None) -> "ObjectLedger":
        """Open the ledger at its newest version, or as it was.

        Raises:
            InvalidConfigError: there is no ledger, or not this version of it.
            LedgerDamagedError: it can't be read.
            StorageError: the storage does not answer.
        """
        found = cls.find(place, as_of)
        if found is None:
            raise InvalidConfigError(f"there is no store: address={place.address}")
        return found

    @classmethod
    def find(cls, place: StoragePlace, as_of: AsOf | None = None) -> "ObjectLedger | None":
        """As `open`, but return None if there is no store."""
        files = LedgerFiles(place)
        for tries_left in reversed(range(_READ_TRIES)):
            table = files.find()
            if table is None:
                return None
            try:
                if as_of is not None:
                    _go_to(table, as_of, place)
                return cls(files, table)
            except ObjectMissingError as error:  # a writer may have tidied it away since
                if as_of is not None:
                    raise InvalidConfigError(_absent(table, as_of, place)) from error
                if not tries_left:
                    raise files.damaged(error) from error
            except DAMAGE as error:
                raise files.damaged(error) from error
        raise AssertionError

    @classmethod
    def create(cls, place: StoragePlace) -> "ObjectLedger":
        """Make an empty ledger; if another writer makes it in the same moment, open that one: one of the two is fenced.

        Raises:
            InvalidConfigError: the storage does not let one of two writers win.
            StorageError: the storage refuses.
        """
        is_own = LedgerFiles(place).create()
        ledger = cls.open(place)
        if not is_own:
            ledger.fence()
        return ledger

    @property
    def place(self) -> StoragePlace:
        """Where the store lies."""
        return self._files.place

    @property
    def version(self) -> int:
        """Version of the table that this state is."""
        return int(self._table.version())

    @property
    def rows(self) -> Mapping[TopicPartition, int]:
        """Row number of each log."""
        return self._rows.number_of

    def column(self, name: str) -> npt.NDArray[np.int64]:
        """Return (n,) values of an integer column, of every row; not to be changed."""
        return self._rows.integers[name]

    def text(self, name: str) -> Sequence[str]:
        """Return (n,) values of a text column, of every row; not to be changed."""
        return self._rows.text[name]

    def state(self, row: int) -> LogState:
        """Return one row."""
        return self._rows.state(row)

    def states(self) -> dict[TopicPartition, LogState]:
        """Return all rows, by log."""
        return dict(self._rows.states)

    def transaction_version(self, query_id: str) -> int | None:
        """Return the newest micro-batch committed for a query, None if there is none.

        Raises:
            WriterFencedError: others have committed since, and tidied away what this version needs.
            StorageError: the storage refuses.
        """
        try:
            version = self._table.transaction_version(query_id)
        except FAILURES as error:
            newest = self._files.find()
            if newest is None or newest.version() == self.version:
                raise self._files.refused(error) from error
            raise WriterFencedError(
                f"other writers have committed since: address={self._files.place.address} version={self.version}"
            ) from error
        return None if version is None else int(version)

    def extents(self) -> dict[TopicPartition, list[Extent]]:
        """Return the extents of each log that has any, by offset.

        Raises:
            LedgerDamagedError: a data file can't be read.
        """
        names = self._names_of(EXTENT_KIND)
        missing = [name for name in names if name not in self._read_extents]
        with ThreadPoolExecutor(_READERS) as pool:
            tables = dict(zip(missing, pool.map(self._extents_in, missing), strict=True))
        # Those read before are kept: a data file never changes.
        self._read_extents = {name: tables[name] if name in tables else self._read_extents[name] for name in names}
        found: dict[TopicPartition, list[Extent]] = {}
        for (topic, partition), extent in extents_of(self._read_extents.values()):
            found.setdefault(TopicPartition(topic, partition), []).append(extent)
        for each in found.values():
            each.sort(key=lambda extent: extent.base_offset)
        return found

    def garbage(self) -> dict[str, int]:
        """Return the objects that no extent names any more, and since when.

        Raises:
            LedgerDamagedError: a data file can't be read.
        """
        return {row["object"]: row["since_ms"] for row in self._rows_of(GARBAGE_KIND, GARBAGE_SCHEMA)}

    def settings(self) -> dict[str, dict[str, Any]]:
        """Return the settings of each topic, as its writer has recorded them.

        Raises:
            LedgerDamagedError: a data file can't be read.
        """
        return {row["topic"]: json.loads(row["settings"]) for row in self._rows_of(SETTINGS_KIND, SETTINGS_SCHEMA)}

    def lost(self) -> list[LostRange]:
        """Return the offsets that repairs could not save, oldest first.

        Raises:
            LedgerDamagedError: a data file can't be read.
        """
        found = [LostRange(**row) for row in self._rows_of(LOST_KIND, LOST_RANGES_SCHEMA)]
        return sorted(found, key=lambda each: (each.found_ms, *each.place[:3]))

    def diverted(self) -> list[DivertedObject]:
        """Return the invalid rows of the newest micro-batch that had some, or followed one that had.

        Raises:
            LedgerDamagedError: a data file can't be read.
        """
        return [DivertedObject(**row) for row in self._rows_of(DIVERTED_KIND, DIVERTED_SCHEMA)]

    def change(
        self,
        change: Callable[[LedgerRows], LedgerRows],
        extents: pa.Table | None = None,
        transaction: tuple[str, int] | None = None,
        settings: Callable[[], pa.Table | None] = lambda: None,
        diverted: pa.Table | None = None,
    ) -> None:
        """Commit changed rows, and extents that come with them, in one version.

        If only maintenance committed since this state was read, its changes are taken over.

        Args:
            change: of the rows; called again on rows that maintenance has changed.
            extents: to add; of `EXTENTS_SCHEMA`.
            transaction: query id and number of a micro-batch.
            settings: returns those of topics, in place of those before, of `SETTINGS_SCHEMA`; called again as `change`.
            diverted: invalid rows in place of those before, of `DIVERTED_SCHEMA`; None leaves these.

        Raises:
            WriterFencedError: another writer committed since this state was read.
            CommitStateUnknownError: the storage never said whether the commit counts.
            StorageError: the storage refuses; nothing is committed.
        """
        while True:
            own = settings()
            added = {EXTENT_KIND: extents, SETTINGS_KIND: own, DIVERTED_KIND: diverted}
            parts = {kind: table for kind, table in added.items() if table is not None and len(table)}
            replaced = [ROWS_KIND] + ([] if own is None else [SETTINGS_KIND])
            replaced += [] if diverted is None else [DIVERTED_KIND]
            try:
                self._commit(change(self._rows), parts, replaced, transaction)
                return
            except WriterFencedError:
                before = self._rows
                self.reload()
                if not before.differs_by_maintenance_only(self._rows):
                    raise
                named = [each.column("object").to_pylist() for each in (extents, diverted) if each is not None]
                self._require_objects(set().union(*named))

    def rewrite(
        self,
        change: Callable[[LedgerRows, dict[TopicPartition, list[Extent]]], LedgerRows | None],
        now_ms: int,
        removed: Collection[str] = (),
        orphans: Collection[str] = (),
        lost: Callable[[list[LostRange]], list[LostRange]] | None = None,
    ) -> bool:
        """Commit changed rows and the extents of all logs in place of those before; for maintenance.

        Objects that no extent names any more are garbage from then on.

        Args:
            change: returns the rows, and changes the given extents; None if there is nothing to do any more. Called
                again if a writer has committed meanwhile.
            now_ms: since when new garbage is.
            removed: garbage that is gone.
            orphans: objects that no version named before; those that none names now are garbage.
            lost: returns the offsets to record as lost, given those that are.

        Returns:
            whether there was a commit.

        Raises:
            WriterFencedError: writers commit all the time.
            CommitStateUnknownError, StorageError: as `change`.
        """
        for _ in range(_REWRITE_TRIES):
            self.reload()
            extents = self.extents()
            before = _objects(extents)
            rows = change(self._rows, extents)
            if rows is None:
                return False
            named = _objects(extents)
            self._require_objects(named - before)
            garbage = {name: since_ms for name, since_ms in self.garbage().items() if name not in removed}
            kept = named | {each.object for each in self.diverted()}
            garbage = dict.fromkeys((before | set(orphans)) - kept, now_ms) | garbage
            parts = {
                EXTENT_KIND: table_of(extents),
                GARBAGE_KIND: pa.table([[*garbage], [*garbage.values()]], schema=GARBAGE_SCHEMA),
            }
            replaced = [ROWS_KIND, EXTENT_KIND, GARBAGE_KIND]
            if lost is not None:
                ranges = [each.as_dict() for each in lost(self.lost())]
                parts[LOST_KIND] = pa.Table.from_pylist(ranges, schema=LOST_RANGES_SCHEMA)
                replaced.append(LOST_KIND)
            try:
                self._commit(rows, parts, replaced, None)
                return True
            except WriterFencedError as error:
                logger.info("A writer committed meanwhile: %s", error)
        raise WriterFencedError(f"writers commit to this store all the time: address={self._files.place.address}")

    def begin_writing(self) -> None:
        """Keep the ledger small from now on: this is the writer's."""
        self._tidy = ObjectTidy(self._files.storage, FOLDER, self.version)

    def fence(self) -> None:
        """Commit the next leader epoch of every log: writers before this one can't commit any more.

        Raises:
            WriterFencedError: other writers open the store in the same moment, again and again.
        """
        for _ in range(_FENCE_TRIES):
            try:
                self.change(LedgerRows.with_next_epochs)
                return
            except WriterFencedError:
                self.reload()
        raise WriterFencedError(f"other writers open this store all the time: address={self._files.place.address}")

    def refresh(self) -> bool:
        """Read what was committed since, for a reader; return whether there was anything.

        Raises:
            LedgerDamagedError: it can't be read.
            StorageError: the storage does not answer.
        """
        version = self.version
        try:
            self._table.update_incremental()
            if self.version == version:
                return False
        except FAILURES as error:  # its writer may have removed the entries that follow this version
            logger.info("Reading the ledger anew: %s", error)
        self.reload()
        return self.version != version

    def reload(self) -> None:
        """Read the newest version; raises as `refresh`."""
        newest = ObjectLedger.open(self._files.place)
        self._table, self._rows = newest._table, newest._rows

    def _commit(
        self,
        rows: LedgerRows,
        parts: Mapping[str, pa.Table],
        replaced: Sequence[str],
        transaction: tuple[str, int] | None,
    ) -> None:
        """Commit rows, and other data files by their kind; those of some kinds go."""
        known, commit_id, before = self.version, uuid.uuid4().hex, self._files.by_kind(self._table)
        files = [(rows.to_table(), ROWS_KIND), *((table, kind) for kind, table in parts.items())]
        with ThreadPoolExecutor(len(files)) as pool:  # a new file on HDFS takes half a second
            added = list(pool.map(lambda each: self._files.write(*each), files))
        reach("commit.data")
        properties = CommitProperties(
            max_commit_retries=0,
            app_transactions=[Transaction(*transaction)] if transaction else None,
            custom_metadata={COMMIT_ID: commit_id},
        )
        try:
            self._table.create_write_transaction(
                added,
                mode="overwrite",
                schema=self._table.schema(),
                partition_by=[PARTITION],
                partition_filters=[(PARTITION, "in", list(replaced))],
                commit_properties=properties,
                post_commithook_properties=NO_HOOKS,
            )
            self._table.update_incremental()
            if self.version != known + 1:  # another commit came after it
                self._table.load_as_version(known + 1)
        except FAILURES as error:
            paths = {each.path for each in added}
            self._table = settle_commit(self._files, known, commit_id, paths, transaction, error)
        reach("commit.written")
        self._rows = rows
        if self._tidy is not None:
            old = [name for kind in replaced for name in before.get(kind, ())]
            self._tidy.after_commit(self._table, old, self._names)

    def _extents_in(self, name: str) -> pa.Table:
        try:
            return self._files.read(name, EXTENTS_SCHEMA)
        except DAMAGE as error:
            raise self._files.damaged(error) from error

    def _rows_of(self, kind: str, schema: pa.Schema) -> list[dict[str, Any]]:
        try:
            return [row for name in self._names_of(kind) for row in self._files.read(name, schema).to_pylist()]
        except DAMAGE as error:
            raise self._files.damaged(error) from error

    def _names_of(self, kind: str) -> list[str]:
        return self._files.by_kind(self._table).get(kind, [])

    def _names(self) -> set[str]:
        return {name for names in self._files.by_kind(self._table).values() for name in names}

    def _require_objects(self, names: Collection[str]) -> None:
        """Refuse objects that maintenance has taken for orphans meanwhile: they are gone, or will be.

        Of a version that does not list them as garbage none is removed before the next commit, which would conflict.

        Raises:
            StorageError: there is one; nothing is committed.
        """
        garbage = self.garbage() if names else {}
        for name in sorted(names):
            if name in garbage:
                raise StorageError(f"an object was given up before its commit: {self._files.place.address.child(name)}")
            self._files.storage.read_ranges(name, [0], [1])


def _objects(extents: Mapping[TopicPartition, Sequence[Extent]]) -> set[str]:
    return {each.object for held in extents.values() for each in held}


def _go_to(table: DeltaTable, as_of: AsOf, place: StoragePlace) -> None:
    """Load an earlier version.

    Raises:
        InvalidConfigError: the ledger does not hold it.
    """
    absent = _absent(table, as_of, place)
    try:
        if as_of.version is not None:
            table.load_as_version(as_of.version)
        else:
            table.load_as_version(datetime.fromtimestamp((as_of.timestamp_ms or 0) / 1000, UTC))
    except FAILURES as error:
        raise InvalidConfigError(absent) from error


def _absent(table: DeltaTable, as_of: AsOf, place: StoragePlace) -> str:
    newest = table.version()
    return f"the ledger does not hold {as_of} any more, or never did: newest_version={newest} address={place.address}"
