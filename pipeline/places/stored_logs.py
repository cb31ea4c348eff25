"""Logs of a store of objects for readers: what the ledger says of them, and copies of what is read.

Verbs read a copy of the logs that they need, a folder of log directories. Tasks of Spark copy only their own offsets.
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from sparklog.pipeline.stop_request import StopRequest
from sparklog.pipeline.terminal import say_at_once
from sparklog.sink.ledger.lost_ranges import LostRangeFile, cut_folder_beside
from sparklog.sink.ledger.versions import AsOf
from sparklog.sink.objects.extents import Extent, extents_between
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.objects.address import parse_address
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.topic_partition import TopicPartition
from sparklog.storage_core.topic_pattern import is_named

__all__ = ["FetchedStore", "Place", "StoredLog", "fetch_logs", "fetched_store", "stored_place"]

Place: TypeAlias = Path | StoragePlace
"""A folder of this machine, or where a store of objects lies."""

_PREFIX = "sparklog-"


@dataclass(frozen=True, slots=True)
class StoredLog:
    """The extents of a log, by offset, and the storage that has them; travels to executors."""

    place: StoragePlace
    extents: tuple[Extent, ...]

    def between(self, start_offset: int, end_offset: int) -> "StoredLog":
        """Return the part that holds offsets of [start, end)."""
        return StoredLog(self.place, tuple(extents_between(self.extents, start_offset, end_offset)))

    def offset_for_time(self, time_ms: int, start_offset: int, end_offset: int) -> tuple[int, int] | None:
        """Return the first offset of [start, end) whose record is not earlier, and its time; None if there is none.

        Raises:
            LogStorageError: an object can't be read.
        """
        for extent in extents_between(self.extents, start_offset, end_offset):
            if extent.max_timestamp_ms < time_ms:
                continue
            with StoredLog(self.place, (extent,)).fetched() as directory:
                start = max(start_offset, extent.base_offset)
                reader = LogReader(directory, log_start_offset=start, log_end_offset=min(end_offset, extent.end_offset))
                found = reader.offset_for_time(time_ms)
            if found is not None:
                return found
        return None

    @contextmanager
    def fetched(self) -> Iterator[Path]:
        """Copy the extents into a log directory that is removed afterwards.

        Raises:
            LogStorageError: an object can't be read.
        """
        from sparklog.sink.objects.fetch_log import fetch_log  # loads kernels: for those who have such a store

        with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder:
            if self.extents:
                fetch_log(self.place.open(), self.extents, Path(folder), LogConfig())
            yield Path(folder)


def stored_place(text: str) -> StoragePlace | None:
    """Return the storage that a text addresses; None for a folder of this machine, which `file://` may name, too.

    Raises:
        InvalidConfigError: no storage has such an address.
    """
    parts = urlsplit(text)
    if parts.scheme.lower() == "file" and not Path(unquote(parts.path), "ledger", "kind=log").is_dir():
        return None
    return StoragePlace(parse_address(text))


@dataclass(frozen=True, slots=True)
class FetchedStore:
    """Logs of a store of objects in a folder of this machine, as they were at a version of its ledger.

    Attributes:
        settings: of each topic.
        topics: of the whole store.
    """

    folder: Path
    settings: Mapping[str, LogConfig]
    ledger_version: int
    topics: Set[str]


@contextmanager
def fetched_store(
    place: StoragePlace, beside: Path, topics: str | None, as_of: AsOf | None = None
) -> Iterator[FetchedStore]:
    """Copy logs into a folder of log directories that is removed afterwards.

    SIGINT or SIGTERM ends the copying before the next log; a second one ends the process, and the folder stays.

    Args:
        beside: what gets the logs: if the folder can be made there, on one filesystem with it, segments become links.
        topics: regular expressions of whole names, separated by commas; None for every topic.

    Raises:
        KeyboardInterrupt: a signal has stopped it.
        LogStorageError: as `fetch_store`.
    """
    from sparklog.sink.objects.fetch_store import fetch_store  # loads kernels
    from sparklog.sink.objects.object_ledger import ObjectLedger

    ledger = ObjectLedger.open(place, as_of)
    folder = _folder_beside(beside)
    with storage_errors(folder):
        temporary = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=folder)
    with temporary:
        logs = Path(temporary.name, "logs")
        logs.mkdir()
        with StopRequest(say_at_once, "log") as stop:

            def is_wanted(log: TopicPartition) -> bool:
                if stop.requested:
                    raise KeyboardInterrupt
                return topics is None or is_named(log.topic, topics)

            settings = fetch_store(ledger, logs, is_wanted)
            if stop.requested:
                raise KeyboardInterrupt
        yield FetchedStore(logs, settings, ledger.version, {log.topic for log in ledger.rows})


def _folder_beside(target: Path) -> Path:
    """Return the folder that a target lies in, or will; the temporary one if nothing there can become a link to it."""
    with storage_errors(target):
        target = target.resolve()
        beside = target.parent
        while not beside.exists():
            beside = beside.parent
        is_other = target.exists() and target.stat().st_dev != beside.stat().st_dev
    return Path(tempfile.gettempdir()) if is_other or not os.access(beside, os.W_OK) else beside


def fetch_logs(place: StoragePlace, name: str | None, as_of: AsOf | None) -> Path:
    """Copy logs into a folder of log directories; it is removed as this process ends.

    Args:
        name: `TOPIC` or `TOPIC:PARTITION`; None for all.

    Raises:
        LogStorageError: as `fetch_store`.
    """
    from sparklog.sink.objects.fetch_store import fetch_store  # loads kernels
    from sparklog.sink.objects.object_ledger import ObjectLedger

    temporary = Path(tempfile.mkdtemp(prefix=_PREFIX))
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    folder = temporary / "logs"
    folder.mkdir()
    ledger = ObjectLedger.open(place, as_of)
    LostRangeFile(cut_folder_beside(folder)).add(ledger.lost())

    def is_wanted(log: TopicPartition) -> bool:
        return name is None or name in (log.topic, f"{log.topic}:{log.partition}")

    fetch_store(ledger, folder, is_wanted)
    return folder
