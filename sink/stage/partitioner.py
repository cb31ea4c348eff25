"""Chooses the log of each row, and finds invalid rows.

An explicit `partition` wins; a key goes to `murmur2(key) mod partitions`, as in Kafka's producer; a keyless row goes to
its task's sticky partition, which changes after every `batch.size` bytes.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.sink.stage.invalid_rows import InvalidReason
from sparklog.sink.stage.murmur2 import murmur2_partitions
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.log_config import INT64_MAX
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from sparklog.storage_core.topic_partition import check_topic_name

__all__ = ["Routed", "Router", "StageTopic", "binary_layout", "epoch_ms", "topic_name"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTopic:
    """A topic's settings for executors.

    Attributes:
        first_log: id of partition 0; the others follow.
        oldest_ms, newest_ms: range of timestamps the topic takes.
    """

    name: str
    first_log: int
    partitions: int
    options: EncodeOptions
    needs_key: bool
    oldest_ms: int = 0
    newest_ms: int = INT64_MAX


@dataclass(frozen=True, slots=True)
class Routed:
    """Logs of the rows of one Arrow batch.

    Attributes:
        log: (n,) id of the row's log, -1 for an invalid row.
        timestamp: (n,) ms.
        reason: (n,) an `InvalidReason`, 0 none.
    """

    log: npt.NDArray[np.int64]
    timestamp: npt.NDArray[np.int64]
    reason: npt.NDArray[np.int8]


@dataclass(slots=True)
class Router:
    """Routes the rows of one task.

    Attributes:
        fixed_topic: index of the topic of all rows, None if a column names it.
        now_ms: timestamp of rows without one.
        first_turn: first sticky partition: another one for each task and micro-batch, or small micro-batches would fill
            only the first partitions.
    """

    topics: tuple[StageTopic, ...]
    fixed_topic: int | None
    now_ms: int
    first_turn: int
    _keyless_bytes: dict[int, int] = field(default_factory=dict)

    def route(self, batch: pa.RecordBatch) -> Routed:
        """Route the rows of one Arrow batch."""
        reason = np.zeros(batch.num_rows, np.int8)
        topic = self._topics(batch, reason)
        timestamp = self._timestamps(batch, topic, reason)
        self._check_keys(batch, topic, reason)
        self._check_offsets(batch, reason)
        self._check_headers(batch, reason)
        partition = self._partitions(batch, topic, reason)
        first_log = np.array([each.first_log for each in self.topics] or [0], np.int64)
        log = np.where(reason == 0, first_log[topic] + partition, -1)
        return Routed(log, timestamp, reason)

    def partition_of(self, row: pa.RecordBatch) -> int | None:
        """Return the partition of one row's `partition` or `key`; None if any is allowed."""
        reason = np.zeros(1, np.int8)
        topic = self._topics(row, reason)
        names = row.schema.names
        if "partition" in names and row.column("partition").is_valid()[0].as_py():
            return int(row.column("partition")[0].as_py())
        if reason[0] or "key" not in names:
            return None
        partition = np.full(1, -1, np.int64)
        count = np.array([self.topics[int(topic[0])].partitions], np.int64)
        murmur2_partitions(*binary_layout(row.column("key")), count, partition)
        return int(partition[0]) if partition[0] >= 0 else None

    def _topics(self, batch: pa.RecordBatch, reason: npt.NDArray[np.int8]) -> npt.NDArray[np.int64]:
        if self.fixed_topic is not None:
            return np.full(batch.num_rows, self.fixed_topic, np.int64)
        encoded = batch.column("topic").dictionary_encode()
        names = [topic_name(encoded.dictionary, place) or "" for place in range(len(encoded.dictionary))]
        numbers = {each.name: number for number, each in enumerate(self.topics)}
        places = (numbers.get(name, -_name_problem(name)) for name in names)
        index = np.array([*places, -InvalidReason.TOPIC_NULL], np.int64)
        topic: npt.NDArray[np.int64] = index[encoded.indices.fill_null(len(names)).to_numpy(zero_copy_only=False)]
        np.copyto(reason, -topic.astype(np.int8), where=topic < 0)
        np.maximum(topic, 0, out=topic)
        return topic

    def _timestamps(
        self, batch: pa.RecordBatch, topic: npt.NDArray[np.int64], reason: npt.NDArray[np.int8]
    ) -> npt.NDArray[np.int64]:
        if "timestamp" not in batch.schema.names:
            return np.full(batch.num_rows, self.now_ms, np.int64)
        column = batch.column("timestamp")
        timestamp = epoch_ms(column)
        if column.null_count:
            _mark(reason, column.is_null().to_numpy(zero_copy_only=False), InvalidReason.TIMESTAMP_NULL)
        oldest = np.array([each.oldest_ms for each in self.topics] or [0], np.int64)
        newest = np.array([each.newest_ms for each in self.topics] or [0], np.int64)
        is_outside = (timestamp < oldest[topic]) | (timestamp > newest[topic])
        _mark(reason, is_outside & (timestamp != -1), InvalidReason.TIMESTAMP_RANGE)
        return timestamp

    def _check_keys(self, batch: pa.RecordBatch, topic: npt.NDArray[np.int64], reason: npt.NDArray[np.int8]) -> None:
        needs_key = np.array([each.needs_key for each in self.topics] or [False])
        if not needs_key.any():
            return
        if "key" not in batch.schema.names:
            _mark(reason, needs_key[topic], InvalidReason.KEY_NULL)
        elif batch.column("key").null_count:
            is_null = batch.column("key").is_null().to_numpy(zero_copy_only=False)
            _mark(reason, needs_key[topic] & is_null, InvalidReason.KEY_NULL)

    def _check_offsets(self, batch: pa.RecordBatch, reason: npt.NDArray[np.int8]) -> None:
        if "offset" in batch.schema.names:
            offsets = batch.column("offset").fill_null(-1).to_numpy(zero_copy_only=False)
            is_outside = (offsets < 0) | (offsets == INT64_MAX)  # the log's end is one above its last offset
            _mark(reason, is_outside, InvalidReason.OFFSET_RANGE)

    def _check_headers(self, batch: pa.RecordBatch, reason: npt.NDArray[np.int8]) -> None:
        if "headers" not in batch.schema.names:
            return
        headers = batch.column("headers")
        keys = pc.struct_field(headers.flatten(), "key")
        if keys.null_count:
            owners = pc.list_parent_indices(headers).filter(keys.is_null())
            bad = np.zeros(len(headers), np.bool_)
            bad[owners.to_numpy(zero_copy_only=False)] = True
            _mark(reason, bad, InvalidReason.HEADER_KEY_NULL)

    def _partitions(
        self, batch: pa.RecordBatch, topic: npt.NDArray[np.int64], reason: npt.NDArray[np.int8]
    ) -> npt.NDArray[np.int64]:
        count = np.array([each.partitions for each in self.topics] or [1], np.int64)[topic]
        partition = np.full(batch.num_rows, -1, np.int64)
        if "partition" in batch.schema.names:
            column = batch.column("partition")
            partition = column.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
            named = column.is_valid().to_numpy(zero_copy_only=False)
            _mark(reason, named & ((partition < 0) | (partition >= count)), InvalidReason.PARTITION_RANGE)
        open_rows = (partition < 0) & (reason == 0)
        if "key" in batch.schema.names and open_rows.any():
            data, starts, sizes = binary_layout(batch.column("key"))
            murmur2_partitions(data, starts, sizes, np.where(open_rows, count, 0), partition)
            open_rows = (partition < 0) & (reason == 0)
        if open_rows.any():
            partition[open_rows] = self._stick(batch, topic, np.flatnonzero(open_rows))
        return partition

    def _stick(
        self, batch: pa.RecordBatch, topic: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        _, _, sizes = binary_layout(batch.column("value"))
        chosen = np.empty(len(rows), np.int64)
        for number in np.unique(topic[rows]).tolist():
            each = self.topics[number]
            mine = topic[rows] == number
            passed = np.cumsum(np.maximum(sizes[rows[mine]], 0) + _RECORD_OVERHEAD_BYTES) + self._keyless_bytes.get(
                number, 0
            )
            self._keyless_bytes[number] = int(passed[-1])
            chosen[mine] = (self.first_turn + passed // each.options.batch_size_bytes) % each.partitions
        return chosen


_RECORD_OVERHEAD_BYTES = 21
"""Kafka's upper estimate of a record's size besides key, value and headers."""


def topic_name(column: pa.Array, row: int) -> str | None:
    """Return a row's topic; Spark does not check UTF-8, so illegal bytes become U+FFFD."""
    value = column[row]
    return value.as_buffer().to_pybytes().decode(errors="replace") if value.is_valid else None


def _name_problem(name: str) -> InvalidReason:
    try:
        check_topic_name(name)
    except InvalidConfigError:
        return InvalidReason.TOPIC_ILLEGAL
    return InvalidReason.TOPIC_UNKNOWN


def _mark(reason: npt.NDArray[np.int8], rows: npt.NDArray[np.bool_], problem: InvalidReason) -> None:
    """Set the problem of rows without one: the first problem is reported."""
    reason[rows & (reason == 0)] = problem


def epoch_ms(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return (n,) ms since the epoch of a `timestamp[us]` or `int64` (already ms) column; 0 where null."""
    if pa.types.is_timestamp(column.type):
        unit = {"ms": 1, "us": 1_000, "ns": 1_000_000}[column.type.unit]
        ticks: npt.NDArray[np.int64] = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        return ticks // unit
    milliseconds: npt.NDArray[np.int64] = column.fill_null(0).to_numpy(zero_copy_only=False)
    return milliseconds


def binary_layout(column: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the bytes of a binary or string column, and (n,) start and size of each value; size -1 where null."""
    _, offsets_buffer, data_buffer = column.buffers()
    wide = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    borders = np.frombuffer(offsets_buffer, np.int64 if wide else np.int32)
    offsets: npt.NDArray[np.int64] = borders[column.offset : column.offset + len(column) + 1].astype(np.int64)
    sizes: npt.NDArray[np.int64] = np.diff(offsets)
    if column.null_count:
        sizes[column.is_null().to_numpy(zero_copy_only=False)] = -1
    data = (
        np.frombuffer(data_buffer, np.uint8) if data_buffer is not None and data_buffer.size else np.zeros(1, np.uint8)
    )
    return data, offsets[:-1], sizes
