"""Cleaning a group of segments: Kafka's cases, and what bad input gets."""

import os
import random
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.storage_core.cleaner.keys.build_map import DirtyRange, build_map
from sparklog.storage_core.cleaner.keys.offset_map import OffsetMap
from sparklog.storage_core.cleaner.rewrite.clean_segments import CleanRequest, clean_segments
from sparklog.storage_core.cleaner.survey.cleaned_transactions import CleanedTransactions
from sparklog.storage_core.errors import (
    CorruptBatchError,
    InvalidRecordError,
    OffsetOutOfRangeError,
    StorageError,
    WriterFencedError,
)
from sparklog.storage_core.index.index_builder import IndexBuilder
from sparklog.storage_core.index.transaction_index import AbortedTransaction, parse_transaction_index
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log_config import INT32_MAX, INT64_MAX
from sparklog.storage_core.record.batch_decode import decode_batches
from sparklog.storage_core.record.batch_scan import scan_batches
from sparklog.storage_core.record.control_records import ControlType
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.cleaned_log import (
    HASH_KEY,
    NOW_MS,
    RETENTION_MS,
    CleanedRound,
    active,
    clean,
    data,
    headers_of,
    marker,
    write,
)
from tests.build.owners import CheckedBy
from tests.plain.legacy_scalar import pack_entry, pack_wrapper
from tests.plain.plain_cleaning import PlainCleaning, clean_plainly
from tests.plain.scalar import Record, decode_records


def _left(done: CleanedRound) -> list[tuple[int, str | None, str | None]]:
    records = decode_batches(done.data).select(["offset", "key", "value"]).to_pylist()
    return [
        (each["offset"], *(None if part is None else part.decode() for part in (each["key"], each["value"])))
        for each in records
    ]


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def _again(done: CleanedRound) -> list[SegmentFiles]:
    """Let what was cleaned be the log."""
    path = done.segment.paths[0]
    for other in path.parent.glob("*.log"):
        other.unlink()
    for each in done.segment.paths:
        each.replace(each.with_suffix(""))
    return [SegmentFiles(done.segment.base_offset, path.with_suffix(""))]


def test_clean_segments_keeps_the_last_value_of_each_key(tmp_path: Path) -> None:
    """Of each key the record with the largest offset stays, over all segments of the group, at its offset."""
    files = write(tmp_path, [data(0, ("a", "1"), ("b", "1")), data(2, ("a", "2"))], [data(10, ("b", "2"), ("c", "1"))])

    done = clean(files, 12)

    assert _left(done) == [(2, "a", "2"), (10, "b", "2"), (11, "c", "1")]
    assert done.segment.counts.superseded_records == 2
    assert done.built.end_offset == 12
    assert not done.segment.is_unchanged


def test_clean_segments_of_a_tombstone_keeps_it_for_the_retention_from_the_first_cleaning(tmp_path: Path) -> None:
    """A tombstone gets its horizon when a cleaning first sees it, lives until then, and goes at that moment."""
    files = write(tmp_path, [data(0, ("a", None), ("c", "1")), data(2, ("d", "1"))])
    first = clean(files, 3)
    horizon = headers_of(first.data)[0].delete_horizon_ms
    before = clean(_again(first), 3, now_ms=NOW_MS + RETENTION_MS - 1)
    unchanged = before.data == first.data
    after = clean(_again(before), 3, now_ms=NOW_MS + RETENTION_MS)

    assert horizon == NOW_MS + RETENTION_MS
    assert first.segment.counts.horizons_set == 1
    assert unchanged
    assert before.segment.is_unchanged
    assert _left(after) == [(1, "c", "1"), (2, "d", "1")]
    assert after.segment.counts.tombstones_removed == 1
    assert headers_of(after.data)[0].delete_horizon_ms == horizon


