"""Writes whole log directories with our encoder, as a broker would leave them, for tests that read or damage them."""

import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from sparklog.storage_core.checkpoint.leader_epochs import render_leader_epochs
from sparklog.storage_core.checkpoint.partition_metadata import render_partition_metadata
from sparklog.storage_core.index.offset_index import pack_offset_entries
from sparklog.storage_core.index.time_index import pack_time_entries
from sparklog.storage_core.inspect.verify.findings import ExpectedLog
from sparklog.storage_core.log.files.names import INDEX, LOG, TIMEINDEX, segment_file_name
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions, RecordColumns, encode_batches

__all__ = ["TOPIC_ID", "Batch", "WrittenLog", "encode_batch", "write_log"]

TOPIC_ID = "q1Sh-9_ISia_zwGINzRvyQ"


@dataclass(frozen=True)
class Batch:
    """What goes into one batch; the record with number n has key `k<n>`.

    Attributes:
        timestamps: one per record.
        gap: offsets left out before it.
        leader_epoch: in its header.
    """

    timestamps: list[int]
    gap: int = 0
    leader_epoch: int = 0
    value_bytes: int = 20


@dataclass
class WrittenLog:
    """A log directory and everything known about it.

    Attributes:
        offsets: of every record.
        timestamps: of every record.
        batches: (segment file, position, size, base offset, last offset) of every batch.
    """

    directory: Path
    offsets: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    batches: list[tuple[Path, int, int, int, int]] = field(default_factory=list)
    expected: ExpectedLog | None = None


def encode_batch(batch: Batch, base_offset: int, codec: str = "none") -> bytes:
    """Return one encoded batch at its place."""
    count = len(batch.timestamps)
    columns = RecordColumns(
        key=pa.array([f"k{number}".encode() for number in range(count)], pa.binary()),
        value=pa.array([bytes([number % 251]) * batch.value_bytes for number in range(count)], pa.binary()),
        timestamp=np.array(batch.timestamps, np.int64),
    )
    options = EncodeOptions(codec=codec, batch_size_bytes=1 << 30, max_message_bytes=1 << 30)
    encoded = encode_batches(columns, np.arange(count), np.array([0, count]), options)
    data = bytearray(encoded.data.tobytes())
    data[0:8] = struct.pack(">q", base_offset)
    data[12:16] = struct.pack(">i", batch.leader_epoch)
    return bytes(data)


def write_log(
    directory: Path,
    segments: list[list[Batch]],
    *,
    codec: str = "none",
    start_offset: int = 0,
    index_interval_bytes: int = 200,
    epochs: list[tuple[int, int]] | None = None,
) -> WrittenLog:
    """Write a log; every segment but the last is closed."""
    directory.mkdir(parents=True, exist_ok=True)
    log = WrittenLog(directory)
    next_offset, base, size = start_offset, start_offset, 0
    for number, batches in enumerate(segments):
        base = next_offset
        next_offset, size = _write_segment(log, batches, base, codec, index_interval_bytes, number == len(segments) - 1)
    newest = max((batch.leader_epoch for batches in segments for batch in batches), default=0)
    (directory / "partition.metadata").write_bytes(render_partition_metadata(TOPIC_ID))
    (directory / "leader-epoch-checkpoint").write_bytes(render_leader_epochs(epochs or [(newest, start_offset)]))
    log.expected = ExpectedLog(
        log_start_offset=start_offset,
        log_end_offset=next_offset,
        active_base_offset=base,
        active_size_bytes=size,
        topic_id=TOPIC_ID,
        leader_epoch=newest,
    )
    return log


def _write_segment(
    log: WrittenLog, batches: list[Batch], base: int, codec: str, interval: int, is_active: bool
) -> tuple[int, int]:
    path = log.directory / segment_file_name(base, LOG)
    data = bytearray()
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    next_offset, since, latest = base, 0, (-1, base)
    for batch in batches:
        next_offset += batch.gap
        encoded, last = encode_batch(batch, next_offset, codec), next_offset + len(batch.timestamps) - 1
        log.batches.append((path, len(data), len(encoded), next_offset, last))
        log.offsets += range(next_offset, last + 1)
        log.timestamps += batch.timestamps
        latest = max(latest, (max(batch.timestamps), last), key=lambda each: each[0])
        if since > interval:
            offsets.append((last - base, len(data)))
            if latest[0] > (times[-1][0] if times else -1):
                times.append((latest[0], latest[1] - base))
            since = 0
        since += len(encoded)
        data += encoded
        next_offset = last + 1
    if not is_active and latest[0] > (times[-1][0] if times else -1):
        times.append((latest[0], latest[1] - base))
    path.write_bytes(data)
    (log.directory / segment_file_name(base, INDEX)).write_bytes(
        pack_offset_entries(*zip(*offsets, strict=True)) if offsets else b""
    )
    (log.directory / segment_file_name(base, TIMEINDEX)).write_bytes(
        pack_time_entries(*zip(*times, strict=True)) if times else b""
    )
    return next_offset, len(data)
