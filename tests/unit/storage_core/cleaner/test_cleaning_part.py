"""What the tasks of one round do when they end in any order."""

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.storage_core.cleaner.clean_log import LogToClean
from sparklog.storage_core.cleaner.cleaning_part import CleanedPart, cut_into_parts, swap_in_parts, write_part
from sparklog.storage_core.cleaner.cleaning_round import CleanedLog, CleaningRound, EarlyEnd, prepare_round
from sparklog.storage_core.cleaner.survey.listed_segments import ListedSegment
from sparklog.storage_core.cleaner.swap import finish_swaps
from sparklog.storage_core.log.files.committed_end import CommittedEnd
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.owners import CheckedBy
from tests.plain.parallel_round import clean_parts, superseded_offsets
from tests.plain.scalar import Record, pack_batch

_START_MS = 1_700_000_000_000
_CONFIG = LogConfig(cleanup_policy="compact", segment_bytes=1 << 20, delete_retention_ms=1000)
_SEGMENTS: list[list[tuple[bytes, bytes | None]]] = [
    [(b"gone", b"v1"), (b"a", b"1")],
    [(b"gone", None), (b"b", b"2")],
    [(b"c", b"3")],
]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A key's value in the first group, its tombstone in the second; each segment is a group."""
    monkeypatch.setattr(
        "sparklog.storage_core.cleaner.cleaning_round.group_segments_by_size",
        lambda found, *_: [[each] for each in found],
    )
    for number, rows in enumerate(_SEGMENTS):
        base = 2 * number
        records = [
            Record(offset=base + place, timestamp=_START_MS, key=key, value=value)
            for place, (key, value) in enumerate(rows)
        ]
        data = pack_batch(records, EncodeOptions(partition_leader_epoch=0))
        (tmp_path / f"{base:020}.log").write_bytes(data)
        for suffix in (".index", ".timeindex"):
            (tmp_path / f"{base:020}{suffix}").write_bytes(b"")
    return tmp_path


def _to_clean(log: Path, now_ms: int, first_dirty_offset: int, erased: list[bytes] | None = None) -> LogToClean:
    return LogToClean(
        directory=log,
        end=CommittedEnd(4, (log / f"{4:020}.log").stat().st_size, 5),
        log_start_offset=0,
        first_dirty_offset=first_dirty_offset,
        first_uncleanable_offset=4,
        config=_CONFIG,
        now_ms=_START_MS + now_ms,
        map_bytes=1 << 16,
        hash_key=bytes(16),
        erased_keys=None if erased is None else pa.array(erased, pa.binary()),
    )


def _clean(log: Path, now_ms: int, first_dirty_offset: int, erased: list[bytes] | None = None) -> CleanedLog:
    return clean_parts(_to_clean(log, now_ms, first_dirty_offset, erased))


def _rows(log: Path) -> list[tuple[bytes, bytes | None]]:
    found = LogReader(log, log_start_offset=0, log_end_offset=5, last_stable_offset=5).read(0)
    return [(row["key"], row["value"]) for batch in found for row in batch.to_pylist()]


@pytest.mark.parametrize("erased", [None, [b"gone"]])
def test_clean_part_when_the_group_in_front_is_not_done_then_its_tombstone_stays(
    log: Path, monkeypatch: pytest.MonkeyPatch, erased: list[bytes] | None
) -> None:
    """A deleted key stays deleted whichever groups are done; once a round has done all, its tombstone goes in time."""
    full_disk = EarlyEnd("not enough disk", is_short_of_disk=True)

    def no_room(_directory: Path, group: list[ListedSegment]) -> EarlyEnd | None:
        return full_disk if group[0].base_offset == 0 else None

    with monkeypatch.context() as full:
        full.setattr("sparklog.storage_core.cleaner.cleaning_part.lacks_room", no_room)
        for now_ms in (1, 2000):
            cleaned = _clean(log, now_ms, 0, erased)
            assert (cleaned.stopped, cleaned.first_dirty_offset) == (full_disk, 0)
            assert [value for key, value in _rows(log) if key == b"gone"] == [b"v1", None]

    rest = [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]
    assert _clean(log, 3000, 0, erased).first_dirty_offset == 4
    assert _rows(log) == [rest[0], (b"gone", None), *rest[1:]]
    _clean(log, 6000, 4, erased)
    assert _rows(log) == rest


class _Killed(BaseException):
    """The run is dead."""


def test_swap_in_parts_when_killed_before_any_step_then_no_key_is_lost(log: Path) -> None:
    """Groups that were all written take their places one by one: whatever a kill leaves, each key has its value."""
    shared, some = cut_into_parts(prepare_round(_to_clean(log, 1, 0), UNSHARED))
    parts = list(some)
    told = superseded_offsets(shared, parts)
    written = [write_part(shared, each, [told[each.number]], UNSHARED) for each in parts]
    assert len([each for each in written if each.cleaned is not None and not each.cleaned.is_unchanged]) > 1
    (log / f"{0:020}.log.7.cleaned").write_bytes(b"of a task that died")
    copy, steps, is_killed = log.with_name("copy"), 0, True
    while is_killed:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(log, copy)
        there = replace(shared, log=replace(shared.log, directory=copy))
        is_killed = _swap_in(there, [_moved(each, copy) for each in written], steps)
        assert dict(_rows(copy)) == {b"gone": None, b"a": b"1", b"b": b"2", b"c": b"3"}, steps
        finish_swaps(copy, 4, UNSHARED)
        assert dict(_rows(copy)) == {b"gone": None, b"a": b"1", b"b": b"2", b"c": b"3"}, steps
        assert not list(copy.glob("*.cleaned")) + list(copy.glob("*.swap"))
        steps += 1
    assert steps >= 20


def _swap_in(shared: CleaningRound, written: list[CleanedPart], steps: int) -> bool:
    """Do so many steps; return whether there were more."""
    left = steps

    def check() -> None:
        nonlocal left
        if left == 0:
            raise _Killed
        left -= 1

    try:
        swap_in_parts(shared, written, CheckedBy(check))
    except _Killed:
        return True
    return False


def _moved(part: CleanedPart, directory: Path) -> CleanedPart:
    if part.cleaned is None:
        return part
    paths = tuple(directory / path.name for path in part.cleaned.paths)
    return replace(part, cleaned=replace(part.cleaned, paths=paths))