@pytest.mark.parametrize("retention_ms", [INT64_MAX, INT64_MAX - NOW_MS + 1])
def test_clean_segments_when_tombstones_are_kept_for_ever_then_the_horizon_is_the_last_time_there_is(
    tmp_path: Path, retention_ms: int
) -> None:
    """The largest retention that a topic may have ends where times end; records read back unchanged, and stay."""
    files = write(tmp_path, [data(0, ("a", None), ("c", "1")), data(2, ("d", "1"))])
    before = decode_records(files[0].log_path.read_bytes())
    first = clean(files, 3, delete_retention_ms=retention_ms)
    again = clean(_again(first), 3, delete_retention_ms=retention_ms, now_ms=NOW_MS + 10**15)

    assert headers_of(first.data)[0].delete_horizon_ms == INT64_MAX
    assert decode_records(first.data) == before
    assert again.segment.is_unchanged


def test_clean_segments_keeps_timestamps_when_the_base_timestamp_becomes_a_horizon(tmp_path: Path) -> None:
    """Record timestamps read back unchanged, whatever the base timestamp stands for."""
    files = write(tmp_path, [data(0, ("a", "1"), ("b", None), ("c", "3")), data(3, ("a", "2"))])
    before = {record.offset: record.timestamp for record in decode_records(files[0].log_path.read_bytes())}

    done = clean(files, 4)

    assert {record.offset: record.timestamp for record in decode_records(done.data)} == {
        offset: before[offset] for offset in (1, 2, 3)
    }


def test_clean_segments_of_an_idempotent_producer_keeps_its_last_batch_empty(tmp_path: Path) -> None:
    """The batch with a producer's last sequence stays without records, earlier ones of it vanish."""
    producer = {"producer_id": 7, "producer_epoch": 0}
    files = write(
        tmp_path,
        [
            data(0, ("a", "1"), ("b", "1"), base_sequence=0, **producer),
            data(2, ("a", "2"), base_sequence=2, **producer),
            data(3, ("a", "3"), ("b", "3")),
        ],
    )

    done = clean(files, 5, producers=[active(7, 2)])

    headers = headers_of(done.data)
    assert [(each.base_offset, each.last_offset, each.records_count, each.size_bytes) for each in headers[:1]] == [
        (2, 2, 0, 61)
    ]
    assert (headers[0].base_sequence, headers[0].producer_id, headers[0].base_timestamp) == (2, 7, -1)
    assert _left(done) == [(3, "a", "3"), (4, "b", "3")]
    assert done.segment.counts.batches_emptied == 1


def test_clean_segments_keeps_the_batch_before_its_end_empty(tmp_path: Path) -> None:
    """The last batch of the range stays, empty if need be, so that the log's end is not lost."""
    files = write(tmp_path, [data(0, ("a", "1")), data(1, ("b", "1"))])

    done = clean(files, 2, erased=["a", "b"])

    assert [(each.base_offset, each.records_count) for each in headers_of(done.data)] == [(1, 0)]
    assert done.segment.next_offset == 2


def test_clean_segments_of_an_aborted_transaction_keeps_marker_and_index_entry_for_a_pass(tmp_path: Path) -> None:
    """Aborted data goes at once; its marker stays while data was met, with its index entry, and goes two passes on."""
    producer = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True, "base_sequence": 0}
    files = write(
        tmp_path,
        [data(0, ("a", "1")), data(1, ("a", "2"), **producer), marker(2, 7, ControlType.ABORT), data(3, ("b", "1"))],
    )
    aborted = [AbortedTransaction(0, 7, 1, 2, 3)]

    first = clean(files, 4, aborted=aborted)
    kept = parse_transaction_index(first.segment.paths[3].read_bytes(), 0)
    horizons = [each.delete_horizon_ms for each in headers_of(first.data)]
    second = clean(_again(first), 4, first_dirty=4, aborted=aborted)
    second_horizons = [each.delete_horizon_ms for each in headers_of(second.data)]
    third = clean(_again(second), 4, first_dirty=4, now_ms=NOW_MS + RETENTION_MS)

    assert _left(first) == [(0, "a", "1"), (3, "b", "1")]
    assert kept == aborted
    assert horizons == [None, None, None]
    assert len(second.segment.paths) == 3
    assert second_horizons == [None, NOW_MS + RETENTION_MS, None]
    assert [each.is_control for each in headers_of(third.data)] == [False, False]
    assert third.segment.counts.markers_removed == 1


