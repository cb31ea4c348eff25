"""Merges small extents of logs: each micro-batch leaves some in each log, and a reader asks for each of them.

Extents of several logs share an object, log after log, so the number of objects does not grow with that of logs. They
are merged once there are many in a row that are smaller than a piece. The result is small again where they are few
bytes, and is merged with later ones. So each byte is written again a number of times that grows with the logarithm of
its log.
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

import numpy as np

from sparklog.sink.objects.extents import PIECE_BYTES, Extent
from sparklog.sink.objects.new_extents import NewExtents
from sparklog.sink.objects.read_extents import read_extents
from sparklog.storage_core.objects.object_storage import ObjectStorage
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["MERGED", "Replacement", "merge_logs", "plan_merges", "plan_moves", "replace_extents"]

MERGED = "data/merged"
"""Folder of objects that maintenance writes."""
_MANY = 16
_OBJECT_BYTES = 256 << 20

_Group: TypeAlias = list[tuple[TopicPartition, tuple[Extent, ...]]]
"""Runs of extents, each of one log."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """Extents of a log and those that take their place."""

    log: TopicPartition
    old: tuple[Extent, ...]
    new: tuple[Extent, ...]


def plan_merges(extents: Mapping[TopicPartition, Sequence[Extent]]) -> list[_Group]:
    """Return runs of small extents to merge, in groups that share an object."""
    return _groups(extents, _runs)


def plan_moves(extents: Mapping[TopicPartition, Sequence[Extent]], objects: Collection[str]) -> list[_Group]:
    """Return the extents that lie in some objects, in runs and groups as those to merge."""

    def runs(held: Sequence[Extent]) -> Iterator[tuple[Extent, ...]]:
        for is_there, found in groupby(held, lambda each: each.object in objects):
            yield from _cut(found) if is_there else ()

    return _groups(extents, runs)


def _cut(extents: Iterable[Extent]) -> Iterator[tuple[Extent, ...]]:
    """Yield extents in runs that fit into one object: storages limit the number of its parts."""
    run: list[Extent] = []
    room = _OBJECT_BYTES
    for each in extents:
        if run and each.size_bytes > room:
            yield tuple(run)
            run, room = [], _OBJECT_BYTES
        run.append(each)
        room -= each.size_bytes
    yield tuple(run)


def _groups(
    extents: Mapping[TopicPartition, Sequence[Extent]],
    runs_of: Callable[[Sequence[Extent]], Iterator[tuple[Extent, ...]]],
) -> list[_Group]:
    groups: list[_Group] = []
    room = 0
    for log in sorted(extents):
        for run in runs_of(extents[log]):
            size_bytes = sum(each.size_bytes for each in run)
            if not groups or size_bytes > room:
                groups.append([])
                room = _OBJECT_BYTES
            groups[-1].append((log, run))
            room -= size_bytes
    return groups


def _runs(extents: Sequence[Extent]) -> Iterator[tuple[Extent, ...]]:
    """Yield the runs of a log that are worth a merge: many extents, or bytes of a piece and more."""
    run: list[Extent] = []
    for extent in [*extents, None]:
        if extent is not None and extent.size_bytes < PIECE_BYTES:
            run.append(extent)
            continue
        if len(run) >= _MANY or (len(run) > 1 and sum(each.size_bytes for each in run) >= 2 * PIECE_BYTES):
            yield tuple(run)
        run = []


def merge_logs(storage: ObjectStorage, group: _Group) -> list[Replacement]:
    """Write the extents of a group into one object.

    Raises:
        LogStorageError: an object can't be read, or the storage refuses; nothing has appeared.
    """
    name = f"{MERGED}/{uuid.uuid4().hex}.batches"
    with storage.writing(name) as writing:
        new = NewExtents(name, writing)
        for log, run in group:
            for part in read_extents(storage, run):
                for each in part:
                    epochs = np.full(len(each.scan), each.extent.leader_epoch, np.int32)
                    new.add(log, each.data, each.scan, each.base_offset, epochs)
            new.end_run()
        found = new.finish()
    merged: list[Replacement] = []
    for log, run in group:
        mine = [each for each in found[log] if run[0].base_offset <= each.base_offset < run[-1].end_offset]
        merged.append(Replacement(log, run, tuple(mine)))
    return merged


def replace_extents(extents: dict[TopicPartition, list[Extent]], replacement: Replacement) -> bool:
    """Put new extents in the place of old ones; return whether these were all still there."""
    held, gone = extents.get(replacement.log, []), set(replacement.old)
    if not gone <= set(held):
        return False  # deleted, cleaned or merged meanwhile
    kept = [extent for extent in held if extent not in gone]
    extents[replacement.log] = sorted([*kept, *replacement.new], key=lambda extent: extent.base_offset)
    return True
