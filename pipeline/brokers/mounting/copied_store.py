"""A store of objects as a store of this machine for as long as a mount takes: mounts link files, and check them.

The copy lies beside the mount's target if it can, and is removed at the end. A process that is killed leaves its
folder, `sparklog-` and some letters.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sparklog.pipeline.brokers.import_logs import execute_import
from sparklog.pipeline.brokers.mounting.choice import MountChoice
from sparklog.pipeline.places.stored_logs import fetched_store
from sparklog.sink.importing.plan_import import ImportChoice
from sparklog.sink.ledger.versions import AsOf
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import UnknownTopicError
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.topic_pattern import is_named

__all__ = ["copied_store"]


@contextmanager
def copied_store(place: StoragePlace, beside: Path, topics: str | None, as_of: AsOf | None) -> Iterator[MountChoice]:
    """Copy the logs of a store of objects; yield all of them as what is mounted.

    Args:
        beside: the mount's target.
        topics, as_of: as of `MountChoice`.

    Raises:
        UnknownTopicError: no topic has such a name.
        LogStorageError: as `fetch_store` and `execute_import`.
    """
    clock = SystemClock()
    with fetched_store(place, beside, topics, as_of) as fetched:
        if topics is not None and not any(is_named(topic, topics) for topic in fetched.topics):
            known = ", ".join(sorted(fetched.topics)) or "none"
            raise UnknownTopicError(f"no topic has such a name: topics={topics} known={known} address={place.address}")
        root = fetched.folder.with_name("store")
        wanted = ImportChoice(
            folders=(fetched.folder,),
            topics=topics,
            allow_gaps=True,  # as its writer left them: the ledger says that no record is missing
            now_ms=clock.now_ms(),
            settings=fetched.settings,
        )
        execute_import(root, wanted, clock)
        choice = MountChoice.find(root, topics, None, allow_gaps=False)
        version = fetched.ledger_version
        yield replace(choice, given=str(place.address), copied=version, as_of=None if as_of is None else version)
