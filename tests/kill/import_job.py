"""Imports that tests kill, into a store that has logs of its own, and what such an import may leave.

The store has another partition of one topic, and a request to forget a key of it.
"""

import shutil
from pathlib import Path

import pyarrow as pa

from sparklog.pipeline.brokers.import_logs import execute_import
from sparklog.pipeline.places.store_view import open_logs
from sparklog.sink.erasure.forget_keys import ask_to_forget
from sparklog.sink.erasure.request_files import read_requests
from sparklog.sink.erasure.searched_folder import SearchedFolder
from sparklog.sink.importing.plan_import import ImportChoice
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import SystemClock
from tests.build.golden import copy_broker_root
from tests.build.sink_store import contents, in_process, numbers, open_store
from tests.kill.directory_job import LOG_DIRS, TOPICS, problems_of_directories

__all__ = ["IMPORTED", "KEPT", "problems_of_import", "run_import", "write_places"]

IMPORTED = {"v2-segments-0": 240, "v2-transactional-0": 30, "v2-deleted-records-0": 160}
"""End of each log of the broker."""
KEPT = {"events-0": 100, "events-1": 0, "others-0": 10, "v2-segments-1": 240}
"""End of each log that the store has of its own; the two of `events` share their offsets."""


def write_places(folder: Path) -> Path:
    """Make a broker's root, and beside it a store of 110 numbers and a part of a topic; return the store."""
    copy_broker_root(folder / "broker", "v2-segments", "v2-transactional", "v2-deleted-records")
    for batch_id, (topic, count) in enumerate((("events", 100), ("others", 10))):
        writer = open_store(folder / "store", TOPICS, topic=topic, log_dirs=LOG_DIRS)
        writer.append("query", batch_id, in_process(numbers(0, count)))
        writer.close()
    other = copy_broker_root(folder / "other", "v2-segments")
    (other / "v2-segments-0").rename(other / "v2-segments-1")
    choice = ImportChoice(folders=(other,), now_ms=1, may_link=False)
    execute_import(folder / "store", choice, SystemClock())
    shutil.rmtree(other)
    ask_to_forget(
        SearchedFolder(Store.find(folder / "store")), "v2-segments", pa.array([b"none"], pa.binary()), SystemClock()
    )
    return folder / "store"


def run_import(store: Path, log_dir: str | None = None) -> None:
    """Import all logs of the broker's root beside the store."""
    choice = ImportChoice(folders=(store.parent / "broker",), log_dir=log_dir, now_ms=1)
    execute_import(store, choice, SystemClock())


def problems_of_import(store: Path, broker: dict[str, bytes]) -> list[str]:
    """Return what is wrong: a log that is there in part, a broker's file that changed, anything left to do."""
    found = problems_of_directories(store)
    if contents(store.parent / "broker") != broker:
        found.append("the broker's files have changed")
    ends = {str(each.log): each.reader().log_end_offset for each in open_logs(store).logs}
    if sum(end for name, end in ends.items() if name not in IMPORTED) != sum(KEPT.values()):
        found.append(f"the store's own logs have changed: {ends}")
    if {name: end for name, end in ends.items() if name in IMPORTED} not in ({}, IMPORTED):
        found.append(f"imported in part: {ends}")
    [request] = read_requests(Store.find(store))
    if (request.end_offsets[1], request.end_offsets.get(0, 0)) != (240, ends.get("v2-segments-0", 0)):
        found.append(f"a request covers other logs: {request.end_offsets}")
    return found
