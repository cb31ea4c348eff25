"""One round over one log: its order, what stops it, and who may carry it out."""

import itertools
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparklog.storage_core.cleaner.clean_log import CleanedLog, LogToClean, clean_log
from sparklog.storage_core.cleaner.survey.plan_log import LogFacts, plan_log
from sparklog.storage_core.cleaner.swap import has_swaps
from sparklog.storage_core.errors import (
    CorruptBatchError,
    InvalidConfigError,
    StorageError,
    StoreLockedError,
    WriterFencedError,
)
from sparklog.storage_core.log.files.names import DELETED, LOG, SNAPSHOT, segment_file_name
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.storage.owned_names import UNSHARED, Owner
from tests.build.compacted_logs import CompactedLog, LogShape, write_segments
from tests.build.loaded_log import execute_load
from tests.build.owners import CheckedBy

_NOW_MS = 1_700_003_600_000
_CONFIG = LogConfig(cleanup_policy="compact", segment_bytes=1 << 20, min_cleanable_dirty_ratio=0.0)
_SHAPE = LogShape(seed=7, segments=4, batches=8, records=4, keys=6, transactions=0.3)


def _log(memory_path: Path, **changes: object) -> CompactedLog:
    return write_segments(memory_path / "t-0", replace(_SHAPE, **changes))  # type: ignore[arg-type]


def _to_clean(log: CompactedLog, **changes: object) -> LogToClean:
    what = LogToClean(
        directory=log.directory,
        end=log.end,
        log_start_offset=log.bases[0],
        first_dirty_offset=log.bases[0],
        first_uncleanable_offset=log.bases[-1],
        config=_CONFIG,
        now_ms=_NOW_MS,
        map_bytes=24 * 1000,
        hash_key=bytes(16),
    )
    return replace(what, **changes)  # type: ignore[arg-type]


def _clean(log: CompactedLog, owner: Owner = UNSHARED, **changes: object) -> CleanedLog:
    return clean_log(_to_clean(log, **changes), owner)


def _offsets(log: CompactedLog) -> list[int]:
    reader = LogReader(
        log.directory,
        log_start_offset=log.bases[0],
        log_end_offset=log.next_offset,
        last_stable_offset=log.next_offset,
    )
    found = reader.read(log.bases[0], isolation="read_committed")
    return [offset for batch in found for offset in batch.column("offset").to_pylist()]


def _expected(log: CompactedLog) -> list[int]:
    kept = log.last_of_each_key(log.bases[-1]) | {each: None for each in log.records() if each >= log.bases[-1]}
    return sorted(kept)


def test_clean_when_nothing_is_dirty_then_nothing_is_touched(memory_path: Path) -> None:
    """A round whose range is empty leaves every file as it is."""
    log = _log(memory_path)
    before = {path: path.stat().st_mtime_ns for path in log.directory.iterdir()}
    cleaned = _clean(log, first_dirty_offset=log.bases[-1])

    assert cleaned == CleanedLog(first_dirty_offset=log.bases[-1])
    assert {path: path.stat().st_mtime_ns for path in log.directory.iterdir()} == before


def test_clean_when_the_map_is_full_then_the_round_ends_there_and_the_next_goes_on(memory_path: Path) -> None:
    """Rounds of a few keys each come to the end of one that maps them all."""
    log = _log(memory_path)
    rounds = [_clean(log, map_bytes=100)]
    while (stopped := rounds[-1].stopped) is not None:
        assert "the map was full at offset" in stopped.reason
        rounds.append(_clean(log, first_dirty_offset=rounds[-1].first_dirty_offset, map_bytes=100))

    assert len(rounds) > 2
    assert rounds[-1].first_dirty_offset == log.bases[-1]
    assert _offsets(log) == _expected(log)


