"""Rounds whose groups are cleaned in any order, some of them never, against a dict."""

import contextlib
import os
import random
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.storage_core.cleaner.clean_log import CleanedLog, LogToClean, clean_log
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.compacted_logs import CompactedLog, LogShape, draw_shape, write_segments
from tests.build.owners import CheckedBy
from tests.plain.parallel_round import clean_parts

_START_MS = 1_700_000_000_000
_RETENTION_MS = 60_000
_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
_LARGE_MAP = 24 * 4096


def _shape(seed: int, **fields: object) -> LogShape:
    shape = replace(draw_shape(seed, _START_MS), open_at=None, keys=random.Random(seed).choice([2, 8, 30]))
    return replace(shape, **fields)  # type: ignore[arg-type]


def _config(seed: int) -> LogConfig:
    return LogConfig(
        cleanup_policy="compact",
        segment_bytes=random.Random(seed).choice([400, 400, 2000, 20_000]),
        delete_retention_ms=_RETENTION_MS,
        min_cleanable_dirty_ratio=0.0,
    )


def _round(log: CompactedLog, config: LogConfig, dirty: int, now_ms: int, map_bytes: int = _LARGE_MAP) -> LogToClean:
    return LogToClean(
        directory=log.directory,
        end=log.end,
        log_start_offset=log.bases[0],
        first_dirty_offset=dirty,
        first_uncleanable_offset=log.bases[-1],
        config=config,
        now_ms=now_ms,
        map_bytes=map_bytes,
        hash_key=bytes(range(16)),
    )


def _committed(log: CompactedLog) -> dict[int, tuple[bytes | None, bytes | None]]:
    """Return key and value of what a read_committed consumer gets, by offset."""
    reader = LogReader(
        log.directory,
        log_start_offset=log.bases[0],
        log_end_offset=log.next_offset,
        last_stable_offset=log.next_offset,
    )
    rows = (row for batch in reader.read(log.bases[0], isolation="read_committed") for row in batch.to_pylist())
    return {row["offset"]: (row["key"], row["value"]) for row in rows if row["key"] is not None}


def _table(records: dict[int, tuple[bytes | None, bytes | None]]) -> dict[bytes | None, bytes]:
    """Return the value of each key that has one, as whoever reads all records keeps it."""
    table: dict[bytes | None, bytes] = {}
    for _, (key, value) in sorted(records.items()):
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
    return table


def _written(log: CompactedLog) -> dict[int, tuple[bytes | None, bytes | None]]:
    return {offset: (each.key, each.value) for offset, each in log.records().items()}


def _one_round(rng: random.Random, log: CompactedLog, config: LogConfig, dirty: int, now_ms: int) -> CleanedLog:
    """Clean in parts, all or some of them, in any order; or as one process does, with a map of any size."""
    if rng.random() < 0.2:
        return clean_log(_round(log, config, dirty, now_ms, 32 * rng.choice([2, 5, 20, 4096])), UNSHARED)
    share = rng.choice([1.0, 0.5, 0.5, 0.2])

    def some(count: int) -> list[int]:
        numbers = [number for number in range(count) if rng.random() < share]
        rng.shuffle(numbers)
        return numbers

    return clean_parts(_round(log, config, dirty, now_ms), some)


class _Killed(BaseException):
    """The run is dead."""


def _killed_round(rng: random.Random, log: CompactedLog, config: LogConfig, dirty: int, now_ms: int) -> None:
    """Clean in parts and be killed somewhere between the steps, or not at all."""
    left = rng.randint(1, 60)

    def check() -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            raise _Killed

    with contextlib.suppress(_Killed):
        clean_parts(_round(log, config, dirty, now_ms), range, CheckedBy(check))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_rounds_in_parts_when_compared_with_a_dict_then_no_key_is_lost_or_comes_back(seed: int) -> None:
    """Behind every round, whatever it left undone, each key has the value of its last record; in the end alone that."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        log = write_segments(Path(folder) / "t-0", _shape(seed, tombstones=rng.choice([0.2, 0.6])))
        config, dirty, now_ms = _config(seed), log.bases[0], _START_MS + 3_600_000
        for step in range(rng.randint(3, 8)):
            if rng.random() < 0.5:
                _killed_round(rng, log, config, dirty, now_ms)
                assert _table(_committed(log)) == _table(_written(log))
            cleaned = _one_round(rng, log, config, dirty, now_ms)
            assert cleaned.first_dirty_offset >= dirty
            dirty = cleaned.first_dirty_offset
            assert _table(_committed(log)) == _table(_written(log))
            now_ms += rng.choice([1, _RETENTION_MS, _RETENTION_MS])
            if rng.random() < 0.3:
                shape = _shape(seed + step, segments=rng.randint(1, 3), magics=(2,))
                write_segments(log.directory, shape, log)
        while dirty < log.bases[-1]:
            dirty = clean_log(_round(log, config, dirty, now_ms), UNSHARED).first_dirty_offset
        for _ in range(3):
            now_ms += 2 * _RETENTION_MS
            clean_log(_round(log, config, log.bases[0], now_ms), UNSHARED)

        active = log.bases[-1]
        last = {offset: (each.key, each.value) for offset, each in log.last_of_each_key(active).items()}
        live = {offset: each for offset, each in last.items() if each[1] is not None}
        assert _committed(log) == live | {offset: each for offset, each in _written(log).items() if offset >= active}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(8, 2**32))
def test_round_in_parts_when_there_are_no_tombstones_then_its_bytes_are_those_of_one_process(seed: int) -> None:
    """Which batches and markers go, and which get a horizon, does not depend on who cleans which group, and when."""
    rng, found = random.Random(seed), []
    shape = _shape(seed, tombstones=0.0, transactions=rng.choice([0.5, 0.9]))
    config = _config(seed)
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        for name in ("parts", "one"):
            log = write_segments(Path(folder) / name / "t-0", shape)
            now_ms = _START_MS + 3_600_000
            for _ in range(3):
                what = _round(log, config, log.bases[0], now_ms)
                if name == "parts":
                    clean_parts(what, lambda count: rng.sample(range(count), count))
                else:
                    clean_log(what, UNSHARED)
                now_ms += _RETENTION_MS
            files = [each for each in log.directory.iterdir() if not each.name.endswith(".deleted")]
            found.append({each.name: each.read_bytes() for each in files})

    assert found[0] == found[1]
