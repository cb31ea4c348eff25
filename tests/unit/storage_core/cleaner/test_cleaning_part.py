"""What the tasks of one round do when they end in any order."""

from pathlib import Path

import pyarrow as pa
import pytest

from storage_core.cleaner.clean_log import LogToClean
from storage_core.cleaner.cleaning_round import CleanedLog
from storage_core.cleaner.listed_segments import ListedSegment
from storage_core.log.append_state import CommittedEnd
from storage_core.log.log_reader import LogReader
from storage_core.log_config import LogConfig
from storage_core.record.batch_encode import EncodeOptions
from storage_core.record.scalar import Record, pack_batch
from tests.parallel_round import clean_parts

_START_MS = 1_700_000_000_000
_CONFIG = LogConfig(cleanup_policy="compact", segment_bytes=1 << 20, delete_retention_ms=1000)
_SEGMENTS = [[(b"gone", b"v1"), (b"a", b"1")], [(b"gone", None), (b"b", b"2")], [(b"c", b"3")]]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A key's value in the first group, its tombstone in the second; each segment is a group."""
    monkeypatch.setattr(
        "storage_core.cleaner.cleaning_round.group_segments_by_size", lambda found, *_: [[each] for each in found]
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


def _clean(log: Path, now_ms: int, first_dirty_offset: int, erased: list[bytes] | None = None) -> CleanedLog:
    what = LogToClean(
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
    return clean_parts(what)


def _rows(log: Path) -> list[tuple[bytes, bytes | None]]:
    found = LogReader(log, log_start_offset=0, log_end_offset=5, last_stable_offset=5).read(0)
    return [(row["key"], row["value"]) for batch in found for row in batch.to_pylist()]


@pytest.mark.parametrize("erased", [None, [b"gone"]])
def test_clean_part_when_the_group_in_front_is_not_done_then_its_tombstone_stays(
    log: Path, monkeypatch: pytest.MonkeyPatch, erased: list[bytes] | None
) -> None:
    """A deleted key stays deleted whichever groups are done; once a round has done all, its tombstone goes in time."""

    def no_room(_directory: Path, group: list[ListedSegment]) -> str | None:
        return "not enough disk" if group[0].base_offset == 0 else None

    with monkeypatch.context() as full:
        full.setattr("storage_core.cleaner.cleaning_part.lacks_room", no_room)
        for now_ms in (1, 2000):
            cleaned = _clean(log, now_ms, 0, erased)
            assert (cleaned.stopped, cleaned.first_dirty_offset) == ("not enough disk", 0)
            assert [value for key, value in _rows(log) if key == b"gone"] == [b"v1", None]

    rest = [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]
    assert _clean(log, 3000, 0, erased).first_dirty_offset == 4
    assert _rows(log) == [rest[0], (b"gone", None), *rest[1:]]
    _clean(log, 6000, 4, erased)
    assert _rows(log) == rest
