"""A writer of a store of objects that tests kill, and what such a store must hold.

The store lies in a folder, unless `place.json` beside that names an address, options and a number of micro-batches.
"""

import io
import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from sparklog.pipeline.places.store_view import open_place
from sparklog.pipeline.verbs.read import read_records
from sparklog.sink.config import SinkConfig
from sparklog.sink.objects.maintaining import maintain_objects as maintain_objects_module
from sparklog.sink.objects.maintaining.maintain_objects import MaintainedObjects, maintain_objects
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.sink.objects.object_writer import ObjectWriter
from sparklog.storage_core.clock import SystemClock, sleep
from sparklog.storage_core.objects.open_storage import StoragePlace
from tests.build.sink_store import EVENTS, in_process, numbers, rows

__all__ = [
    "BATCHES",
    "DIVERTED_BATCHES",
    "divert_objects",
    "diverted_values",
    "maintain_again",
    "maintain_beside",
    "maintain_place",
    "object_place",
    "problems_of_objects",
    "put_place",
    "sweep_place",
    "write_objects",
]

BATCHES = 105
"""Enough for a checkpoint of the ledger."""
DIVERTED_BATCHES = 5
_ROWS = 4
_PAUSE_S = 10.0


def write_objects(root: Path) -> None:
    """Append numbers by two tasks in each micro-batch, from wherever the run before has ended."""
    config = _config(root)
    assert config.objects is not None
    with closing(ObjectWriter(config, config.objects, SystemClock())) as writer:
        for batch in range(_place(root)["batches"]):
            first = batch * _ROWS
            tasks = in_process(numbers(first, first + 1), numbers(first + 1, first + _ROWS))
            writer.append("query", batch, tasks)


def divert_objects(root: Path) -> None:
    """Append micro-batches of one valid and one invalid row, from wherever the run before has ended."""
    place = _place(root)
    config = SinkConfig.from_options(
        place["address"], EVENTS, topic="events", on_invalid="quarantine", storage=place["storage"]
    )
    assert config.objects is not None
    with closing(ObjectWriter(config, config.objects, SystemClock())) as writer:
        for batch in range(DIVERTED_BATCHES):
            found = rows(value=[f"good {batch}", f"bad {batch}"], timestamp=[batch, -9])
            writer.append("query", batch, in_process(found))


def diverted_values(root: Path) -> list[str]:
    """Return the values of the rows in quarantine, sorted."""
    storage = object_place(root).open()
    tables = [pq.read_table(io.BytesIO(storage.read(each.name))) for each in storage.list("quarantine")]
    return sorted(value.decode() for table in tables for value in table.column("value").to_pylist())


def maintain_place(root: Path) -> None:
    """Do one maintenance run; garbage goes at once."""
    maintain_objects_module._GARBAGE_AGE_MS = 0
    maintain_beside(root)


def maintain_beside(root: Path) -> None:
    """Do one maintenance run as users do, once there is a store; another one may be at work."""
    if ObjectLedger.find(object_place(root)) is None:
        return
    for task in maintain_objects(MaintainedObjects(object_place(root), SystemClock(), 1 << 20)):
        assert task.error is None, task


def maintain_again(root: Path) -> None:
    """Maintain again and again beside a writer and readers until `stop-maintenance` is there; garbage waits."""
    maintain_objects_module._GARBAGE_AGE_MS = 60_000
    while not root.with_name("stop-maintenance").exists():
        maintain_beside(root)
        sleep(_PAUSE_S)


def sweep_place(root: Path) -> None:
    """As `maintain_place`, and objects that no version names go at once, too: no writer may be at work."""
    maintain_objects_module._ORPHAN_AGE_MS = 0
    maintain_place(root)


def put_place(root: Path, address: str, storage: Mapping[str, str], batches: int) -> None:
    """Let the store lie at an address."""
    place = {"address": address, "storage": dict(storage), "batches": batches}
    root.with_name("place.json").write_text(json.dumps(place))


def object_place(root: Path) -> StoragePlace:
    """Return where the store lies."""
    place = _config(root).objects
    assert place is not None
    return place


def problems_of_objects(root: Path, batches: int | None = None) -> list[str]:
    """Return what is wrong: a number that is missing, or there twice, or a gap between offsets."""
    view, found = open_place(object_place(root)), []
    values: list[int] = []
    for each in view.logs:
        offsets = []
        for _, batch in read_records(view, [each], None, None, None):
            offsets += batch.column("offset").to_pylist()
            values += map(int, batch.column("value").to_pylist())
        if offsets != list(range(len(offsets))):
            found.append(f"gaps: {each.log} {offsets}")
    if sorted(values) != list(range((batches or _place(root)["batches"]) * _ROWS)):
        found.append(f"numbers: {sorted(values)}")
    return found


def _place(root: Path) -> dict[str, Any]:
    path = root.with_name("place.json")
    usual = {"address": f"file://{root}", "storage": {}, "batches": BATCHES}
    return {**usual, **(json.loads(path.read_text()) if path.exists() else {})}


def _config(root: Path) -> SinkConfig:
    place = _place(root)
    return SinkConfig.from_options(place["address"], EVENTS, topic="events", storage=place["storage"])