def test_clean_when_done_then_the_figures_are_those_of_the_files(memory_path: Path) -> None:
    """Bytes and segments before and after; old files wait to be removed, of the first segment all but the snapshot."""
    log = _log(memory_path)
    for base in log.bases:
        (log.directory / segment_file_name(base, SNAPSHOT)).write_bytes(b"x")
    before = sum((log.directory / segment_file_name(base, LOG)).stat().st_size for base in log.bases[:-1])
    mtime_ns = (log.directory / segment_file_name(log.bases[-2], LOG)).stat().st_mtime_ns
    cleaned = _clean(log)

    new = log.directory / segment_file_name(log.bases[0], LOG)
    assert (cleaned.segments_before, cleaned.segments_after) == (3, 1)
    assert (cleaned.bytes_before, cleaned.bytes_after) == (before, new.stat().st_size)
    assert new.stat().st_mtime_ns == mtime_ns
    snapshots = sorted(path.name for path in log.directory.iterdir() if SNAPSHOT in path.name)
    names = [segment_file_name(base, SNAPSHOT) for base in log.bases]
    assert snapshots == [names[0], names[1] + DELETED, names[2] + DELETED, names[3]]
    deleted = [path.name for path in log.directory.iterdir() if path.name.endswith(LOG + DELETED)]
    assert sorted(deleted) == [segment_file_name(base, LOG + DELETED) for base in log.bases[:-1]]


def test_clean_when_nothing_of_a_segment_changes_then_its_files_stay(memory_path: Path) -> None:
    """A segment whose records all survive keeps its files, not only their content."""
    log = _log(memory_path, keys=10**9, tombstones=0.0, transactions=0.0, segments=2)
    path = log.directory / segment_file_name(0, LOG)
    inode = path.stat().st_ino
    cleaned = _clean(log)

    assert cleaned.first_dirty_offset == log.bases[-1]
    assert path.stat().st_ino == inode
    assert not [each for each in log.directory.iterdir() if each.name.endswith(DELETED)]


def test_clean_when_the_owner_is_lost_at_any_check_then_whole_and_the_next_owner_completes_it(
    memory_path: Path,
) -> None:
    """A cleaner that lost the log stops at once, wherever it is; whoever owns it then comes to the same end."""
    for limit in itertools.count():
        log = write_segments(memory_path / f"t-{limit}", _SHAPE)
        calls = itertools.count()

        def check_owner(calls: "itertools.count[int]" = calls, limit: int = limit) -> None:
            if next(calls) >= limit:
                raise WriterFencedError("another cleaner took the log")

        try:
            _clean(log, CheckedBy(check_owner))
        except WriterFencedError:
            assert set(_expected(log)) <= set(_offsets(log))
            loaded = replace(log, directory=Path(shutil.copytree(log.directory, memory_path / f"loaded-{limit}")))
            execute_load(loaded.directory)
            assert set(_expected(log)) <= set(_offsets(loaded))
            assert not has_swaps(loaded.directory, 2**62)
            _clean(log)
            assert _offsets(log) == _expected(log)
            assert not has_swaps(log.directory, log.bases[-1])
        else:
            break
    assert limit > 10


def test_clean_when_a_batch_is_damaged_then_named_and_nothing_changed(memory_path: Path) -> None:
    """The whole dirty part is checked before the first segment is swapped."""
    log = _log(memory_path)
    path = log.directory / segment_file_name(log.bases[2], LOG)
    data = bytearray(path.read_bytes())
    data[-3] ^= 4
    path.write_bytes(data)
    before = {each.name: each.read_bytes() for each in log.directory.iterdir()}
    with pytest.raises(CorruptBatchError, match=path.name):
        _clean(log)

    assert {each.name: each.read_bytes() for each in log.directory.iterdir()} == before


