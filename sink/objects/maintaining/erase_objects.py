"""Erasure in stores of objects: what is left to do after the logs with records of forgotten keys were cleaned.

An object holds extents of many logs. Those that a cleaning, a merge or retention has let go stay in it as dead bytes,
for as long as a version names another part of it. So before a request is done, all objects with dead bytes are emptied:
their other extents move into new objects, and they are garbage.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparklog.sink.erasure.forget_keys import RequestState
from sparklog.sink.objects.extents import Extent
from sparklog.sink.objects.maintaining.apply_replacements import apply_replacements
from sparklog.sink.objects.merge_extents import merge_logs, plan_moves
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.sink.objects.repair_objects import object_sizes
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import LogStorageError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.objects.object_storage import ObjectStorage
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["MovedExtents", "describe_request", "empty_objects", "objects_with_dead_bytes", "unnamed_objects"]


@dataclass(frozen=True, slots=True)
class MovedExtents:
    """Extents of a log that have moved, or why they have not."""

    log: TopicPartition
    count: int
    error: str | None = None


def objects_with_dead_bytes(storage: ObjectStorage, extents: Mapping[TopicPartition, Sequence[Extent]]) -> set[str]:
    """Return the named objects that are larger than their named parts.

    Args:
        extents: of a version of the ledger; the objects are listed now.

    Raises:
        StorageError: the storage does not answer.
    """
    named: dict[str, int] = {}
    for held in extents.values():
        for each in held:
            named[each.object] = named.get(each.object, 0) + each.size_bytes
    sizes = object_sizes(storage)
    return {name for name, size_bytes in named.items() if sizes.get(name, 0) > size_bytes}


def empty_objects(ledger: ObjectLedger, clock: Clock) -> Iterator[MovedExtents]:
    """Move all extents out of objects with dead bytes; what can't be read, or changes meanwhile, stays.

    Raises:
        LogStorageError: the ledger can't be read or written.
    """
    storage = ledger.place.open()
    ledger.reload()
    extents = ledger.extents()
    for group in plan_moves(extents, objects_with_dead_bytes(storage, extents)):
        try:
            replacements = merge_logs(storage, group)
        except LogStorageError as error:
            yield MovedExtents(group[0][0], 0, str(error))
            continue
        reach("clean.checkpoint")
        if apply_replacements(ledger, replacements, clock.now_ms()):
            yield from (MovedExtents(each.log, len(each.old)) for each in replacements)


def unnamed_objects(ledger: ObjectLedger) -> set[str]:
    """Return the objects that no extent names: garbage, and those of tasks that crashed or are at work.

    Raises:
        LogStorageError: the ledger can't be read, or the storage does not answer.
    """
    there = object_sizes(ledger.place.open()).keys()
    ledger.reload()
    return set(there) - {each.object for held in ledger.extents().values() for each in held}


def describe_request(state: RequestState) -> str:
    """Return a request and what is left of it, for people."""
    request, failures = state.request, [each for each in state.found if each.failure is not None]
    if request.completed_ms is not None:
        end = "done"
    elif state.found:
        end = f"{'at least ' if failures else ''}{state.records_count:,} records left"
    else:
        end = "no record left, but old ones lie in objects that are still in use, or another run works on it"
    failed = "".join(f"; {each.log} can't be searched: {each.failure}" for each in failures[:1])
    return f"{request.request_id}, {request.count:,} keys of topic {request.topic}: {end}{failed}"
