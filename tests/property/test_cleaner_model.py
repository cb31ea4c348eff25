"""Cleaning whole logs against a dict: of each key the last record stays, and nothing else changes."""

import os
import random
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sparklog.storage_core.cleaner.clean_log import CleanedLog, LogToClean, clean_log
from sparklog.storage_core.cleaner.survey.plan_log import LogFacts, plan_log
from sparklog.storage_core.inspect.verify.findings import ExpectedLog
from sparklog.storage_core.inspect.verify.verify_log import verify_directory
from sparklog.storage_core.log.files.names import LOG
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.compacted_logs import CompactedLog, draw_shape, write_segments
from tests.build.written_log import TOPIC_ID
from tests.plain.scalar import Record

_START_MS = 1_700_000_000_000
_NOW_MS = _START_MS + 3_600_000
_RETENTION_MS = 60_000
_HASH_KEY = bytes(range(16))
_LARGE_MAP = 24 * 4096
_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _config(seed: int) -> LogConfig:
    rng = random.Random(seed)
    return LogConfig(
        cleanup_policy="compact",
        segment_bytes=rng.choice([400, 2000, 1 << 20]),
        segment_index_bytes=rng.choice([24, 10_485_760]),
        index_interval_bytes=rng.choice([50, 4096]),
        delete_retention_ms=_RETENTION_MS,
        min_cleanable_dirty_ratio=0.0,
    )


def _clean(
    log: CompactedLog,
    config: LogConfig,
    *,
    dirty: int,
    map_bytes: int,
    now_ms: int = _NOW_MS,
    uncleanable: int | None = None,
) -> CleanedLog:
    what = LogToClean(
        directory=log.directory,
        end=log.end,
        log_start_offset=log.bases[0],
        first_dirty_offset=dirty,
        first_uncleanable_offset=log.bases[-1] if uncleanable is None else uncleanable,
        config=config,
        now_ms=now_ms,
        map_bytes=map_bytes,
        hash_key=_HASH_KEY,
    )
    return clean_log(what, UNSHARED)


def _clean_all(log: CompactedLog, config: LogConfig, map_bytes: int, now_ms: int = _NOW_MS) -> list[CleanedLog]:
    """Clean in as many rounds as the map needs, as plans say."""
    rounds, checkpoint = list[CleanedLog](), None
    while True:
        facts = LogFacts(directory=log.directory, end=log.end, log_start_offset=log.bases[0], checkpoint=checkpoint)
        plan = plan_log(facts, config, now_ms)
        if not plan.is_due:
            return rounds
        cleaned = _clean(
            log,
            config,
            dirty=plan.first_dirty_offset,
            map_bytes=map_bytes,
            now_ms=now_ms,
            uncleanable=plan.first_uncleanable_offset,
        )
        rounds.append(cleaned)
        if checkpoint == rounds[-1].first_dirty_offset:
            return rounds
        checkpoint = rounds[-1].first_dirty_offset


def _read(log: CompactedLog) -> dict[int, Record]:
    """Return what a read_committed consumer gets; a transaction that never ends hides what lies behind its start."""
    reader = LogReader(
        log.directory,
        log_start_offset=log.bases[0],
        log_end_offset=log.next_offset,
        last_stable_offset=log.next_offset,
    )
    rows = (row for batch in reader.read(log.bases[0], isolation="read_committed") for row in batch.to_pylist())
    return {
        row["offset"]: Record(
            offset=row["offset"],
            timestamp=row["timestamp"],
            key=row["key"],
            value=row["value"],
            headers=tuple((each["key"], each["value"]) for each in row["headers"]),
        )
        for row in rows
        if row["key"] is not None
    }


def _files(log: CompactedLog) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in log.directory.iterdir() if not path.name.endswith(".deleted")}


def _expected(log: CompactedLog, cleaned_below: int) -> dict[int, Record]:
    untouched = {offset: each for offset, each in log.records().items() if offset >= cleaned_below}
    return log.last_of_each_key(cleaned_below) | untouched


def _is_sound(log: CompactedLog) -> list[str]:
    end = log.end
    expected = ExpectedLog(
        log_start_offset=log.bases[0],
        log_end_offset=end.log_end_offset,
        active_base_offset=end.segment_base,
        active_size_bytes=end.size_bytes,
        topic_id=TOPIC_ID,
        leader_epoch=0,
        has_gaps=True,
    )
    report = verify_directory(log.directory, expected, deep=True)
    return [f"{each.file}: {each.what}" for each in report.findings]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.sampled_from([2, 5, 20, 4096]))
