"""Where each batch of a micro-batch goes: offset, segment, position, index entries. Decides, touches nothing.

The state of many logs lies in columns, one row per log, so that one compiled pass plans a whole micro-batch.

Source: Kafka LogSegment.append, LogSegment.shouldRoll, LocalLog.roll, OffsetIndex, TimeIndex.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.errors import InvalidRecordError
from sparklog.storage_core.kernels import kernel
from sparklog.storage_core.log_config import INT32_MAX

__all__ = ["APPEND_STATE", "ROLL_LIMITS", "AppendPlan", "BackwardOffsetError", "BatchColumns", "plan_appends"]

APPEND_STATE = np.dtype(
    [
        ("next_offset", np.int64),  # offset the next record gets
        ("segment_base", np.int64),  # base offset of the active segment, -1 none yet
        ("segment_size", np.int64),  # bytes of its .log
        ("first_timestamp", np.int64),  # max timestamp of its first batch, -1 unknown
        ("max_timestamp", np.int64),  # largest so far in the segment, -1 none
        ("max_timestamp_offset", np.int64),  # last offset of the batch that has it
        ("created_ms", np.int64),  # when the segment was opened, by the monotonic clock
        ("bytes_since_entry", np.int64),  # since the last index entry
        ("offset_entries", np.int64),  # in .index
        ("time_entries", np.int64),  # in .timeindex
        ("last_entry_timestamp", np.int64),  # of the last time entry, -1 none
        ("jitter_ms", np.int64),  # drawn for this segment
    ]
)
"""One row per log: what an append needs to know of the active segment."""

ROLL_LIMITS = np.dtype(
    [
        ("segment_bytes", np.int64),
        ("segment_ms", np.int64),
        ("index_interval_bytes", np.int64),
        ("max_offset_entries", np.int64),
        ("max_time_entries", np.int64),
        ("max_jitter_ms", np.int64),
    ]
)
"""One row per log: its topic's settings in the units of the plan."""


@dataclass(frozen=True, slots=True)
class AppendPlan:
    """What to write where; every column of batches is in the order given to `plan_appends`.

    Attributes:
        base_offset: (b,) offset of each batch's first record.
        segment_base: (b,) base offset of the segment a batch goes to.
        position: (b,) where it starts there.
        offset_entries: (e, 4) int64 of log row, segment base, relative offset, position.
        time_entries: (t, 4) int64 of log row, segment base, timestamp, relative offset.
        rolls: how many segments were closed and followed by a new one.
        state: the state of every log after all appends.
    """

    base_offset: npt.NDArray[np.int64]
    segment_base: npt.NDArray[np.int64]
    position: npt.NDArray[np.int64]
    offset_entries: npt.NDArray[np.int64]
    time_entries: npt.NDArray[np.int64]
    rolls: int
    state: npt.NDArray[np.void]


def plan_appends(
    state: npt.NDArray[np.void],
    limits: npt.NDArray[np.void],
    batches: "BatchColumns",
    monotonic_ms: int,
    seed: int,
) -> AppendPlan:
    """Plan the appends of a micro-batch.

    Args:
        state: (n,) `APPEND_STATE`, one row per touched log; not changed.
        limits: (n,) `ROLL_LIMITS` of the same logs.
        batches: the batches, in the order in which each log takes them.
        monotonic_ms: the monotonic clock, for how long segments without timestamps have waited.
        seed: of the jitter drawn at each roll.

    Raises:
        InvalidRecordError: a preserved offset goes back or repeats.
    """
    count = len(batches.log)
    after = state.copy()
    base_offset, segment_base, position = (np.empty(count, np.int64) for _ in range(3))
    offset_entries = np.empty((count, 4), np.int64)
    time_entries = np.empty((2 * count, 4), np.int64)
    counts = np.zeros(4, np.int64)
    _plan(
        after.view(np.int64).reshape(len(after), len(APPEND_STATE.names or ())),
        np.ascontiguousarray(limits).view(np.int64).reshape(len(limits), len(ROLL_LIMITS.names or ())),
        batches.log,
        batches.size,
        batches.last_offset_delta,
        batches.max_timestamp,
        batches.preserved_base_offset,
        monotonic_ms,
        np.uint64(seed),
        base_offset,
        segment_base,
        position,
        offset_entries,
        time_entries,
        counts,
    )
    if counts[3]:
        raise BackwardOffsetError(int(counts[3]) - 1)
    return AppendPlan(
        base_offset,
        segment_base,
        position,
        offset_entries[: counts[0]],
        time_entries[: counts[1]],
        int(counts[2]),
        after,
    )


class BackwardOffsetError(InvalidRecordError):
    """A batch's preserved offset lies below the end of its log.

    Attributes:
        batch: index of the batch in the columns given.
    """

    def __init__(self, batch: int) -> None:
        super().__init__(batch)
        self.batch = batch

    def __str__(self) -> str:
        return f"a preserved offset goes back or repeats: batch={self.batch}"


@dataclass(frozen=True, slots=True)
class BatchColumns:
    """The staged batches of a micro-batch, sorted by log, in append order inside a log.

    Attributes:
        log: (b,) row of the log in `state`.
        size: (b,) bytes.
        last_offset_delta: (b,) last offset minus first.
        max_timestamp: (b,) of the header.
        preserved_base_offset: (b,) the first record's own offset, or -1 to assign one.
    """

    log: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    last_offset_delta: npt.NDArray[np.int64]
    max_timestamp: npt.NDArray[np.int64]
    preserved_base_offset: npt.NDArray[np.int64]


