"""The files of the ledger of a store of objects: a Delta table with rows of several kinds.

| kind       | rows                                                              | a commit            |
|------------|-------------------------------------------------------------------|---------------------|
| `log`      | the ledger's row of each log                                      | replaces them       |
| `extent`   | which bytes of which object hold which offsets                    | adds some, or       |
|            |                                                                   | replaces all        |
| `settings` | of each topic                                                     | replaces them       |
| `garbage`  | objects that no extent names any more, and since when             | replaces them       |
| `lost`     | offsets that a repair could not save                              | replaces them       |
| `diverted` | invalid rows of the newest micro-batch, to be published           | replaces them       |

A data file never changes; Parquet's checksums of pages find a changed bit.
"""

import io
import json
import time
import uuid
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from sparklog.sink.delta.damage import one_line
from sparklog.sink.delta.entries import LAST_CHECKPOINT_PATH, entry_path
from sparklog.sink.delta.tidy import SHORT_PAST
from sparklog.sink.ledger.lost_ranges import LOST_RANGES_SCHEMA
from sparklog.sink.ledger.rows import LEDGER_PARTITION, LEDGER_SCHEMA
from sparklog.sink.objects.diverted_objects import DIVERTED_SCHEMA
from sparklog.sink.objects.extents import EXTENTS_SCHEMA
from sparklog.sink.store.topic_configs import own_properties
from sparklog.storage_core.errors import (
    InvalidConfigError,
    LedgerDamagedError,
    ObjectExistsError,
    ObjectMissingError,
    StorageError,
)
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.objects.open_storage import StoragePlace

__all__ = [
    "DAMAGE",
    "DIVERTED_KIND",
    "EXTENT_KIND",
    "FAILURES",
    "FOLDER",
    "GARBAGE_KIND",
    "GARBAGE_SCHEMA",
    "LOST_KIND",
    "PARTITION",
    "ROWS_KIND",
    "SETTINGS_KIND",
    "SETTINGS_SCHEMA",
    "LedgerFiles",
    "changed_settings",
]

FOLDER: Final = "ledger"
PARTITION, ROWS_KIND = LEDGER_PARTITION
EXTENT_KIND: Final = "extent"
SETTINGS_KIND: Final = "settings"
GARBAGE_KIND: Final = "garbage"
LOST_KIND: Final = "lost"
DIVERTED_KIND: Final = "diverted"

SETTINGS_SCHEMA: Final = pa.schema([("topic", pa.string()), ("settings", pa.string())])
"""Columns of a data file with the settings of topics: Kafka's properties as JSON."""
GARBAGE_SCHEMA: Final = pa.schema([("object", pa.string()), ("since_ms", pa.int64())])
"""Columns of a data file with garbage."""
_SCHEMA: Final = pa.schema(
    [
        *LEDGER_SCHEMA,
        *(field.with_nullable(True) for field in EXTENTS_SCHEMA if field.name not in LEDGER_SCHEMA.names),
        SETTINGS_SCHEMA.field("settings"),
        GARBAGE_SCHEMA.field("since_ms"),
        *(field.with_nullable(True) for field in LOST_RANGES_SCHEMA if field.name not in LEDGER_SCHEMA.names),
        *(field for field in DIVERTED_SCHEMA if field.name not in EXTENTS_SCHEMA.names),
    ]
)
"""Of the table: rows of each kind have their own columns, the others are null."""

FAILURES: Final = (DeltaError, OSError, ValueError)
"""What `deltalake` raises if its storage refuses, or another commit was first."""
DAMAGE: Final = (ValueError, OSError, KeyError, pa.ArrowException, ObjectMissingError)
"""What libraries raise over a damaged data file."""
_OPEN_TRIES: Final = 5
_PROBE: Final = "control/probe"


def changed_settings(before: Mapping[str, dict[str, Any]], own: Mapping[str, LogConfig]) -> pa.Table | None:
    """Return settings with those of some topics replaced, as rows of `SETTINGS_SCHEMA`; None if nothing changes."""
    after = {**before, **{topic: own_properties(config) for topic, config in own.items()}}
    if after == before:
        return None
    names = sorted(after)
    return pa.table([names, [json.dumps(after[name]) for name in names]], schema=SETTINGS_SCHEMA)


