"""Writes logs to be cleaned, of any shape that a broker may have left, and says which records a cleaning must keep.

What is said comes from a dict: the last record of each key, among those that were not aborted.
"""

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sparklog.storage_core.checkpoint.leader_epochs import render_leader_epochs
from sparklog.storage_core.checkpoint.partition_metadata import render_partition_metadata
from sparklog.storage_core.index.index_builder import IndexBuilder
from sparklog.storage_core.index.transaction_index import pack_transaction_entries
from sparklog.storage_core.log.files.committed_end import CommittedEnd
from sparklog.storage_core.log.files.names import INDEX, LOG, TIMEINDEX, TXNINDEX, segment_file_name
from sparklog.storage_core.log.producers.transactions import TransactionTracker
from sparklog.storage_core.log_config import CODECS
from sparklog.storage_core.record.batch_scan import scan_batches
from sparklog.storage_core.record.control_records import ControlType, control_types
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from tests.build.transaction_log import Marker, control_batch
from tests.build.written_log import TOPIC_ID
from tests.plain.legacy_scalar import pack_entry, pack_wrapper
from tests.plain.scalar import Record, pack_batch

__all__ = ["CompactedLog", "LogShape", "draw_shape", "write_segments"]


@dataclass(frozen=True, kw_only=True)
class LogShape:
    """What a log looks like.

    Attributes:
        keys: how many there are.
        tombstones: share of records without value.
        transactions: share of batches that are part of one.
        open_at: number of the segment in which a transaction begins that never ends.
        gaps: share of batches with offsets left out before them.
        segment_gap_ms: by how much each segment is younger than the one before.
        magics: formats of batches that are of no producer. The last batch of a segment is of v2: a broker can't empty
            others.
        mtime_ms: of its first segment, a minute less than that of the next one; None leaves them as written.
    """

    seed: int = 0
    segments: int = 4
    batches: int = 8
    records: int = 4
    keys: int = 12
    codecs: Sequence[str] = ("none",)
    tombstones: float = 0.2
    headers: float = 0.0
    idempotent: float = 0.0
    transactions: float = 0.0
    open_at: int | None = None
    gaps: float = 0.0
    append_time: float = 0.0
    start_offset: int = 0
    start_ms: int = 1_700_000_000_000
    value_bytes: int = 20
    index_interval_bytes: int = 200
    segment_gap_ms: int = 0
    magics: Sequence[int] = (2,)
    mtime_ms: int | None = None


@dataclass(frozen=True)
class _Written:
    """A record, and the producer of its transaction."""

    record: Record
    transaction: int | None


@dataclass
class CompactedLog:
    """A log directory and everything known about it.

    Attributes:
        bases: base offset of every segment; the last one is active.
        aborted: number of every transaction that was aborted.
    """

    directory: Path
    shape: LogShape
    next_offset: int = 0
    bases: list[int] = field(default_factory=list)
    written: list[_Written] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)
    sequences: dict[int, int] = field(default_factory=dict)
    running: dict[int, int] = field(default_factory=dict)
    transactions: int = 0
    tracker: TransactionTracker = field(default_factory=lambda: TransactionTracker(0))

    @property
    def end(self) -> CommittedEnd:
        """Where it ends."""
        active = self.directory / segment_file_name(self.bases[-1], LOG)
        return CommittedEnd(self.bases[-1], active.stat().st_size, self.next_offset)

    def records(self, below: int | None = None) -> dict[int, Record]:
        """Return the records that were not aborted, by offset.

        Args:
            below: only those below this offset; all if None.
        """
        return {
            each.record.offset: each.record
            for each in self.written
            if (each.transaction is None or each.transaction not in self.aborted)
            and (below is None or each.record.offset < below)
        }

    def last_of_each_key(self, below: int) -> dict[int, Record]:
        """Return the last record of each key below an offset, by offset."""
        last = {each.key: each for each in self.records(below).values()}
        return {each.offset: each for each in last.values()}


def draw_shape(seed: int, start_ms: int) -> LogShape:
    """Return some shape; small seeds are simple, later ones have everything."""
    rng = random.Random(seed)
    return LogShape(
        seed=seed,
        segments=rng.randint(2, 7),
        batches=rng.randint(2, 14),
        records=rng.randint(1, 7),
        keys=rng.choice([2, 8, 30, 200]),
        codecs=CODECS if seed % 7 == 6 else (CODECS[seed % len(CODECS)],),
        tombstones=rng.choice([0.0, 0.2, 0.6]),
        headers=rng.choice([0.0, 0.4]),
        idempotent=rng.choice([0.0, 0.4]) if seed >= 5 else 0.0,
        transactions=rng.choice([0.0, 0.5, 0.9]) if seed >= 8 else 0.0,
        open_at=rng.randint(1, 3) if seed >= 8 and seed % 6 == 0 else None,
        gaps=rng.choice([0.0, 0.3]),
        append_time=rng.choice([0.0, 0.0, 0.5]),
        start_offset=rng.choice([0, 0, 1000, 2**31 + 7]),
        start_ms=start_ms,
        value_bytes=rng.choice([1, 20, 300]),
        index_interval_bytes=rng.choice([50, 200, 4096]),
    )


