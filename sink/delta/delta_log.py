"""A small Delta table of a store: its log entries, checkpoints and data files on a local disk, and their fsync order.

The ledger, the lost ranges and the control tables are such tables. All commits of Sparklog go through here; Spark
commits to control tables itself.

A commit syncs the data file and its folder, then writes the log entry; `make_durable` syncs the entry. `deltalake` only
writes the entry: its writer of data files prints a Rust trace if the disk is full, and it syncs nothing. If the data
file were synced after the entry, a power cut could keep the entry and lose the data file, as if the file of a committed
entry had been deleted later. In this order a power cut can tear only the entry.
"""

import io
import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.transaction import AddAction

from sparklog.sink.delta.damage import Damage, file_named
from sparklog.sink.delta.entries import (
    ACTION_COUNT,
    ENTRY,
    checkpoint_version,
    entry_version,
    leading_version,
    read_actions,
)
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.storage.local import storage_errors, sync_directory, sync_files, write_all
from sparklog.storage_core.storage.open_regular import check_regular_files, open_to_change
from sparklog.storage_core.storage.owned_names import UNSHARED, Owner

__all__ = ["NO_HOOKS", "DeltaLog"]

NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""Of a commit: nothing is tidied by the way."""

_Read = TypeVar("_Read")
_READ_TRIES = 10
_NO_RETRY_COUNT = 0


class DeltaLog:
    """The files of one Delta table.

    Args:
        path: of the table's folder; it need not exist.
        damage: how the table's damage is reported.

    Attributes:
        folder: of the entries and checkpoints.
    """

    def __init__(self, path: Path, damage: Damage) -> None:
        self.path = path
        self.damage = damage
        self.folder = path / "_delta_log"

    def files(self) -> list[str]:
        """Return the names of entries, checkpoints and files that end alike; none where there is no table yet."""
        with storage_errors(self.folder):
            names = os.listdir(self.folder) if self.folder.is_dir() else []
        # macOS puts `._*` files beside others
        return [name for name in names if name.endswith((ENTRY, ".parquet")) and not name.startswith(".")]

    def newest_version(self) -> int:
        """Return the version of the newest entry; -1 if there is none."""
        return max((version for name in self.files() if (version := entry_version(name)) is not None), default=-1)

    def last_version(self) -> int:
        """Return the version of the newest entry or checkpoint; -1 if there is none."""
        return max((version for name in self.files() if (version := leading_version(name)) is not None), default=-1)

    def entry(self, version: int) -> Path:
        """Return the path of a version's entry."""
        return self.folder / f"{version:020}{ENTRY}"

    def checkpoint(self, version: int) -> Path:
        """Return the path of a version's checkpoint."""
        return self.folder / f"{version:020}.checkpoint.parquet"

    def checkpoints(self) -> set[int]:
        """Return the versions of all checkpoints."""
        return {version for name in self.files() if (version := checkpoint_version(name)) is not None}

    def parts(self, version: int) -> list[Path]:
        """Return the files that make up a version: a checkpoint and all entries since; some may be missing."""
        begin = self._last_checkpoint(version)
        found = [self.folder / name for name in self.files() if begin >= 0 and checkpoint_version(name) == begin]
        return found + [self.entry(number) for number in range(begin + 1, version + 1)]

    def read_entries(self, version: int) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """Yield version and lines of the entries since the last checkpoint, and of the checkpoint's own if it is there.

        Args:
            version: the last one.

        Raises:
            ValueError: one of them is missing or damaged, a later one lies above a gap, or a file among them is none.
        """
        names = self.files()
        foreign = sorted(name for name in names if name.endswith(ENTRY) and entry_version(name) is None)
        if foreign:
            raise ValueError(f"a file among its entries is none: file={foreign[0]}; move it away")
        found = {number for name in names if (number := entry_version(name)) is not None}
        first = self._last_checkpoint(version)
        missing = sorted({*range(first + 1, version + 1), version} - found)
        if not missing and version + 1 not in found and max(found) > version:
            missing = [version + 1]
        if missing:
            raise self._missing(missing[0])
        for number in range(max(first, 0), version + 1):
            if number in found:
                yield number, read_actions(self.entry(number))

    def refusing_damage(self) -> AbstractContextManager[None]:
        """Turn what libraries raise over this table's damage into its error, as `Damage.refused` does."""
        return self.damage.refused(self.path)

    def read_beside_writer(self, read: Callable[[], _Read]) -> _Read:
        """Return what a function reads of the table; again if a writer has added or tidied entries meanwhile.

        Raises:
            LogStorageError: of the table's damage: it failed, and no entry had come or gone.
            StorageError: the kernel refused to read.
        """
        tries_left = _READ_TRIES
        while True:
            before, tries_left = set(self.files()), tries_left - 1
            try:
                with self.refusing_damage():
                    return read()
            except self.damage.error:
                if not tries_left or set(self.files()) == before:
                    raise

    def open(self, version: int | None = None) -> DeltaTable:
        """Open the table at a version, by default the newest; to be called inside `refusing_damage`.

        Raises:
            StorageError: something else than files lies in the folders.
        """
        with storage_errors(self.path):
            check_regular_files(self.path, self.folder)
        try:
            return DeltaTable(self._uri(), version=version)
        except Exception:
            self._name_damaged(self.last_version() if version is None else version)  # the library does not
            raise

    def data_files(self, table: DeltaTable, partition: tuple[str, str] | None = None) -> list[Path]:
        """Return the data files of a version, which lie side by side.

        Args:
            table: at the version.
            partition: column and value of the partition that is asked for; None for all.
        """
        if partition is None:
            return [self.path / unquote(uri.rpartition("/")[2]) for uri in table.file_uris()]
        return self.files_by_partition(table, partition[0]).get(partition[1], [])

    def files_by_partition(self, table: DeltaTable, column: str) -> dict[str, list[Path]]:
        """Return the data files of a version by their value of the partition column."""
        files, found = table.get_add_actions(flatten=True), dict[str, list[Path]]()  # quicker than a predicate
        values = files.column(f"partition.{column}").to_pylist()
        for name, value in zip(files.column("path").to_pylist(), values, strict=True):
            found.setdefault(value, []).append(self.path / name)
        return found

    def read(self, table: DeltaTable, schema: pa.Schema, partition: tuple[str, str] | None = None) -> pa.Table:
        """Return rows of a version; to be called inside `refusing_damage`.

        Args:
            table: at the version.
            schema: names and types of the columns to read.
            partition: as for `data_files`.
        """
        return self.read_files(self.data_files(table, partition), schema)

    def read_files(self, files: Iterable[Path], schema: pa.Schema) -> pa.Table:
        """Return rows of data files; to be called inside `refusing_damage`."""
        parts = [_read_file(file, schema) for file in files]
        return pa.concat_tables([pa.Table.from_batches([], schema), *parts])

    def create(
        self, schema: pa.Schema, configuration: dict[str, str] | None = None, partition_by: str | None = None
    ) -> None:
        """Make an empty table; its first entry is not synced yet."""
        DeltaTable.create(self._uri(), schema, mode="error", partition_by=partition_by, configuration=configuration)

    def commit(
        self,
        table: DeltaTable,
        rows: pa.Table,
        mode: Literal["append", "overwrite"],
        metadata: Mapping[str, str],
        transactions: Sequence[Transaction] = (),
        partition: tuple[str, str] | None = None,
        owner: Owner = UNSHARED,
        dropped: Sequence[str] = (),
    ) -> None:
        """Add the next version; its entry is not synced yet, and `table` stays at the version before.

        Args:
            table: at its newest version.
            rows: to add; without the partition column.
            mode: whether they replace others, and if a partition is given its rows alone.
            metadata: for the entry's first line.
            transactions: that come with them.
            partition: column and value of the partition that they belong to; None where a table has none.
            owner: checked, and held while the entry is written: for a table whose versions show no other writer.
            dropped: further values of the partition column whose rows go, too; of an overwriting commit.

        Raises:
            CommitFailedError: another writer has added that version.
        """
        replaced = self._count_replaced(table, partition, dropped) if mode == "overwrite" else 0
        added = [self.write_data_file(rows, partition)] if len(rows) else []
        reach("commit.data")
        properties = CommitProperties(
            max_commit_retries=_NO_RETRY_COUNT,
            app_transactions=list(transactions) or None,
            custom_metadata={**metadata, ACTION_COUNT: str(len(added) + replaced + len(transactions))},
        )
        with owner.holding():
            self.write_entry(table, added, mode, properties, partition, dropped)

    def write_entry(
        self,
        table: DeltaTable,
        added: list[AddAction],
        mode: Literal["append", "overwrite"],
        properties: CommitProperties,
        partition: tuple[str, str] | None = None,
        dropped: Sequence[str] = (),
    ) -> None:
        """Write the log entry of the next version."""
        table.create_write_transaction(
            added,
            mode=mode,
            schema=table.schema(),
            partition_by=None if partition is None else [partition[0]],
            partition_filters=None if partition is None else [(partition[0], "in", [partition[1], *dropped])],
            commit_properties=properties,
            post_commithook_properties=NO_HOOKS,
        )

    def write_data_file(self, rows: pa.Table, partition: tuple[str, str] | None) -> AddAction:
        """Write rows to a file that no entry names yet, durably."""
        name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
        buffer = io.BytesIO()
        pq.write_table(rows, buffer, write_page_checksum=True)
        data = buffer.getvalue()
        descriptor = open_to_change(self.path / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            write_all(descriptor, data, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_directory(self.path)
        return AddAction(
            path=name,
            size=len(data),
            partition_values=dict([partition] if partition else []),
            modification_time=time.time_ns() // 1_000_000,
            data_change=True,
            stats=json.dumps({"numRecords": len(rows)}),
        )

    def make_durable(self, table: DeltaTable) -> None:
        """Sync a version: its data files, its entry, and both folders."""
        version = int(table.version())
        try:
            sync_files(self.data_files(table))
            sync_files([self.entry(version)])
        except FileNotFoundError:
            if self.open().version() <= version:
                raise
            # Another commit came since, whose author synced this version first, and the writer has tidied it up.
        sync_directory(self.path)
        sync_directory(self.folder)

    def _count_replaced(self, table: DeltaTable, partition: tuple[str, str] | None, dropped: Sequence[str]) -> int:
        """Return the number of data files that an entry removes, each once: too high a count calls it torn."""
        if partition is None:
            return len(self.data_files(table))
        files = self.files_by_partition(table, partition[0])
        return sum(len(files.get(each, ())) for each in {partition[1], *dropped})

    def _name_damaged(self, version: int) -> None:
        for file in self.parts(version):
            if (number := entry_version(file.name)) is None:
                with file_named(file):
                    pq.ParquetFile(file).read(use_threads=False)
            elif file.exists():
                read_actions(file)
            else:
                raise self._missing(number)

    def _missing(self, version: int) -> ValueError:
        names = self.entry(version).name, self.entry(self.last_version()).name
        return ValueError(f"an entry is missing: file={names[0]} newest={names[1]}")

    def _last_checkpoint(self, version: int) -> int:
        return max((each for each in self.checkpoints() if each <= version), default=-1)

    def _uri(self) -> str:
        """Return the folder as a URI: `deltalake` takes a plain path for an encoded one."""
        return self.path.absolute().as_uri()


def _read_file(file: Path, schema: pa.Schema) -> pa.Table:
    with file_named(file):
        # Not `to_pyarrow_table`: its I/O threads may outlive a short command and abort the interpreter as it ends.
        found = pq.ParquetFile(file, page_checksum_verification=True)
        part = found.read(schema.names, use_threads=False).select(schema.names)
        # A cast, even to the same types, costs the import of pyarrow.compute.
        return part if part.schema.equals(schema) else part.cast(schema)
