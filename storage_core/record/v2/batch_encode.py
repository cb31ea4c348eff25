"""Encodes columns into batches of Kafka's RecordBatch v2, vectorised.

A batch is planned, written, compressed and sealed with its CRC; no record is ever a Python object. Assigned base
offsets stay 0: the CRC does not cover them, so the placer sets them.

Source: Kafka MemoryRecordsBuilder, DefaultRecordBatch; KIP-98.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.errors import InvalidConfigError, InvalidRecordError, RecordTooLargeError
from sparklog.storage_core.log_config import INT32_MAX, INT64_MAX
from sparklog.storage_core.record.attributes import pack_attributes
from sparklog.storage_core.record.batch_probe import LOG_OVERHEAD_BYTES, MAGIC_V2, V2_CRC
from sparklog.storage_core.record.compression import MAX_DECOMPRESSED_BYTES, check_level, compress
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, HEADER_DTYPE
from sparklog.storage_core.record.v2.encode_kernels import (
    Columns,
    PlanColumn,
    PlanFailure,
    add_field_sizes,
    add_header_sizes,
    plan_batches,
    write_records,
)
from sparklog.storage_core.record.v2.record_columns import RecordColumns, kernel_columns

__all__ = ["EncodeOptions", "EncodedBatches", "RecordColumns", "encode_batches", "starts_of"]

_ATTRIBUTES_AND_HEADER_COUNT_BYTES = np.int64(2)
_SEQUENCES = 1 << 31
_LARGEST = {
    "partition_leader_epoch": INT32_MAX,
    "producer_id": INT64_MAX,
    "producer_epoch": 2**15 - 1,
    "base_sequence": INT32_MAX,
}

_Int64s: TypeAlias = npt.NDArray[np.int64]
_Plan: TypeAlias = npt.NDArray[np.int64]
"""(b, WIDTH), see `PlanColumn`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeOptions:
    """Settings of an encoding.

    Attributes:
        codec: one of `CODECS`.
        level: in Kafka's range for the codec; 0 is Kafka's default.
        batch_size_bytes: uncompressed size that closes a batch; one record is always allowed.
        max_message_bytes: size of the largest batch, header included, after compression.
        log_append_time_ms: the append's time, which makes LogAppendTime batches; None makes CreateTime ones.
        partition_leader_epoch: -1 none.
        producer_id: -1 none; the three producer fields are the same for every group.
        producer_epoch: of the producer; -1 without one.
        base_sequence: of the first record of each group; -1 without a producer.
        is_transactional: whether the records belong to a transaction, which only a producer has.
    """

    codec: str = "none"
    level: int = 0
    batch_size_bytes: int = 16384
    max_message_bytes: int = 1048588
    log_append_time_ms: int | None = None
    partition_leader_epoch: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False

    def __post_init__(self) -> None:
        problems = [problem for problem in [check_level(self.codec, self.level)] if problem]
        problems += [
            f"{name}={getattr(self, name)} is outside 0..{INT32_MAX}"
            for name in ("batch_size_bytes", "max_message_bytes")
            if not 0 <= getattr(self, name) <= INT32_MAX
        ]
        problems += [
            f"{name}={getattr(self, name)} is outside -1..{largest}"
            for name, largest in _LARGEST.items()
            if not -1 <= getattr(self, name) <= largest
        ]
        if problems := problems or self._producer_problems():
            raise InvalidConfigError("; ".join(problems))

    def _producer_problems(self) -> list[str]:
        """Return the problems of `MemoryRecordsBuilder.validateProducerState`, and fields without a producer."""
        if self.producer_id < 0:
            fields = {"producer_epoch": self.producer_epoch >= 0, "base_sequence": self.base_sequence >= 0}
            problems = [
                f"{name}={getattr(self, name)} without a producer id" for name, is_set in fields.items() if is_set
            ]
            return problems + ["is_transactional without a producer id"] * self.is_transactional
        missing = {"an epoch": self.producer_epoch, "a base sequence": self.base_sequence}
        return [f"producer_id={self.producer_id} without {name}" for name, value in missing.items() if value < 0]


@dataclass(frozen=True, slots=True)
class EncodedBatches:
    """Finished batches back to back, those of a group together, groups in order; b is their number.

    Attributes:
        data: all the bytes; writable, owned by the caller.
        group: (b,) number of its group.
        position: (b,) in `data`.
        last_offset_delta: (b,) last offset minus base offset.
        base_offset: (b,) 0 for assigned offsets, the first record's for preserved ones.
        max_timestamp: (b,) as in the header.
    """

    data: npt.NDArray[np.uint8]
    group: npt.NDArray[np.int32]
    position: npt.NDArray[np.int64]
    size: npt.NDArray[np.int32]
    records_count: npt.NDArray[np.int32]
    last_offset_delta: npt.NDArray[np.int32]
    base_offset: npt.NDArray[np.int64]
    max_timestamp: npt.NDArray[np.int64]


