"""Repairs a store of objects: extents that are gone or damaged leave their log, and their offsets are recorded as lost.

Batches of a damaged extent whose CRCs are right stay, if its batches still end where the ledger says. The other bytes
are kept in an object below `control/cut`. A log keeps its end: an empty batch stands for lost offsets up to it.

One commit of some logs records the lost offsets and drops the extents at once. What a crash leaves: objects that
no version names, and logs that the next repair looks at again. It may run beside a writer and maintenance.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np

from sparklog.sink.ledger.lost_ranges import LostRange
from sparklog.sink.ledger.rows import LedgerRows, LogState
from sparklog.sink.objects.extents import Extent
from sparklog.sink.objects.merge_extents import MERGED, Replacement, replace_extents
from sparklog.sink.objects.new_extents import NewExtents
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.sink.objects.read_extents import ReadExtent, read_damaged, read_extents
from sparklog.storage_core.errors import CorruptFileError, LogStorageError, ObjectMissingError
from sparklog.storage_core.log_config import INT32_MAX
from sparklog.storage_core.objects.object_storage import ObjectStorage
from sparklog.storage_core.record.batch_scan import check_crcs, scan_batches
from sparklog.storage_core.record.v2.empty_batch import pack_empty_batch
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["DamagedExtent", "find_damage", "object_sizes", "repair_logs"]

_DATA: Final = "data"
_CUT: Final = "control/cut"
_AT_ONCE_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class DamagedExtent:
    """An extent that can't be read.

    Attributes:
        reason: what the storage said, or what is wrong with its bytes.
        sound: those of its batches that can be saved; None if none can.
        lost: offsets that can't, as first and last ones.
    """

    extent: Extent
    reason: str
    sound: ReadExtent | None
    lost: tuple[tuple[int, int], ...]


def object_sizes(storage: ObjectStorage) -> dict[str, int]:
    """Return the bytes of each object with batches; raises as `find_damage`."""
    return {each.name: each.size_bytes for each in storage.list(_DATA)}


def find_damage(storage: ObjectStorage, extents: Sequence[Extent], sizes: Mapping[str, int]) -> list[DamagedExtent]:
    """Read extents of a log; return those that are gone or damaged.

    Args:
        sizes: of objects, listed after the extents were read from the ledger.

    Raises:
        StorageError: the storage refuses or does not answer: that says nothing about the objects.
    """
    found, there = list[DamagedExtent](), list[Extent]()
    for each in extents:
        size = sizes.get(each.object, -1)
        if size >= each.position + each.size_bytes:
            there.append(each)
        elif size >= 0:
            found.append(_gone(each, f"object has only {size} bytes: {storage.address.child(each.object)}"))
        else:  # a list may be wrong
            found += _damage_in(storage, [each])
    for part in _parts(there):
        with suppress(CorruptFileError, ObjectMissingError):
            for _ in read_extents(storage, part):
                pass
            continue
        found += _damage_in(storage, part)
    return sorted(found, key=lambda each: each.extent.base_offset)


def repair_logs(
    ledger: ObjectLedger, damage: Mapping[TopicPartition, Sequence[DamagedExtent]], now_ms: int
) -> set[TopicPartition]:
    """Write what can be saved, then drop damaged extents and record their offsets, in one commit.

    Args:
        damage: of logs, by offset, as the ledger's version has them.
        now_ms: when the loss was found.

    Returns:
        the logs that have not changed meanwhile; the others stay as they are.

    Raises:
        LogStorageError: the storage refuses; nothing is committed.
    """
    storage, states = ledger.place.open(), ledger.states()
    for log, held in damage.items():
        for each in held:
            _keep_bytes(storage, log, each)
    new = _write(storage, states, damage)
    repaired = set[TopicPartition]()

    def change(rows: LedgerRows, extents: dict[TopicPartition, list[Extent]]) -> LedgerRows | None:
        repaired.clear()
        for log, held in damage.items():
            after = {log: list(extents.get(log, ()))}
            replaced = (Replacement(log, (each.extent,), tuple(_of(new.get(log, ()), each.extent))) for each in held)
            if log in rows.states and all(replace_extents(after, each) for each in replaced):
                extents |= after
                repaired.add(log)
        return rows if repaired else None

    def with_lost(known: list[LostRange]) -> list[LostRange]:
        places = {each.place for each in known}
        found = (each for log in sorted(repaired) for each in _lost(states[log], damage[log], now_ms))
        return known + [each for each in found if each.place not in places]

    ledger.rewrite(change, now_ms, lost=with_lost)
    return repaired


def _lost(state: LogState, damage: Sequence[DamagedExtent], now_ms: int) -> Iterator[LostRange]:
    """Yield the lost offsets of a log; those below its start were deleted."""
    for each in damage:
        for first, last in each.lost:
            if last >= state.log_start_offset:
                yield LostRange(
                    topic=state.topic,
                    partition=state.partition,
                    first_offset=max(first, state.log_start_offset),
                    last_offset=last,
                    file=each.extent.object,
                    reason=each.reason,
                    found_ms=now_ms,
                )


def _gone(extent: Extent, reason: str) -> DamagedExtent:
    return DamagedExtent(extent, reason, None, ((extent.base_offset, extent.end_offset - 1),))


def _parts(extents: Sequence[Extent]) -> Iterator[list[Extent]]:
    part: list[Extent] = []
    size_bytes = 0
    for each in extents:
        if part and size_bytes + each.size_bytes > _AT_ONCE_BYTES:
            yield part
            part, size_bytes = [], 0
        part.append(each)
        size_bytes += each.size_bytes
    if part:
        yield part


def _damage_in(storage: ObjectStorage, part: Sequence[Extent]) -> Iterator[DamagedExtent]:
    """Yield the damaged extents among some of a log."""
    for extent in part:
        try:
            for _ in read_extents(storage, [extent]):
                pass
        except ObjectMissingError as error:
            yield _gone(extent, str(error))
        except CorruptFileError as error:
            yield _salvage(storage, extent, str(error))


def _salvage(storage: ObjectStorage, extent: Extent, reason: str) -> DamagedExtent:
    """Return what is sound of a damaged extent: batches, if all of them still have their place."""
    read = read_damaged(storage, extent)
    bad = np.empty(0, np.int64) if read is None else check_crcs(read.data, read.scan)
    if read is None or not len(bad):  # or batches of other offsets
        return _gone(extent, reason)
    ends = np.append(read.base_offset[1:], extent.end_offset) - 1  # a damaged header may name another end
    lost = tuple(zip(read.base_offset[bad].tolist(), ends[bad].tolist(), strict=True))
    sound = np.setdiff1d(np.arange(len(read.scan)), bad)
    kept = ReadExtent(extent, read.data, read.scan.take(sound), read.base_offset[sound]) if len(sound) else None
    return DamagedExtent(extent, reason, kept, lost)


def _keep_bytes(storage: ObjectStorage, log: TopicPartition, each: DamagedExtent) -> None:
    """Copy what is there of an extent: its object may go.

    Raises:
        StorageError: the storage refuses.
    """
    extent = each.extent
    try:
        (data,) = storage.read_ranges(extent.object, [extent.position], [extent.size_bytes])
    except LogStorageError:
        return  # it is gone, or ends before
    storage.create(f"{_CUT}/{log.directory_name}/{extent.base_offset:020}-{uuid.uuid4().hex}.batches", data)


def _write(
    storage: ObjectStorage,
    states: Mapping[TopicPartition, LogState],
    damage: Mapping[TopicPartition, Sequence[DamagedExtent]],
) -> dict[TopicPartition, list[Extent]]:
    """Write sound batches of damaged extents, and one for lost offsets at the ends of logs, into an object."""
    ends = {log: states[log].log_end_offset for log in damage}
    fill = {log for log, held in damage.items() if held[-1].extent.end_offset == ends[log]}
    if not fill and all(each.sound is None for held in damage.values() for each in held):
        return {}
    name = f"{MERGED}/{uuid.uuid4().hex}.batches"
    with storage.writing(name) as writing:
        new = NewExtents(name, writing)
        for log, held in damage.items():
            for each in held:
                reached = _write_sound(new, log, each)
                if log in fill and each is held[-1] and reached < ends[log]:
                    first = max(reached, ends[log] - 1 - INT32_MAX)
                    data = pack_empty_batch(first, ends[log] - 1, each.extent.leader_epoch)
                    scan = scan_batches(data)
                    new.add(log, np.frombuffer(data, np.uint8), scan, scan.base_offset, scan.leader_epoch)
                new.end_run()
        return new.finish()


def _write_sound(new: NewExtents, log: TopicPartition, each: DamagedExtent) -> int:
    """Write the sound batches of an extent; return the offset above them."""
    read = each.sound
    if read is None:
        return each.extent.base_offset
    for number in range(len(read.scan)):
        scan = read.scan.take(slice(number, number + 1))
        start = int(scan.position[0])
        data = read.data[start : start + int(scan.size[0])]
        epochs = np.full(1, each.extent.leader_epoch, np.int32)
        new.add(log, data, scan, read.base_offset[number : number + 1], epochs)
    return int(read.base_offset[-1] + read.scan.last_offset_delta[-1]) + 1


def _of(new: Sequence[Extent], old: Extent) -> list[Extent]:
    return [each for each in new if old.base_offset <= each.base_offset < old.end_offset]