def test_cleaning_when_compared_with_a_dict_then_the_last_of_each_key_stays(seed: int, keys_at_once: int) -> None:
    """Whatever the log, the codec and the memory: of the closed part the last record of each key stays, unchanged."""
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        log = write_segments(Path(folder) / "t-0", replace(draw_shape(seed, _START_MS), open_at=None))
        active = (log.directory / f"{log.bases[-1]:020}{LOG}").read_bytes()
        rounds = _clean_all(log, _config(seed), 32 * keys_at_once)

        assert rounds[-1].first_dirty_offset == log.bases[-1]
        assert _read(log) == _expected(log, log.bases[-1])
        assert (log.directory / f"{log.bases[-1]:020}{LOG}").read_bytes() == active
        assert _is_sound(log) == []


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_cleaning_when_done_twice_then_nothing_more_changes(seed: int) -> None:
    """A second cleaning from the start leaves every byte as it is, a later one drops expired tombstones, then none."""
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        log = write_segments(Path(folder) / "t-0", replace(draw_shape(seed, _START_MS), open_at=None, transactions=0.0))
        config = replace(_config(seed), segment_bytes=1 << 20, segment_index_bytes=10_485_760)
        _clean(log, config, dirty=log.bases[0], map_bytes=_LARGE_MAP)
        before = _files(log)
        _clean(log, config, dirty=log.bases[0], map_bytes=_LARGE_MAP)
        assert _files(log) == before

        _clean(log, config, dirty=log.bases[0], map_bytes=_LARGE_MAP, now_ms=_NOW_MS + _RETENTION_MS)
        live = {
            each
            for each, record in _expected(log, log.bases[-1]).items()
            if record.value is not None or each >= log.bases[-1]
        }
        assert set(_read(log)) == live
        before = _files(log)
        _clean(log, config, dirty=log.bases[0], map_bytes=_LARGE_MAP, now_ms=_NOW_MS + 2 * _RETENTION_MS)
        assert _files(log) == before


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(0, 2)
@example(7, 2)
@given(st.integers(0, 2**32), st.integers(0, 8))
def test_cleaning_when_records_are_young_then_their_segments_wait(seed: int, segments_old: int) -> None:
    """Nothing younger than `min.compaction.lag.ms` is touched; once it is old enough, the rest of it is cleaned."""
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        gap_ms = 10_000
        shape = replace(draw_shape(seed, _START_MS), open_at=None, segment_gap_ms=gap_ms)
        log = write_segments(Path(folder) / "t-0", shape)
        config = replace(_config(seed), min_compaction_lag_ms=1_000_000, delete_retention_ms=2**62)
        for old in (segments_old, segments_old + 2):
            now_ms = _START_MS + config.min_compaction_lag_ms + old * gap_ms - 1  # as many segments are old enough
            limit = log.bases[min(old, len(log.bases) - 1)]
            waiting = [path for path in log.directory.glob("*.log") if int(path.name[:20]) >= limit]
            before = {path: path.read_bytes() for path in waiting}
            for path in log.directory.glob("*.log"):  # the age of a segment that a cleaning emptied
                os.utime(path, (_START_MS / 1000, _START_MS / 1000))
            rounds = _clean_all(log, config, _LARGE_MAP, now_ms)

            assert [each.first_dirty_offset for each in rounds] in ([limit], [])  # [] where all of it is empty by now
            assert rounds or old != segments_old or limit == log.bases[0]
            assert {path: path.read_bytes() for path in waiting} == before
            assert _read(log) == _expected(log, limit)


@pytest.mark.parametrize("seed", [12, 18, 24, 30])
def test_cleaning_when_a_transaction_is_open_then_stops_at_its_segment(seed: int, memory_path: Path) -> None:
    """What a transaction that never ends may still decide is not touched."""
    log = write_segments(memory_path / "t-0", replace(draw_shape(seed, _START_MS), segments=5, open_at=2))
    begins = log.bases[2]
    later = {path.name: path.read_bytes() for path in log.directory.glob("*.log") if int(path.name[:20]) >= begins}
    cleaned = _clean(log, replace(_config(seed), segment_bytes=1 << 20), dirty=log.bases[0], map_bytes=_LARGE_MAP)

    assert cleaned.first_dirty_offset <= begins
    assert cleaned.stopped is not None
    assert "a transaction is open" in cleaned.stopped.reason
    assert later == {name: (log.directory / name).read_bytes() for name in later}