def test_clean_segments_of_an_active_producer_keeps_its_aborted_batch_empty(tmp_path: Path) -> None:
    """A batch that was aborted stays without records while its producer may go on behind it; the entry stays too."""
    producer = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True, "base_sequence": 0}
    files = write(tmp_path, [data(0, ("a", "1"), **producer), marker(1, 7, ControlType.ABORT), data(2, ("b", "1"))])
    aborted = [AbortedTransaction(0, 7, 0, 1, 2)]

    first = clean(files, 3, aborted=aborted, producers=[active(7, 0)])
    second = clean(_again(first), 3, first_dirty=3, aborted=aborted, producers=[active(7, 0)])

    assert [each.records_count for each in headers_of(second.data)] == [0, 1, 1]
    assert parse_transaction_index(second.segment.paths[3].read_bytes(), 0) == aborted
    assert second.segment.is_unchanged


def test_clean_segments_of_a_producer_without_data_keeps_its_marker(tmp_path: Path) -> None:
    """Where a producer has no data left, its last control batch is what tells its epoch."""
    files = write(tmp_path, [marker(0, 7, ControlType.COMMIT, epoch=3), data(1, ("b", "1"))])

    once = clean(files, 2, producers=[active(7, -1, epoch=3)])
    done = clean(_again(once), 2, first_dirty=2, producers=[active(7, -1, epoch=3)], now_ms=NOW_MS + 10_000)

    assert [(each.base_offset, each.records_count) for each in headers_of(done.data)] == [(0, 0), (1, 1)]