def test_clean_when_a_segment_grows_too_large_for_an_index_then_refused(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches that are built without a codec may take any room; nothing of that is swapped in."""
    log = _log(memory_path)
    before = {each.name: each.read_bytes() for each in log.directory.iterdir()}
    monkeypatch.setattr("sparklog.storage_core.cleaner.cleaning_round._LARGEST_BYTES", 10)
    with pytest.raises(InvalidConfigError, match="too large for an index"):
        _clean(log)

    assert {each.name: each.read_bytes() for each in log.directory.iterdir()} == before


def test_clean_when_a_leftover_is_found_then_finished_first(memory_path: Path) -> None:
    """`.cleaned` files of an earlier run go, and whatever they would have replaced is cleaned."""
    log = _log(memory_path)
    for name in (f"{0:020}.log.cleaned", f"{0:020}.index.swap"):
        (log.directory / name).write_bytes(b"half")
    assert has_swaps(log.directory, log.bases[-1])
    _clean(log)

    assert _offsets(log) == _expected(log)
    assert not has_swaps(log.directory, 2**62)


def test_clean_when_a_sink_has_files_on_their_way_then_left_alone(memory_path: Path) -> None:
    """Unpublished files at the active segment or behind it are the sink's own."""
    log = _log(memory_path)
    mine = log.directory / f"{log.next_offset:020}.log.x7.cleaned"
    mine.write_bytes(b"")
    _clean(log)

    assert mine.exists()
    assert not has_swaps(log.directory, log.bases[-1])


def test_clean_when_the_directory_is_gone_then_a_storage_error(memory_path: Path) -> None:
    """The disk's refusal is told as one."""
    log = _log(memory_path)
    what = _to_clean(log, directory=memory_path / "gone-0")
    with pytest.raises(StorageError):
        clean_log(what, UNSHARED)


def test_clean_when_another_attempt_is_at_work_then_it_alone_changes_the_log(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that Spark runs again beside the first one is refused at every step of that, which comes to its end."""
    monkeypatch.setattr("sparklog.storage_core.cleaner.hold_log._PATIENCE_S", 0.0)
    log = _log(memory_path)
    refusals = []

    def again() -> None:
        with pytest.raises(StoreLockedError) as caught:
            _clean(log)
        refusals.append(caught)

    _clean(log, CheckedBy(again))
    assert len(refusals) > 10
    assert _offsets(log) == _expected(log)


def test_clean_when_another_attempt_took_its_place_then_its_files_are_left(memory_path: Path) -> None:
    """Whoever loses the log removes only what is its own: another one's file of the same name stays."""
    log = _log(memory_path)
    theirs = log.directory / f"{0:020}.log.cleaned"

    def check_owner() -> None:
        if theirs.exists():
            theirs.unlink()
            theirs.write_bytes(b"theirs")
            raise WriterFencedError("another run took the store")

    with pytest.raises(WriterFencedError):
        _clean(log, CheckedBy(check_owner))
    assert theirs.read_bytes() == b"theirs"


def test_plan_when_a_broker_kept_producers_then_open_transactions_are_looked_for(memory_path: Path) -> None:
    """Without snapshots and transaction indexes there are none, as far as a plan is concerned."""
    log = _log(memory_path, open_at=1, transactions=0.0)
    facts = LogFacts(directory=log.directory, end=log.end, log_start_offset=0)
    assert plan_log(facts, _CONFIG, _NOW_MS).first_uncleanable_offset == log.bases[-1]
    (log.directory / segment_file_name(0, ".txnindex")).write_bytes(b"")

    assert plan_log(facts, _CONFIG, _NOW_MS).first_uncleanable_offset == log.bases[1]
    cleaned = _clean(log)
    assert cleaned.first_dirty_offset == log.bases[1]
    assert cleaned.stopped is not None
    assert "a transaction is open since offset" in cleaned.stopped.reason


def test_reader_when_a_log_is_cleaned_under_it_then_no_live_record_is_missed(memory_path: Path) -> None:
    """Between any two renames a new reader, and one that is under way, get the last record of each key, in order."""
    log = _log(memory_path, segments=12, transactions=0.0, keys=40)
    kept = LogReader(log.directory, log_start_offset=0, log_end_offset=log.next_offset)
    found: list[list[int]] = []

    def slowly() -> Iterator[None]:
        while True:
            offsets: list[int] = []
            for batch in kept.read(0, chunk_bytes=200):
                offsets += batch.column("offset").to_pylist()
                yield
            found.append(offsets)

    under_way = slowly()

    def read() -> None:
        next(under_way)
        found.append(_offsets(log))

    for number in range(6):
        config = replace(_CONFIG, segment_bytes=(400, 1000, 1 << 20)[number % 3])
        _clean(log, CheckedBy(read), map_bytes=24 * (5 + 8 * number), config=config)

    assert len(found) > 50
    for offsets in found:
        assert offsets == sorted(set(offsets))
        assert set(_expected(log)) <= set(offsets)