class LedgerFiles:
    """The table's files in a storage."""

    def __init__(self, place: StoragePlace) -> None:
        self.place = place
        self.storage = place.open()

    def create(self) -> bool:
        """Make an empty table; return whether it is certainly this call's, not another writer's in the same moment.

        Raises:
            InvalidConfigError: the storage does not let one of two writers win.
            StorageError: the storage refuses.
        """
        self._require_exclusive_creation()
        try:
            DeltaTable.create(
                self._uri,
                _SCHEMA,
                mode="error",
                partition_by=PARTITION,
                configuration=SHORT_PAST,
                storage_options=dict(self.place.options),
            )
        except FAILURES as error:
            if self.find() is None:
                raise self.refused(error) from error
            return False
        return True

    def find(self) -> DeltaTable | None:
        """Return the table at its newest version; None if there is none.

        Raises:
            InvalidConfigError: the ledger is that of a store of a machine.
            StorageError: the storage refuses.
        """
        try:
            table = self.open()
        except TableNotFoundError:
            return None
        except FAILURES as error:
            raise self.refused(error) from error
        if not {field.name for field in table.schema().fields}.issuperset(_SCHEMA.names):
            raise InvalidConfigError(
                f"this is a store of a machine, not one of objects: give its path, not an address: {self.place.address}"
            )
        return table

    def open(self) -> DeltaTable:
        """Return the table at its newest version; raises what `deltalake` does.

        A writer may remove the entries that are being read, once it has summed them up: then another try finds its
        newer checkpoint.
        """
        for _ in range(_OPEN_TRIES):
            try:
                return DeltaTable(self._uri, storage_options=dict(self.place.options))
            except TableNotFoundError:
                raise
            except FAILURES:
                if not self._has_checkpoint():
                    raise
        return DeltaTable(self._uri, storage_options=dict(self.place.options))

    def _has_checkpoint(self) -> bool:
        try:
            self.storage.read(f"{FOLDER}/{LAST_CHECKPOINT_PATH}")
        except StorageError:
            return False
        return True

    def by_kind(self, table: DeltaTable) -> dict[str, list[str]]:
        """Return the data files of a version by their kind."""
        files: Any = table.get_add_actions(flatten=True)
        values, found = files.column(f"partition.{PARTITION}").to_pylist(), dict[str, list[str]]()
        for name, kind in zip(files.column("path").to_pylist(), values, strict=True):
            found.setdefault(kind, []).append(name)
        return found

    def read(self, name: str, schema: pa.Schema) -> pa.Table:
        """Return the rows of a data file; raises one of `DAMAGE`."""
        data = self.storage.read(f"{FOLDER}/{name}")
        found = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True)
        part = found.read(schema.names, use_threads=False).select(schema.names)
        return part if part.schema.equals(schema) else part.cast(schema)

    def read_entry(self, version: int) -> list[dict[str, Any]]:
        """Return the lines of a log entry.

        Raises:
            ObjectMissingError: there is none.
            ValueError: it is damaged.
        """
        return [json.loads(line) for line in self.storage.read(f"{FOLDER}/{entry_path(version)}").splitlines()]

    def write(self, rows: pa.Table, kind: str) -> AddAction:
        """Write rows to a data file that no entry names yet."""
        buffer = io.BytesIO()
        pq.write_table(rows, buffer, write_page_checksum=True)
        data = buffer.getvalue()
        name = f"{PARTITION}={kind}/part-00000-{uuid.uuid4()}-c000.snappy.parquet"
        self.storage.create(f"{FOLDER}/{name}", data)
        return AddAction(
            path=name,
            size=len(data),
            partition_values={PARTITION: kind},
            modification_time=time.time_ns() // 1_000_000,
            data_change=True,
            stats=json.dumps({"numRecords": len(rows)}),
        )

    def damaged(self, error: Exception) -> LedgerDamagedError:
        """Return our error for one of `DAMAGE`."""
        return LedgerDamagedError(f"the ledger can't be read: address={self.place.address} ({one_line(error)})")

    def refused(self, error: Exception) -> StorageError:
        """Return our error for one of `FAILURES`."""
        return StorageError(f"the ledger can't be reached: address={self.place.address} ({one_line(error)})")

    @property
    def _uri(self) -> str:
        return str(self.place.address.child(FOLDER))

    def _require_exclusive_creation(self) -> None:
        """Refuse a storage that lets a second writer replace an object: there two commits would both count."""
        name = f"{_PROBE}-{uuid.uuid4().hex}"
        self.storage.create(name, b"first")
        try:
            self.storage.create(name, b"second")
        except ObjectExistsError:
            return
        finally:
            self.storage.remove([name])
        raise InvalidConfigError(
            f"this storage has no conditional put, so two writers could both commit: address={self.place.address}"
        )
