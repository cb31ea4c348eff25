"""Invalid rows of a store of objects: Parquet objects below `quarantine`, each row once.

    data/<query>/<micro-batch>/<writer>/<task>-<id>.parquet     a task wrote it; the micro-batch's commit names it
    quarantine/query-<query>/<micro-batch>/<task>-<id>.parquet  the same bytes, after the commit

So `quarantine` has rows of committed micro-batches alone, also if a writer sleeps while another one takes the store.
Killed after its commit, the rows are published by the next writer: the ledger names them until the next micro-batch.
"""

import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

import pyarrow as pa

from sparklog.storage_core.errors import ObjectExistsError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.objects.object_storage import ObjectStorage

__all__ = ["DIVERTED_SCHEMA", "QUARANTINE", "DivertedObject", "diverted_table", "publish_diverted"]

logger = logging.getLogger(__name__)

_THREADS: Final = 8
_COPIED_BYTES: Final = 32 << 20

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


def publish_diverted(storage: ObjectStorage, diverted: Sequence[DivertedObject]) -> None:
    """Copy objects that are not published yet, and remove each that its task wrote.

    Raises:
        StorageError: the storage refuses; the next call completes it.
    """
    folders = {str(PurePosixPath(each.object).parent) for each in diverted}
    sizes = {each.name: each.size_bytes for folder in sorted(folders) for each in storage.list(folder)}
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="quarantine") as pool:
        list(pool.map(lambda each: _publish(storage, each, sizes.get(each.object)), diverted))


def _publish(storage: ObjectStorage, diverted: DivertedObject, size_bytes: int | None) -> None:
    """Copy and remove one object; without a size there is none, as it goes once it is published."""
    if size_bytes is None:
        if not any(storage.list(str(PurePosixPath(diverted.published).parent))):
            logger.warning("Invalid rows are neither with their task nor in quarantine: object=%s", diverted.object)
        return
    with suppress(ObjectExistsError):  # by a call that was killed before its removal
        if size_bytes <= _COPIED_BYTES:
            storage.create(diverted.published, storage.read(diverted.object))
        else:
            with storage.writing(diverted.published) as writing:
                for start in range(0, size_bytes, _COPIED_BYTES):
                    size = min(_COPIED_BYTES, size_bytes - start)
                    writing.write(*storage.read_ranges(diverted.object, [start], [size]))
    reach("commit.quarantined")
    storage.remove([diverted.object])