def encode_batches(
    columns: RecordColumns, rows: _Int64s, group_starts: _Int64s, options: EncodeOptions
) -> EncodedBatches:
    """Return the batches of every group.

    Timestamp deltas wrap at 64 bits, as Kafka's do, so any int64 timestamps survive.

    Args:
        rows: row numbers, sorted by group, in record order inside a group.
        group_starts: (g + 1,) borders of the groups inside `rows`.

    Raises:
        InvalidRecordError: a row can't become a record: too large, a header without a key, an offset going back.
    """
    run = _Run(kernel_columns(columns), np.ascontiguousarray(rows, np.int64), options)
    starts = np.ascontiguousarray(group_starts, np.int64)
    if not starts.size or starts[0] < 0 or starts[-1] > run.rows.size or (np.diff(starts) < 0).any():
        raise ValueError("group_starts are no borders inside rows")
    run.measure()
    plan = run.plan(starts, run.limit_bytes)
    if options.codec == "none":
        sizes = plan[:, PlanColumn.SIZE]
        positions = starts_of(sizes)
        data = np.empty(int(sizes.sum()), np.uint8)
        run.write(plan, positions + HEADER_BYTES, data)
        return run.seal(plan, data, positions, sizes)
    return run.encode_compressed(plan)


def starts_of(sizes: _Int64s) -> _Int64s:
    """Return the start of each of these sizes, back to back."""
    starts: _Int64s = np.zeros_like(sizes)
    np.cumsum(sizes[:-1], out=starts[1:])
    return starts


