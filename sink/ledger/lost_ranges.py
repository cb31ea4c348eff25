"""Offsets that a repair could not save, recorded for good.

A store has them in a Delta table, `control/lost_ranges`, a plain folder in a file of JSON lines beside it. The repair
syncs the record before it removes the bytes. So a crash in between leaves offsets that are recorded and not yet gone,
but never offsets that are gone and not recorded.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from sparklog.sink.delta.damage import Damage
from sparklog.sink.delta.delta_log import DeltaLog
from sparklog.sink.delta.torn import drop_torn_commit
from sparklog.storage_core.errors import LedgerDamagedError
from sparklog.storage_core.storage.local import make_directory, storage_errors, sync_directory, write_all
from sparklog.storage_core.storage.open_regular import open_to_change, read_file
from sparklog.storage_core.storage.owned_names import Owner

__all__ = ["LOST_RANGES_SCHEMA", "LostRange", "LostRangeFile", "LostRangeTable", "cut_folder_beside"]

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
_LIST = "lost-ranges.jsonl"
_DAMAGE = Damage("the table of lost offsets", "repair --execute drops what a power cut tore")


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRange:
    """Offsets of one log that are gone.

    Attributes:
        last_offset: None if it is unknown, for a loss at the end of a plain folder's log.
        file: that held them.
        reason: finding of the check.
        found_ms: when they were recorded.
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
        """The fields that two records of the same loss have in common."""
        return self.topic, self.partition, self.first_offset, self.last_offset

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, for JSON."""
        return asdict(self)


class LostRangeTable:
    """The table of a store; only the owner of the writer lock adds to it."""

    def __init__(self, path: Path) -> None:
        self._log = DeltaLog(path, _DAMAGE)

    def read(self) -> list[LostRange]:
        """Return the recorded ranges, oldest first.

        Raises:
            LedgerDamagedError: the table can't be read.
            StorageError: the disk refused.
        """
        if not self._log.files():
            return []
        with self._log.refusing_damage():
            table = self._log.open()
            list(self._log.read_entries(table.version()))  # Delta takes an empty one for one without actions
            rows = [LostRange(**row) for row in self._log.read(table, LOST_RANGES_SCHEMA).to_pylist()]
        return sorted(rows, key=lambda each: (each.found_ms, *each.place[:3]))

    def add(self, ranges: Sequence[LostRange]) -> None:
        """Record ranges that are not recorded yet, durably, in one commit."""
        known = {each.place for each in self.read()}
        new = [each.as_dict() for each in ranges if each.place not in known]
        if not new:
            return
        self._write(new, "append")

    def forget(self, topic: str) -> None:
        """Drop the ranges of a deleted topic, durably: a later topic of that name has lost nothing."""
        self._keep([each for each in self.read() if each.topic != topic])

    def truncate(self, topic: str, partition: int, offset: int, gap: LostRange | None) -> None:
        """Drop a log's ranges from an offset on, durably: other records will have these offsets.

        Args:
            topic: of the log.
            partition: of the log.
            offset: the log's new end.
            gap: offsets below the end that are lost with a batch across it.
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
        log, new = self._log, pa.Table.from_pylist(rows, schema=LOST_RANGES_SCHEMA)
        with storage_errors(log.path):
            make_directory(log.path)
            if not log.files():
                log.create(LOST_RANGES_SCHEMA)
                log.make_durable(log.open())
            log.commit(log.open(), new, mode, {})
            log.make_durable(log.open())

    def drop_torn(self, owner: Owner) -> None:
        """Drop a commit that a power cut tore: it was not acknowledged, and a check finds its ranges again.

        Call this before anything is read: with a torn entry every check of the store fails, the repair's own too.
        """
        drop_torn_commit(self._log, owner)


def cut_folder_beside(folder: Path) -> Path:
    """Return the folder for what a repair keeps of a plain folder: a broker would refuse it inside."""
    return folder.with_name(f"{folder.name}-cut")


class LostRangeFile:
    """The file of a plain folder, one JSON object a line.

    Args:
        cut_folder: where it lies.
    """

    def __init__(self, cut_folder: Path) -> None:
        self._path = cut_folder / _LIST

    def read(self) -> list[LostRange]:
        """Return the recorded ranges, oldest first; skips a torn last line, which was never acknowledged."""
        with storage_errors(self._path):
            lines = read_file(self._path).split(b"\n")[:-1] if self._path.exists() else []
        try:
            return [LostRange(**json.loads(line)) for line in lines]
        except (ValueError, TypeError) as error:
            raise LedgerDamagedError(f"the list of lost offsets can't be read: path={self._path} ({error})") from error

    def add(self, ranges: Sequence[LostRange]) -> None:
        """Record ranges that are not recorded yet, durably."""
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