def test_clean_segments_when_the_map_was_full_keeps_all_behind_it(tmp_path: Path) -> None:
    """What the map does not speak for stays, in the middle of a batch too."""
    files = write(tmp_path, [data(0, ("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("a", "3"))])

    done = clean(files, 5, map_bytes=24 * 3)

    assert done.built.is_full
    assert done.built.end_offset == 2
    assert _left(done) == [(0, "a", "1"), (1, "b", "1"), (2, "a", "2"), (3, "c", "1"), (4, "a", "3")]


def test_clean_segments_with_keys_to_erase_drops_all_their_records(tmp_path: Path) -> None:
    """Records of an erased key go, tombstones and those above the map too; others stay."""
    files = write(tmp_path, [data(0, ("a", "1"), ("b", "1")), data(2, ("a", None)), data(3, ("c", "1"), ("a", "9"))])

    done = clean(files, 5, erased=["a"], map_bytes=48)

    assert done.built.end_offset == 1
    assert _left(done) == [(1, "b", "1"), (3, "c", "1")]
    assert done.segment.counts.erased_records == 3


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_clean_segments_of_compressed_batches_keeps_or_changes_the_codec(tmp_path: Path, codec: str) -> None:
    """A batch that is built again keeps its codec, or gets the one wanted; one that is whole is copied as it is."""
    batches = [data(0, ("a", "1"), ("b", "1"), codec=codec), data(2, ("a", "2"), codec=codec)]

    kept = clean(write(tmp_path / "1", batches), 3)
    changed = clean(write(tmp_path / "2", batches), 3, codec="zstd" if codec != "zstd" else "gzip")
    plain = clean(write(tmp_path / "3", batches), 3, codec="none")

    assert [each.codec for each in headers_of(kept.data)] == [codec, codec]
    assert [each.codec for each in headers_of(changed.data)] == ["zstd" if codec != "zstd" else "gzip", codec]
    assert [each.codec for each in headers_of(plain.data)] == ["none", codec]
    assert _left(kept) == _left(changed) == _left(plain) == [(1, "b", "1"), (2, "a", "2")]
    assert kept.data.endswith(batches[1])


def test_clean_segments_takes_the_time_of_the_last_segment(tmp_path: Path) -> None:
    """Modification times of the new files are those of the group's last segment."""
    files = write(tmp_path, [data(0, ("a", "1"))], [data(1, ("b", "1"))])
    os.utime(files[0].log_path, ns=(1, 5_000_000_000))
    os.utime(files[1].log_path, ns=(1, 7_000_000_123))

    done = clean(files, 2)

    assert {path.stat().st_mtime_ns for path in done.segment.paths} == {7_000_000_123}


def test_clean_segments_when_leftovers_lie_there_replaces_them(tmp_path: Path) -> None:
    """What an earlier cleaning left under the same names is gone, the index of aborted transactions too."""
    files = write(tmp_path, [data(0, ("a", "1"))])
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        (tmp_path / f"{0:020d}{suffix}.cleaned").write_bytes(b"left over")

    done = clean(files, 1)

    assert _names(tmp_path) == [
        f"{0:020d}{suffix}" for suffix in (".index.cleaned", ".log", ".log.cleaned", ".timeindex.cleaned")
    ]
    assert _left(done) == [(0, "a", "1")]


def _flipped(batches: list[bytes]) -> None:
    batches[1] = batches[1][:-1] + bytes([batches[1][-1] ^ 1])


def _cut(batches: list[bytes]) -> None:
    batches[1] = batches[1][:-1]


def _back(batches: list[bytes]) -> None:
    batches[1] = bytes(8) + batches[1][8:]


@pytest.mark.parametrize("damage", [_flipped, _cut, _back])
def test_clean_segments_of_a_damaged_segment_names_file_and_position_and_leaves_nothing(
    tmp_path: Path, damage: Callable[[list[bytes]], None]
) -> None:
    """A batch that is damaged, torn or out of order ends the cleaning; no file of it stays."""
    batches = [data(0, ("a", "1"), ("b", "1")), data(2, ("b", "2"))]
    damage(batches)
    files = write(tmp_path, batches)
    request = CleanRequest(now_ms=NOW_MS, delete_retention_ms=0, cleaning_end_offset=3)

    with pytest.raises(CorruptBatchError, match=f"{0:020d}.log") as raised:
        clean_segments(files, OffsetMap(1 << 16, HASH_KEY), CleanedTransactions(), request, UNSHARED)

    assert raised.value.position == len(batches[0])
    assert _names(tmp_path) == [f"{0:020d}.log"]


def test_clean_segments_of_a_batch_that_reaches_into_the_next_segment_refuses(tmp_path: Path) -> None:
    """An offset that was changed must not make records vanish: it is damage."""
    files = write(tmp_path, [data(0, ("a", "1")), data(7, ("b", "1"))], [data(2, ("c", "1"))])

    with pytest.raises(CorruptBatchError, match="wrong base offset"):
        clean(files, 3)


def test_clean_segments_when_the_owner_changes_leaves_nothing(tmp_path: Path) -> None:
    """Who lost the log writes no further, and leaves no file."""
    files = write(tmp_path, [data(0, ("a", "1"))])
    request = CleanRequest(now_ms=NOW_MS, delete_retention_ms=0, cleaning_end_offset=1)

    def check_owner() -> None:
        raise WriterFencedError("another one owns it")

    with pytest.raises(WriterFencedError):
        clean_segments(files, OffsetMap(1 << 16, HASH_KEY), CleanedTransactions(), request, CheckedBy(check_owner))

    assert _names(tmp_path) == [f"{0:020d}.log"]


def test_clean_segments_on_a_disk_that_fills_up_leaves_nothing(tmp_path: Path) -> None:
    """What can't be written whole is removed, and the error names the file."""
    files = write(tmp_path, [data(number, (str(number), "v" * 1000)) for number in range(20)])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
    try:
        with pytest.raises(StorageError, match=r"\.log\.cleaned"):
            clean(files, 20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert _names(tmp_path) == [f"{0:020d}.log"]


def test_clean_segments_of_many_chunks_agrees_with_the_plain_cleaning(tmp_path: Path) -> None:
    """Batches come out in order and whole across chunks, long runs of copied ones among rebuilt ones and empty ones."""
    batches, generator = [], random.Random(5)
    for number in range(900):
        offset, is_kept = 3 * number, number // 100 % 3 == 0
        keys = [f"{offset + place}" if is_kept else f"{generator.randrange(500)}-" for place in range(3)]
        codec = "lz4" if number // 150 % 3 == 2 else "none"
        producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": offset} if number % 90 == 5 else {}
        batches.append(data(offset, *((key, generator.randbytes(1200).hex()) for key in keys), codec=codec, **producer))
    files = write(tmp_path, batches[:400], batches[400:])
    known = {record.key: record.offset for batch in batches for record in decode_records(batch)}
    producers = [active(7, 3 * 95 + 2)]
    told = PlainCleaning(
        known={key: offset for key, offset in known.items() if key is not None},
        latest_offset=2699,
        now_ms=NOW_MS,
        delete_retention_ms=RETENTION_MS,
        cleaning_end_offset=2700,
        producers=producers,
    )

    done = clean(files, 2700, producers=producers)

    assert sum(map(len, batches)) > 5 << 20
    assert done.data == clean_plainly(b"".join(batches), told)
    indexes = IndexBuilder(0)
    scan = scan_batches(done.data)
    indexes.add(scan.position, scan.last_offset, scan.max_timestamp)
    built = indexes.finish()
    assert [path.read_bytes() for path in done.segment.paths[1:]] == [built.offset_index, built.time_index]


def test_clean_segments_of_offsets_no_index_can_hold_refuses(tmp_path: Path) -> None:
    """A group that reaches too far above its base has to be split first."""
    files = write(tmp_path, [data(0, ("a", "1"))], [data(INT32_MAX + 1, ("b", "1"))])

    with pytest.raises(OffsetOutOfRangeError):
        clean(files, INT32_MAX + 2)

    assert not list(tmp_path.glob("*.cleaned"))


def test_clean_segments_when_nothing_is_left_writes_an_empty_segment(tmp_path: Path) -> None:
    """A group of which nothing stays becomes a segment without bytes."""
    files = write(tmp_path, [data(0, ("a", "1"))], [data(1, ("a", "2"))])

    done = clean(files, 9, erased=["a"])

    assert (done.segment.size_bytes, done.segment.next_offset) == (0, 0)
    assert [path.stat().st_size for path in done.segment.paths] == [0, 0, 0]


def test_build_map_of_a_record_without_key_refuses_the_log(tmp_path: Path) -> None:
    """Nobody can say which record replaces one without key: its offset and file are named."""
    files = write(tmp_path, [data(0, ("a", "1")), data(1, ("b", "1"), (None, "2"))])
    dirty = DirtyRange(segments=files, first_dirty_offset=0, first_uncleanable_offset=3)

    with pytest.raises(InvalidRecordError, match=rf"offset=2 file=.*{0:020d}.log"):
        build_map(dirty, OffsetMap(1 << 16, HASH_KEY), lambda: None)


def test_build_map_of_a_record_without_key_behind_its_end_does_not_mind(tmp_path: Path) -> None:
    """What a full map did not reach is the next round's."""
    files = write(tmp_path, [data(0, ("a", "1"), ("b", "1"), (None, "2"))])
    dirty = DirtyRange(segments=files, first_dirty_offset=0, first_uncleanable_offset=3)

    assert build_map(dirty, OffsetMap(48, HASH_KEY), lambda: None).end_offset == 1


def test_build_map_at_the_end_of_a_segment_speaks_for_the_gap_behind_it(tmp_path: Path) -> None:
    """Offsets between a segment's last record and the next segment belong to nobody: they are mapped."""
    files = write(tmp_path, [data(0, ("a", "1"))], [data(50, ("b", "1"))])
    offset_map = OffsetMap(1 << 16, HASH_KEY)
    dirty = DirtyRange(segments=files[:1], first_dirty_offset=0, first_uncleanable_offset=50)

    assert build_map(dirty, offset_map, lambda: None).end_offset == 50
    assert offset_map.latest_offset == 49


def test_build_map_of_a_part_of_the_log_reads_nothing_else(tmp_path: Path) -> None:
    """Records below the first dirty offset are not mapped, nor segments outside of the range."""
    files = write(tmp_path, [data(0, ("a", "1"))], [data(1, ("b", "1"), ("c", "1"))], [data(3, ("d", "1"))])
    files[0].log_path.write_bytes(b"not a log")
    files[2].log_path.write_bytes(b"not a log")
    offset_map = OffsetMap(1 << 16, HASH_KEY)
    dirty = DirtyRange(segments=files, first_dirty_offset=2, first_uncleanable_offset=3)

    built = build_map(dirty, offset_map, lambda: None)

    assert len(offset_map) == 1
    assert (built.end_offset, built.is_full) == (3, False)


def test_build_map_passes_over_aborted_data(tmp_path: Path) -> None:
    """A record that was aborted replaces nothing."""
    producer = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True, "base_sequence": 0}
    files = write(tmp_path, [data(0, ("a", "1")), data(1, ("a", "2"), **producer), marker(2, 7, ControlType.ABORT)])

    assert _left(clean(files, 3, aborted=[AbortedTransaction(0, 7, 1, 2, 3)])) == [(0, "a", "1")]


def _legacy(magic: int, *rows: tuple[int, bytes | None, bytes | None]) -> list[Record]:
    return [
        Record(offset=offset, timestamp=NOW_MS if magic else -1, key=key, value=value) for offset, key, value in rows
    ]


@pytest.mark.parametrize("magic", [0, 1])
def test_clean_segments_of_old_formats_keeps_last_values(tmp_path: Path, magic: int) -> None:
    """Entries go one by one, wrappers lose records; those without key go, as a broker lets them."""
    single = [pack_entry(each, magic) for each in _legacy(magic, (0, b"a", b"1"), (1, None, b"1"), (2, b"b", b"1"))]
    wrapper = pack_wrapper(_legacy(magic, (3, b"a", b"2"), (4, b"b", b"2"), (6, b"c", b"2")), magic, "gzip")
    last = pack_entry(_legacy(magic, (9, b"b", b"3"))[0], magic)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"".join([*single, wrapper, last]))

    done = clean([SegmentFiles(0, path)], 10)

    assert _left(done) == [(3, "a", "2"), (6, "c", "2"), (9, "b", "3")]
    assert done.segment.counts.keyless_records == 1
    assert done.data.endswith(last)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(("horizon_ms", "stays"), [(4999, True), (5000, False)])
def test_clean_segments_of_old_formats_keeps_tombstones_by_file_time(
    tmp_path: Path, magic: int, horizon_ms: int, stays: bool
) -> None:
    """A tombstone of v0 or v1 stays while its segment was modified after the horizon, in wrappers too."""
    path = tmp_path / f"{0:020d}.log"
    wrapper = pack_wrapper(_legacy(magic, (1, b"b", None), (2, b"c", b"1")), magic, "lz4")
    path.write_bytes(pack_entry(_legacy(magic, (0, b"a", None))[0], magic) + wrapper)
    os.utime(path, (5, 5))

    done = clean([SegmentFiles(0, path)], 3, legacy_delete_horizon_ms=horizon_ms)

    assert [offset for offset, _, _ in _left(done)] == ([0, 1, 2] if stays else [2])
    assert done.segment.is_unchanged is stays
