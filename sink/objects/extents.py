"""Extents: which bytes of which object hold which offsets of a log.

An extent is a run of batches that lie side by side, of some MB at most. The driver decides their offsets after their
tasks have written them, so base offsets and leader epochs in the object are not those of the log: readers write them
into their copy. The CRC of a batch does not cover these two fields.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.sink.place.staged_batches import StagedBatches
from sparklog.storage_core.record.batch_scan import BatchScan
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = [
    "EXTENTS_SCHEMA",
    "PIECE_BYTES",
    "Extent",
    "checksum_of",
    "extents_between",
    "extents_of",
    "hash_batches",
    "plan_extents",
    "table_of",
]

EXTENTS_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("base_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("object", pa.string()),
        ("position", pa.int64()),
        ("size_bytes", pa.int64()),
        ("max_timestamp_ms", pa.int64()),
        ("records", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("has_own_offsets", pa.bool_()),
        ("checksum", pa.int64()),
    ]
)
"""Columns of a data file with rows of extents."""


PIECE_BYTES = 8 << 20
"""About the most bytes of an extent: tasks of a reader get whole extents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """One run of batches of a log.

    Attributes:
        base_offset, end_offset: of its first batch, and above its last one.
        object: name of the object in the store.
        position, size_bytes: of the run in it.
        max_timestamp_ms: largest of its records, -1 none.
        records: in its batches.
        leader_epoch: of its batches.
        has_own_offsets: whether each batch has its offset in the object; otherwise they follow each other without gaps.
        checksum: of its batches' base offsets, sizes and CRCs, by `hash_batches`; 0 unknown, as of a sink's tasks.
    """

    base_offset: int
    end_offset: int
    object: str
    position: int
    size_bytes: int
    max_timestamp_ms: int
    records: int
    leader_epoch: int
    has_own_offsets: bool
    checksum: int = 0


_NAMES = tuple(each.name for each in fields(Extent))


def plan_extents(
    staged: StagedBatches,
    base_offset: npt.NDArray[np.int64],
    topics: npt.NDArray[np.object_],
    partitions: npt.NDArray[np.int64],
    epochs: npt.NDArray[np.int64],
    *,
    preserved: bool,
) -> pa.Table:
    """Return the extents of staged batches, as a table of `EXTENTS_SCHEMA`, sorted by log and offset.

    Args:
        staged: (b,) batches.
        base_offset: (b,) planned for them.
        topics, partitions, epochs: (rows,) of the ledger's rows.
        preserved: whether the batches have their offsets in the object.
    """
    end = staged.position + staged.size
    begins = np.ones(len(end), np.bool_)
    begins[1:] = (np.diff(staged.row) != 0) | (np.diff(staged.file) != 0) | (staged.position[1:] != end[:-1])
    run = np.flatnonzero(begins)
    pieces = (staged.position - np.repeat(staged.position[run], np.diff(run, append=len(end)))) // PIECE_BYTES
    begins[1:] |= np.diff(pieces) != 0
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(end)) - 1
    names = np.array([str(file) for file in staged.files], object)
    row = staged.row[first]
    columns = {
        "topic": topics[row],
        "partition": partitions[row],
        "base_offset": base_offset[first],
        "end_offset": base_offset[last] + staged.last_offset_delta[last] + 1,
        "object": names[staged.file[first]],
        "position": staged.position[first],
        "size_bytes": end[last] - staged.position[first],
        "max_timestamp_ms": np.maximum.reduceat(staged.max_timestamp, first),
        "records": np.add.reduceat(staged.records_count, first),
        "leader_epoch": epochs[row],
        "has_own_offsets": np.full(len(first), preserved),
        "checksum": np.zeros(len(first), np.int64),
    }
    return pa.table([pa.array(columns[each.name], each.type) for each in EXTENTS_SCHEMA], schema=EXTENTS_SCHEMA)


def extents_of(tables: Iterable[pa.Table]) -> Iterator[tuple[tuple[str, int], Extent]]:
    """Yield topic and partition, and the extent, of each row."""
    for table in tables:
        columns = [table.column(name).to_pylist() for name in ("topic", "partition", *_NAMES)]
        for topic, partition, *values in zip(*columns, strict=True):
            yield (topic, partition), Extent(**dict(zip(_NAMES, values, strict=True)))


def table_of(extents: Mapping[TopicPartition, Sequence[Extent]]) -> pa.Table:
    """Return the extents of logs as a table of `EXTENTS_SCHEMA`."""
    rows = [(log, each) for log in sorted(extents) for each in extents[log]]
    columns: dict[str, list[object]] = {
        "topic": [log.topic for log, _ in rows],
        "partition": [log.partition for log, _ in rows],
        **{name: [getattr(each, name) for _, each in rows] for name in _NAMES},
    }
    return pa.table([pa.array(columns[each.name], each.type) for each in EXTENTS_SCHEMA], schema=EXTENTS_SCHEMA)


def hash_batches(before: blake2b, base_offset: npt.NDArray[np.int64], scan: BatchScan) -> None:
    """Take batches into the checksum of an extent: a CRC covers all of a batch but its base offset and leader epoch.

    Args:
        before: of the extent's batches before them; made by `blake2b(digest_size=8)`.
        base_offset: (b,) of each.
        scan: (b,) their headers.
    """
    before.update(np.column_stack([base_offset, scan.size, scan.crc]).astype("<i8").tobytes())


def checksum_of(hashed: blake2b) -> int:
    """Return the checksum of an extent whose batches were hashed."""
    return int.from_bytes(hashed.digest(), "little", signed=True)


def extents_between(extents: Sequence[Extent], start_offset: int, end_offset: int) -> list[Extent]:
    """Return the extents that hold offsets of [start, end)."""
    return [each for each in extents if each.base_offset < end_offset and start_offset < each.end_offset]