def write_segments(directory: Path, shape: LogShape, log: CompactedLog | None = None) -> CompactedLog:
    """Write a log, or go on with one: its last segment is then closed, and as many follow as the shape says."""
    directory.mkdir(parents=True, exist_ok=True)
    rng = random.Random(shape.seed)
    if log is None:
        log = CompactedLog(directory, shape, next_offset=shape.start_offset)
        (directory / "partition.metadata").write_bytes(render_partition_metadata(TOPIC_ID))
        (directory / "leader-epoch-checkpoint").write_bytes(render_leader_epochs([(0, shape.start_offset)]))
    for number in range(shape.segments):
        is_last = number == shape.segments - 1
        _write_segment(log, shape, rng, number, is_last)
    return log


def _write_segment(log: CompactedLog, shape: LogShape, rng: random.Random, number: int, is_last: bool) -> None:
    base = log.next_offset
    log.bases.append(base)
    shape = replace(shape, start_ms=shape.start_ms + number * shape.segment_gap_ms)
    batches: list[bytes] = []
    for _ in range(shape.batches):
        batches.append(_batch(log, shape, rng))
    if number == shape.open_at:
        batches.append(_data(log, shape, rng, 99, is_transactional=True))
    if shape.magics != (2,):
        batches.append(_data(log, replace(shape, magics=(2,)), rng, -1))
    if is_last:
        batches += [_marker(log, shape, rng, producer) for producer in [*log.running] if producer != 99]
        batches.append(_data(log, shape, rng, -1))
    path = log.directory / segment_file_name(base, LOG)
    data = b"".join(batches)
    path.write_bytes(data)
    scan = scan_batches(data)
    builder = IndexBuilder(base, shape.index_interval_bytes)
    builder.add(scan.position, scan.last_offset, scan.max_timestamp)
    built = builder.finish()
    (log.directory / segment_file_name(base, INDEX)).write_bytes(built.offset_index)
    (log.directory / segment_file_name(base, TIMEINDEX)).write_bytes(built.time_index)
    if entries := log.tracker.follow(scan, control_types(data, scan)):
        (log.directory / segment_file_name(base, TXNINDEX)).write_bytes(pack_transaction_entries(entries))
    if shape.mtime_ms is not None:
        mtime_ns = (shape.mtime_ms + 60_000 * len(log.bases)) * 1_000_000
        os.utime(path, ns=(mtime_ns, mtime_ns))


def _batch(log: CompactedLog, shape: LogShape, rng: random.Random) -> bytes:
    if rng.random() < shape.gaps:
        log.next_offset += rng.randint(1, 5)
    ending = [each for each in log.running if each != 99]
    if ending and rng.random() < 0.3:
        return _marker(log, shape, rng, rng.choice(ending))
    draw = rng.random()
    if draw < shape.transactions:
        return _data(log, shape, rng, rng.randint(10, 12), is_transactional=True)
    if draw < shape.transactions + shape.idempotent:
        return _data(log, shape, rng, rng.randint(1, 3))
    return _data(log, shape, rng, -1)


def _data(
    log: CompactedLog, shape: LogShape, rng: random.Random, producer: int, *, is_transactional: bool = False
) -> bytes:
    count = rng.randint(1, shape.records)
    records = [_record(log.next_offset + number, shape, rng) for number in range(count)]
    transaction = None
    if is_transactional:
        if producer not in log.running:
            log.transactions += 1
            log.running[producer] = log.transactions
        transaction = log.running[producer]
    sequence = log.sequences.get(producer, 0)
    log.sequences[producer] = sequence + count
    append_ms = shape.start_ms + log.next_offset % 5000 if rng.random() < shape.append_time else None
    magic = rng.choice(shape.magics) if producer < 0 else 2
    if magic < 2:
        return _legacy_data(log, records, magic, rng.choice([each for each in shape.codecs if each != "zstd"]))
    options = EncodeOptions(
        codec=rng.choice(shape.codecs),
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=sequence if producer >= 0 else -1,
        is_transactional=is_transactional,
        partition_leader_epoch=0,
        log_append_time_ms=append_ms,
    )
    read = [each if append_ms is None else replace(each, timestamp=append_ms) for each in records]
    log.written += [_Written(each, transaction) for each in read]
    log.next_offset += count
    return pack_batch(records, options)


def _legacy_data(log: CompactedLog, records: Sequence[Record], magic: int, codec: str) -> bytes:
    read = [replace(each, headers=(), timestamp=each.timestamp if magic else -1) for each in records]
    log.written += [_Written(each, None) for each in read]
    log.next_offset += len(records)
    if codec == "none":
        return b"".join(pack_entry(each, magic) for each in read)
    return pack_wrapper(read, magic, codec)


def _record(offset: int, shape: LogShape, rng: random.Random) -> Record:
    value = None if rng.random() < shape.tombstones else rng.randbytes(rng.randint(0, shape.value_bytes))
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if rng.random() < shape.headers:
        headers = tuple((f"h{number}", rng.choice([None, b"", b"content"])) for number in range(rng.randint(1, 3)))
    return Record(
        offset=offset,
        timestamp=shape.start_ms + rng.randint(0, 5000),
        key=f"k{rng.randrange(shape.keys)}".encode(),
        value=value,
        headers=headers,
    )


def _marker(log: CompactedLog, shape: LogShape, rng: random.Random, producer: int) -> bytes:
    kind = rng.choice([ControlType.ABORT, ControlType.COMMIT])
    transaction = log.running.pop(producer)
    if kind == ControlType.ABORT:
        log.aborted.add(transaction)
    offset = log.next_offset
    log.next_offset += 1
    batch = control_batch(Marker(producer, kind, 0), offset, timestamp=shape.start_ms + 5000)
    return batch[:12] + bytes(4) + batch[16:]  # leader epoch 0