class _Run:
    """State of one call."""

    def __init__(self, columns: Columns, rows: _Int64s, options: EncodeOptions) -> None:
        self.columns = columns
        self.rows = rows
        self.options = options
        self.lengths = np.empty(rows.size, np.int32)
        self.bodies = np.full(rows.size, _ATTRIBUTES_AND_HEADER_COUNT_BYTES)
        self.refuse_bytes = options.max_message_bytes if options.codec == "none" else MAX_DECOMPRESSED_BYTES
        self.limit_bytes = min(options.batch_size_bytes, self.refuse_bytes)

    def measure(self) -> None:
        """Fill `bodies`."""
        keys, values, lists, names, contents, *_ = self.columns
        for offsets, _, flags in (keys, values):
            outside = add_field_sizes(offsets, flags, self.rows, self.bodies)
            if outside >= 0:
                raise ValueError(f"rows hold a number outside the columns row={self.rows[outside]}")
        if lists[0].size:
            fields = (lists[0], lists[2], names[0], names[2], contents[0], contents[2])
            nameless = add_header_sizes(*fields, self.rows, self.bodies)
            if nameless >= 0:
                raise InvalidRecordError(f"a header has no key row={self.rows[nameless]}")

    def plan(self, starts: _Int64s, limit_bytes: int) -> _Plan:
        """Return (b, WIDTH): the batches' borders and sizes."""
        batches = np.empty((int(starts[-1] - starts[0]), PlanColumn.WIDTH), np.int64)
        failed = np.zeros(2, np.int64)
        limits = (limit_bytes, self.refuse_bytes)
        timestamps, offsets = self.columns[5:]
        planned = plan_batches(
            timestamps, offsets, self.rows, self.bodies, starts, limits, self.lengths, batches, failed
        )
        if planned < 0:
            raise self._failure(-planned, int(failed[0]), int(failed[1]))
        return batches[:planned]

    def _failure(self, failure: int, row: int, size: int) -> Exception:
        if failure == PlanFailure.TOO_LARGE:
            return RecordTooLargeError(row, size, self.refuse_bytes)
        return InvalidRecordError(f"offset is negative, the largest int64, or not above the one before it row={row}")

    def write(self, plan: _Plan, starts: _Int64s, out: npt.NDArray[np.uint8]) -> None:
        """Write the records of every batch to their places in `out`."""
        keys, values, lists, names, contents, timestamps, offsets = self.columns
        fields = (*keys, *values, *lists, *names, *contents, timestamps, offsets)
        write_records(*fields, self.rows, self.lengths, plan, starts, out)

    def encode_compressed(self, plan: _Plan) -> EncodedBatches:
        """Compress every section, splitting batches that stay above `max_message_bytes`."""
        plans: list[_Int64s] = []
        parts: list[bytes | memoryview] = []
        sizes: list[int] = []
        for each, section in self._sections(plan):
            plans.append(each)
            parts += (bytes(HEADER_BYTES), section)
            sizes.append(HEADER_BYTES + len(section))
        done = np.array(plans, np.int64).reshape(len(plans), PlanColumn.WIDTH)
        data = np.frombuffer(bytearray().join(parts), np.uint8)
        size_column = np.array(sizes, np.int64)
        return self.seal(done, data, starts_of(size_column), size_column)

    def _sections(self, plan: _Plan) -> Iterator[tuple[_Int64s, bytes | memoryview]]:
        sizes = plan[:, PlanColumn.SIZE] - HEADER_BYTES
        starts = starts_of(sizes)
        scratch = np.empty(int(sizes.sum()), np.uint8)
        self.write(plan, starts, scratch)
        view, codec, level = scratch.data, self.options.codec, self.options.level
        for each, start, size in zip(plan, starts.tolist(), sizes.tolist(), strict=True):
            section = compress(codec, view[start : start + size], level)
            if HEADER_BYTES + len(section) <= self.options.max_message_bytes:
                yield each, section
            else:
                yield from self._split(each, HEADER_BYTES + len(section))

    def _split(self, batch: _Int64s, size: int) -> Iterator[tuple[_Int64s, bytes | memoryview]]:
        first, count = int(batch[PlanColumn.FIRST]), int(batch[PlanColumn.COUNT])
        if count == 1:
            raise RecordTooLargeError(int(self.rows[first]), size, self.options.max_message_bytes)
        smaller = self.plan(np.array([first, first + count]), int(batch[PlanColumn.SIZE]) // 2)
        smaller[:, PlanColumn.GROUP] = batch[PlanColumn.GROUP]
        yield from self._sections(smaller)

    def seal(self, plan: _Plan, data: npt.NDArray[np.uint8], positions: _Int64s, sizes: _Int64s) -> EncodedBatches:
        """Write headers and CRCs to the sections, which are in place."""
        headers = self._headers(plan, sizes)
        raw = headers.view(np.uint8)
        view, header_view = data.data, raw.data
        crcs = []
        ends = (positions + sizes).tolist()
        for place, (start, end) in enumerate(zip(positions.tolist(), ends, strict=True)):
            view[start : start + HEADER_BYTES] = header_view[place * HEADER_BYTES : (place + 1) * HEADER_BYTES]
            crcs.append(V2_CRC.update(view[start + V2_CRC.covers_from : end]))
        at = positions[:, None] + np.arange(V2_CRC.at, V2_CRC.covers_from)
        data[at] = np.array(crcs, ">u4").view(np.uint8).reshape(-1, 4)
        return EncodedBatches(
            data=data,
            group=plan[:, PlanColumn.GROUP].astype(np.int32),
            position=positions,
            size=sizes.astype(np.int32),
            records_count=plan[:, PlanColumn.COUNT].astype(np.int32),
            last_offset_delta=plan[:, PlanColumn.LAST_DELTA].astype(np.int32),
            base_offset=headers["base_offset"].astype(np.int64),
            max_timestamp=headers["max_timestamp"].astype(np.int64),
        )

    def _headers(self, plan: _Plan, sizes: _Int64s) -> npt.NDArray[np.void]:
        options, headers = self.options, np.zeros(len(plan), HEADER_DTYPE)
        timestamps, offsets = self.columns[5], self.columns[6]
        first_rows = self.rows[plan[:, PlanColumn.FIRST]]
        append_time = options.log_append_time_ms
        headers["base_offset"] = offsets[first_rows] if offsets.size else 0
        headers["batch_length"] = sizes - LOG_OVERHEAD_BYTES
        headers["partition_leader_epoch"] = options.partition_leader_epoch
        headers["magic"] = MAGIC_V2
        headers["attributes"] = pack_attributes(
            options.codec, log_append_time=append_time is not None, transactional=options.is_transactional
        )
        headers["last_offset_delta"] = plan[:, PlanColumn.LAST_DELTA]
        headers["base_timestamp"] = timestamps[first_rows]
        headers["max_timestamp"] = plan[:, PlanColumn.MAX_TIMESTAMP] if append_time is None else append_time
        headers["producer_id"] = options.producer_id
        headers["producer_epoch"] = options.producer_epoch
        headers["base_sequence"] = self._sequences(plan)
        headers["records_count"] = plan[:, PlanColumn.COUNT]
        return headers

    def _sequences(self, plan: _Plan) -> _Int64s | int:
        if self.options.base_sequence < 0 or not len(plan):
            return -1
        used = starts_of(plan[:, PlanColumn.LAST_DELTA] + 1)
        groups = plan[:, PlanColumn.GROUP]
        used -= used[np.searchsorted(groups, groups)]
        sequences: _Int64s = (self.options.base_sequence + used) % _SEQUENCES
        return sequences
