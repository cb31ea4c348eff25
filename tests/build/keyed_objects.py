"""A compacted topic of ten keys in a store of objects, and the erasure of some of them."""

from contextlib import closing
from pathlib import Path

import pyarrow as pa

from sparklog.pipeline.maintenance.forget import forget_keys
from sparklog.sink.config import SinkConfig
from sparklog.sink.erasure.forget_request import ForgetRequest
from sparklog.sink.objects.fetch_store import fetch_store
from sparklog.sink.objects.maintaining.maintain_objects import MaintainedObjects, ObjectTask, maintain_objects
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.sink.objects.object_writer import ObjectWriter
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.objects.open_storage import StoragePlace
from tests.build.sink_store import Stored, in_process, read_log, rows

__all__ = [
    "KEYED",
    "append_keyed",
    "forget",
    "keyed_rows",
    "latest_records",
    "maintain",
    "request_names",
    "stored_bytes",
    "stored_records",
    "without",
]

KEYED: dict[str, dict[str, object]] = {
    "keyed": {
        "partitions": 2,
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": 1.0,
        "batch.size": 300,
        "segment.bytes": 2000,
    }
}
_KEYS = 10


def keyed_rows(batch: int) -> pa.RecordBatch:
    numbers = range(40 * batch, 40 * batch + 40)
    return rows(
        partition=[each % 2 for each in numbers],
        key=[f"k{each % _KEYS}" for each in numbers],
        value=[None if each % 7 == 6 else str(each) for each in numbers],
    )


def append_keyed(place: StoragePlace, first: int, last: int, settings: dict[str, object] | None = None) -> None:
    topics = {"keyed": KEYED["keyed"] | (settings or {})}
    config = SinkConfig.from_options(str(place.address), topics, topic="keyed", storage=place.options)
    assert config.objects is not None
    with closing(ObjectWriter(config, config.objects, SystemClock())) as writer:
        for batch in range(first, last):
            writer.append("query", batch, in_process(keyed_rows(batch)))


def forget(place: StoragePlace, *keys: str) -> ForgetRequest:
    wanted = pa.array([key.encode() for key in keys], pa.binary())
    return forget_keys(place, "keyed", wanted, SystemClock()).request


def maintain(place: StoragePlace) -> list[ObjectTask]:
    return [*maintain_objects(MaintainedObjects(place, SystemClock(), 1 << 20))]


def latest_records(place: StoragePlace, folder: Path) -> dict[bytes, Stored]:
    """Return the last record of each key: a log that is cleaned for an erasure is compacted, too."""
    return {each.key: each for each in stored_records(place, folder) if each.key is not None}


def stored_records(place: StoragePlace, folder: Path) -> list[Stored]:
    folder.mkdir()
    fetch_store(ObjectLedger.open(place), folder, lambda _log: True)
    return [record for each in sorted(folder.iterdir()) if each.is_dir() for record in read_log(each)]


def without(latest: dict[bytes, Stored], *keys: bytes) -> dict[bytes, Stored]:
    return {key: each for key, each in latest.items() if key not in keys}


def stored_bytes(place: StoragePlace) -> bytes:
    """Return the bytes of all objects with batches, in any order."""
    storage = place.open()
    return b"".join(storage.read(each.name) for each in storage.list("data"))


def request_names(place: StoragePlace) -> list[str]:
    return [each.name for each in place.open().list("control/forgotten")]