(_NEXT, _BASE, _SIZE, _FIRST_TS, _MAX_TS, _MAX_TS_OFFSET, _CREATED, _SINCE, _OFFSETS, _TIMES, _LAST_TS, _JITTER) = (
    range(12)
)
(_SEGMENT_BYTES, _SEGMENT_MS, _INTERVAL, _MAX_OFFSETS, _MAX_TIMES, _MAX_JITTER) = range(6)


@kernel("boolean(int64[::1], int64[::1], int64, int64, int64, int64)")
def _should_roll(
    log: npt.NDArray[np.int64],
    limit: npt.NDArray[np.int64],
    size: int,
    last_offset: int,
    max_timestamp: int,
    monotonic_ms: int,
) -> bool:
    """Kafka's `LogSegment.shouldRoll`; an empty segment has nothing to roll away from but its base offset."""
    if log[_BASE] < 0:
        return True
    if last_offset - log[_BASE] > INT32_MAX:
        return True
    if log[_SIZE] == 0:
        return False
    if log[_SIZE] > limit[_SEGMENT_BYTES] - size:
        return True
    waited = max_timestamp - log[_FIRST_TS] if log[_FIRST_TS] >= 0 else monotonic_ms - log[_CREATED]
    if waited > limit[_SEGMENT_MS] - log[_JITTER]:
        return True
    return bool(log[_OFFSETS] >= limit[_MAX_OFFSETS] or log[_TIMES] >= limit[_MAX_TIMES] - 1)


@kernel("int64(int64[::1], int64, int64[:, ::1], int64)")
def _add_time_entry(log: npt.NDArray[np.int64], row: int, entries: npt.NDArray[np.int64], count: int) -> int:
    """Kafka's `TimeIndex.maybeAppend`: only a larger timestamp makes an entry."""
    if log[_MAX_TS] <= log[_LAST_TS]:
        return count
    entries[count, 0] = row
    entries[count, 1] = log[_BASE]
    entries[count, 2] = log[_MAX_TS]
    entries[count, 3] = log[_MAX_TS_OFFSET] - log[_BASE]
    log[_LAST_TS] = log[_MAX_TS]
    log[_TIMES] += 1
    return count + 1


@kernel("void(int64[::1], int64, int64, int64)")
def _open_segment(log: npt.NDArray[np.int64], base_offset: int, monotonic_ms: int, jitter_ms: int) -> None:
    log[_BASE] = base_offset
    log[_CREATED] = monotonic_ms
    log[_JITTER] = jitter_ms
    log[_SIZE] = log[_SINCE] = log[_OFFSETS] = log[_TIMES] = 0
    log[_FIRST_TS] = log[_MAX_TS] = log[_LAST_TS] = -1
    log[_MAX_TS_OFFSET] = base_offset


@kernel(
    "void(int64[:, ::1], int64[:, ::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64, uint64,"
    " int64[::1], int64[::1], int64[::1], int64[:, ::1], int64[:, ::1], int64[::1])"
)
def _plan(
    state: npt.NDArray[np.int64],
    limits: npt.NDArray[np.int64],
    logs: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    last_deltas: npt.NDArray[np.int64],
    max_timestamps: npt.NDArray[np.int64],
    preserved: npt.NDArray[np.int64],
    monotonic_ms: int,
    seed: np.uint64,
    base_offset: npt.NDArray[np.int64],
    segment_base: npt.NDArray[np.int64],
    position: npt.NDArray[np.int64],
    offset_entries: npt.NDArray[np.int64],
    time_entries: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
) -> None:
    for i in range(len(logs)):
        row = logs[i]
        log, limit = state[row], limits[row]
        base = preserved[i] if preserved[i] >= 0 else log[_NEXT]
        if base < log[_NEXT]:
            counts[3] = i + 1
            return
        last = base + last_deltas[i]
        if _should_roll(log, limit, sizes[i], last, max_timestamps[i], monotonic_ms):
            if log[_SIZE] > 0:  # the final entry, for which a slot is reserved
                counts[1] = _add_time_entry(log, row, time_entries, counts[1])
            seed = seed * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            jitter = np.int64(seed >> np.uint64(33)) % limit[_MAX_JITTER] if limit[_MAX_JITTER] > 0 else np.int64(0)
            counts[2] += log[_BASE] >= 0
            _open_segment(log, base, monotonic_ms, jitter)  # type: ignore[arg-type]
        if log[_SIZE] == 0:
            log[_FIRST_TS] = max_timestamps[i]
        if max_timestamps[i] > log[_MAX_TS]:
            log[_MAX_TS] = max_timestamps[i]
            log[_MAX_TS_OFFSET] = last
        if log[_SINCE] > limit[_INTERVAL]:
            offset_entries[counts[0], 0] = row
            offset_entries[counts[0], 1] = log[_BASE]
            offset_entries[counts[0], 2] = last - log[_BASE]
            offset_entries[counts[0], 3] = log[_SIZE]
            counts[0] += 1
            log[_OFFSETS] += 1
            counts[1] = _add_time_entry(log, row, time_entries, counts[1])
            log[_SINCE] = 0
        base_offset[i], segment_base[i], position[i] = base, log[_BASE], log[_SIZE]
        log[_SIZE] += sizes[i]
        log[_SINCE] += sizes[i]
        log[_NEXT] = last + 1
