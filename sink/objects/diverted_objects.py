"""Invalid rows of a store of objects: Parquet objects below `quarantine`, each row once.

    data/<query>/<micro-batch>/<writer>/<task>-<id>.parquet     a task wrote it; the micro-batch's commit names it
    quarantine/query-<query>/<micro-batch>/<task>-<id>.parquet  the same bytes, after the commit

So `quarantine` has rows of committed micro-batches alone, also if a writer sleeps while another one takes the store.
Killed after its commit, the rows are published by the next writer: the ledger names them until the next micro-batch.
"""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

import pyarrow as pa

from sparklog.storage_core.errors import ObjectExistsError, ObjectMissingError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.objects.object_storage import ObjectStorage

__all__ = ["DIVERTED_SCHEMA", "QUARANTINE", "DivertedObject", "diverted_table", "publish_diverted"]

QUARANTINE: Final = "quarantine"
"""Folder of invalid rows, inside a store of objects."""

DIVERTED_SCHEMA: Final = pa.schema([("object", pa.string()), ("query_id", pa.string()), ("batch_id", pa.int64())])


@dataclass(frozen=True, slots=True)
class DivertedObject:
    """Invalid rows of one task, in a micro-batch that is committed."""

    object: str
    query_id: str
    batch_id: int

    @property
    def published(self) -> str:
        """Name of the object that users read."""
        return f"{QUARANTINE}/query-{self.query_id}/{self.batch_id}/{PurePosixPath(self.object).name}"


def diverted_table(diverted: Iterable[DivertedObject]) -> pa.Table:
    """Return rows of `DIVERTED_SCHEMA`."""
    rows = [{name: getattr(each, name) for name in DIVERTED_SCHEMA.names} for each in diverted]
    return pa.Table.from_pylist(rows, schema=DIVERTED_SCHEMA)


def publish_diverted(storage: ObjectStorage, diverted: Iterable[DivertedObject]) -> None:
    """Copy objects that are not published yet, then remove what their tasks wrote.

    Raises:
        StorageError: the storage refuses; the next call completes it.
    """
    done = []
    for each in diverted:
        try:
            data = storage.read(each.object)
        except ObjectMissingError:
            continue  # it goes only once it is published
        with contextlib.suppress(ObjectExistsError):  # by a call that was killed before its removal
            storage.create(each.published, data)
        reach("commit.quarantined")
        done.append(each.object)
    storage.remove(done)
