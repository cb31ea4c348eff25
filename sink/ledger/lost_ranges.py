"""Offsets that a repair could not save, written down for ever.

In a store they are a Delta table, `control/lost_ranges`; beside a plain folder a file of JSON lines. Either is durable
before the bytes go: a crash in between leaves offsets that are written down and still there, never the other way.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from sparklog.sink.ledger.damage import damage_refused
from sparklog.sink.ledger.table_commit import commit_rows, create_table, data_file_names, table_uri
from sparklog.sink.ledger.table_entries import list_entries, read_actions
from sparklog.sink.ledger.torn import drop_torn_checkpoint, drop_torn_entry
from sparklog.storage_core.errors import LedgerDamagedError
from sparklog.storage_core.storage.local import make_directory, storage_errors, sync_directory, sync_files, write_all
from sparklog.storage_core.storage.open_regular import check_regular_files, open_to_change, read_file
from sparklog.storage_core.storage.owned_names import Owner, remove_tree

__all__ = ["LOST_RANGES_SCHEMA", "LostRange", "LostRangeFile", "LostRangeTable"]

LOST_RANGES_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("first_offset", pa.int64(), nullable=False),
        pa.field("last_offset", pa.int64()),
        pa.field("file", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("found_ms", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRange:
    """Offsets of one log that are gone.

    Attributes:
        last_offset: None where nobody knows how far the loss went: behind the end of a plain folder's log.
        file: where they were.
        reason: what a check said of them.
        found_ms: when they were written down.
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int | None
    file: str
    reason: str
    found_ms: int

    @property
    def place(self) -> tuple[str, int, int, int | None]:
        """What makes it the same loss when it is found again."""
        return self.topic, self.partition, self.first_offset, self.last_offset

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, for JSON."""
        return asdict(self)


class LostRangeTable:
    """The table of a store; only the owner of the writer lock adds to it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[LostRange]:
        """Return what is written down, oldest first.

        Raises:
            LedgerDamagedError: the table can't be read.
            StorageError: the disk refused.
        """
        if not self._entries():
            return []
        with damage_refused(self._path, "the table of lost offsets", "repair --execute drops what a power cut tore"):
            table = self._open()
            for entry in list_entries(self._path / "_delta_log", table.version()):
                read_actions(entry)  # Delta takes an empty one for one that says nothing
            files = [self._path / name for name in data_file_names(table)]
            parts = [pq.ParquetFile(file).read(LOST_RANGES_SCHEMA.names, use_threads=False) for file in files]
        rows = [LostRange(**row) for part in parts for row in part.to_pylist()]
        return sorted(rows, key=lambda each: (each.found_ms, *each.place[:3]))

    def add(self, ranges: Sequence[LostRange]) -> None:
        """Write down what is not yet, durably, in one commit."""
        known = {each.place for each in self.read()}
        new = [each.as_dict() for each in ranges if each.place not in known]
        if not new:
            return
        self._write(new, "append")

    def forget(self, topic: str) -> None:
        """Drop what is written down of a topic that is deleted, durably: a later one of that name has lost nothing."""
        self._keep([each for each in self.read() if each.topic != topic])

    def truncate(self, topic: str, partition: int, offset: int, gap: LostRange | None) -> None:
        """Drop what is written down of a log from an offset on, durably: other records will have these offsets.

        Args:
            topic: of the log.
            partition: of the log.
            offset: the log's new end.
            gap: offsets below it that go with a batch which reaches across it.
        """
        kept = []
        for each in self.read():
            if (each.topic, each.partition) != (topic, partition):
                kept.append(each)
            elif each.first_offset < offset:
                reaches_across = each.last_offset is None or each.last_offset >= offset
                kept.append(replace(each, last_offset=offset - 1) if reaches_across else each)
        self._keep([*kept, gap] if gap is not None and gap not in kept else kept)

    def _keep(self, ranges: Sequence[LostRange]) -> None:
        """Replace the table's content, in one commit."""
        if list(ranges) == self.read():
            return
        self._write([each.as_dict() for each in ranges], "overwrite")

    def _write(self, rows: list[dict[str, Any]], mode: Literal["append", "overwrite"]) -> None:
        """Commit rows, durably."""
        with storage_errors(self._path):
            make_directory(self._path)
            if not self._entries():
                create_table(self._path, LOST_RANGES_SCHEMA)
                self._make_durable()
            commit_rows(self._path, self._open(), pa.Table.from_pylist(rows, schema=LOST_RANGES_SCHEMA), mode, {})
            self._make_durable()

    def _open(self) -> DeltaTable:
        with storage_errors(self._path):
            check_regular_files(self._path, self._path / "_delta_log")
        return DeltaTable(table_uri(self._path))

    def drop_torn(self, owner: Owner) -> None:
        """Drop what a power cut tore: nobody was told that it is written down, and what is lost is still to be found.

        Comes before anything is read: a torn entry would refuse every check of the store, the repair's own too.
        """
        with storage_errors(self._path):
            if self._path.exists() and not self._entries():
                remove_tree(owner, self._path)  # what came before the entry that makes the table
        drop_torn_checkpoint(self._path, owner)
        try:
            drop_torn_entry(self._path, owner)
        except LedgerDamagedError:
            if len(self._entries()) > 1:
                raise
            remove_tree(owner, self._path)  # the entry that made the table

    def _entries(self) -> list[str]:
        """List what makes up the table's log; a folder without any is no table, or not yet."""
        log = self._path / "_delta_log"
        names = os.listdir(log) if log.is_dir() else []
        return [name for name in names if name.endswith((".json", ".checkpoint.parquet"))]

    def _make_durable(self) -> None:
        table = self._open()
        log = self._path / "_delta_log"
        sync_files([self._path / name for name in data_file_names(table)])
        sync_files([log / f"{table.version():020}.json"])
        sync_directory(log)
        sync_directory(self._path)


class LostRangeFile:
    """The file beside a plain folder, one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[LostRange]:
        """Return what is written down, oldest first; a torn last line was never confirmed, and is passed over."""
        with storage_errors(self._path):
            lines = read_file(self._path).split(b"\n")[:-1] if self._path.exists() else []
        try:
            return [LostRange(**json.loads(line)) for line in lines]
        except (ValueError, TypeError) as error:
            raise LedgerDamagedError(f"the list of lost offsets can't be read: path={self._path} ({error})") from error

    def add(self, ranges: Sequence[LostRange]) -> None:
        """Write down what is not yet, durably."""
        known = {each.place for each in self.read()}
        new = b"".join(json.dumps(each.as_dict()).encode() + b"\n" for each in ranges if each.place not in known)
        if not new:
            return
        with storage_errors(self._path):
            make_directory(self._path.parent)
            descriptor = open_to_change(self._path, os.O_RDWR | os.O_CREAT)
            try:
                end = os.pread(descriptor, os.fstat(descriptor).st_size, 0).rfind(b"\n") + 1
                write_all(descriptor, new, end)
                os.ftruncate(descriptor, end + len(new))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            sync_directory(self._path.parent)
