import contextlib
import shutil
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import crc32c
import numpy as np
import pytest

from sparklog.storage_core.checkpoint.producer_snapshot import parse_producer_snapshot
from sparklog.storage_core.errors import CorruptBatchError, CorruptFileError, StorageError, WriterFencedError
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.log.files.segments import SegmentFiles, list_segments
from sparklog.storage_core.log.load import recover_segment as recovery_module
from sparklog.storage_core.log.load.recover_segment import (
    PIECE_BYTES,
    SegmentRecovery,
    StopKind,
    recover_segment,
    scan_segment,
)
from sparklog.storage_core.log.producers.states import ProducerStates
from sparklog.storage_core.log_config import INT32_MAX, INT64_MAX
from sparklog.storage_core.record.batch_scan import scan_batches
from sparklog.storage_core.record.control_records import ControlType
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.batch_bytes import BatchSpec, batch_bytes, segment_bytes
from tests.build.golden import GoldenLog, golden_logs
from tests.build.owners import CheckedBy
from tests.build.written_log import Batch, encode_batch
from tests.plain.legacy_scalar import pack_entry
from tests.plain.plain_recovery import recover_plainly
from tests.plain.scalar import Record

_BASE = 100
_INTERVALS = {"v0-": 200, "v1-": 200, "v2-compact": 300, "v2-segments": 300}
_APPENDED_SEVERAL = ("v0-none", "v0-segments", "v1-none", "v1-segments", "v1-log-append-time")


def _interval(name: str) -> int:
    return next((interval for prefix, interval in _INTERVALS.items() if name.startswith(prefix)), 4096)


def _segment(directory: Path, data: bytes, base_offset: int = _BASE) -> SegmentFiles:
    files = SegmentFiles(base_offset, directory / segment_file_name(base_offset, LOG))
    files.log_path.write_bytes(data)
    return files


def _scan(files: SegmentFiles, interval: int = 4096) -> SegmentRecovery:
    return scan_segment(files, interval, ProducerStates(files.base_offset))


def _contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize("golden", golden_logs())
def test_recover_segment_of_a_broker_then_its_files_are_as_the_broker_left_them(
    golden: GoldenLog, tmp_path: Path
) -> None:
    """From the `.log` alone: offset, time and transaction index, byte by byte."""
    producers = ProducerStates()
    for files in list_segments(golden.directory):
        copied = _segment(tmp_path, files.log_path.read_bytes(), files.base_offset)
        found = scan_segment(copied, _interval(golden.name), producers)
        recover_segment(found, UNSHARED)
        assert (found.stop, found.cut_bytes) == (None, 0)

    mine, theirs = _contents(tmp_path), _contents(golden.directory)
    for name, content in theirs.items():
        if name.endswith((".log", ".txnindex")) or (
            name.endswith("index") and not golden.name.startswith(_APPENDED_SEVERAL)
        ):
            assert mine.pop(name) == content, name
    assert not any(content for name, content in mine.items() if name.endswith(".txnindex"))


@pytest.mark.parametrize("golden", golden_logs("v2-[it]*"))
def test_scan_segment_of_a_broker_then_producers_are_those_of_its_snapshot(golden: GoldenLog) -> None:
    """Idempotent and transactional ones, at the log's end."""
    (files,) = list_segments(golden.directory)
    producers = ProducerStates()

    found = scan_segment(files, 4096, producers)

    (snapshot,) = golden.directory.glob("*.snapshot")
    assert snapshot.name == f"{found.next_offset:020d}.snapshot"
    expected = parse_producer_snapshot(snapshot.read_bytes())
    assert sorted(map(repr, producers.states())) == sorted(map(repr, expected))
    assert found.leader_epochs == ((0, 0),)


_BATCH = BatchSpec(last_offset_delta=4, body=bytes(40))
_SIZE = 101


def _changed(data: bytes, position: int, value: bytes) -> bytes:
    return data[:position] + value + data[position + len(value) :]


_SOUND = segment_bytes([_BATCH] * 3, _BASE)
_MARKER = BatchSpec(producer_id=7, producer_epoch=0, marker=int(ControlType.ABORT))


def _bad_marker() -> bytes:
    sound = batch_bytes(_MARKER, _BASE + 15)
    unread = _changed(sound, 61 + 10, b"\xff\xff")
    return _changed(unread, 17, _crc(unread))


def _crc(batch: bytes) -> bytes:
    crc: int = crc32c.crc32c(batch[21:])
    return crc.to_bytes(4, "big")


@pytest.mark.parametrize(
    ("data", "kind", "batches", "position", "offset"),
    [
        (_SOUND[:-1], "torn", 2, 2 * _SIZE, 110),
        (_SOUND[: 2 * _SIZE + 8], "torn", 2, 2 * _SIZE, 110),
        (_SOUND[:16], "torn", 0, 0, 100),
        (_SOUND + bytes(50), "zeros", 3, 3 * _SIZE, 115),
        (_SOUND + bytes(7), "zeros", 3, 3 * _SIZE, 115),
        (bytes(4 << 20), "zeros", 0, 0, 100),
        (_changed(_SOUND, _SIZE + 90, b"x"), "crc", 1, _SIZE, 105),
        (_changed(_SOUND, 90, b"x"), "crc", 0, 0, 100),
        (_changed(_SOUND, _SIZE + 8, b"\xff"), "length", 1, _SIZE, 105),
        (_changed(_SOUND, _SIZE + 8, b"\x40"), "length", 1, _SIZE, 105),
        (_changed(_SOUND, 2 * _SIZE, (1 << 40).to_bytes(8, "big")), "overflow", 2, 2 * _SIZE, 110),
        (_SOUND + _bad_marker() + segment_bytes([_BATCH], 200), "marker", 3, 3 * _SIZE, 115),
        (_bad_marker(), "marker", 0, 0, 100),
    ],
)
def test_scan_segment_when_a_batch_cannot_be_right_then_says_why_and_where(
    tmp_path: Path, data: bytes, kind: StopKind, batches: int, position: int, offset: int
) -> None:
    """What comes before it stays."""
    found = _scan(_segment(tmp_path, data))

    assert found.stop is not None
    assert (found.stop.kind, found.stop.position, found.stop.offset) == (kind, position, offset)
    assert (found.batch_count, found.valid_bytes, found.next_offset) == (batches, position, offset)
    assert found.cut_bytes == len(data) - position
    assert found.stop.is_damage == (kind not in ("torn", "zeros", "overflow"))


def test_recover_segment_when_nothing_is_sound_then_leaves_an_empty_segment(tmp_path: Path) -> None:
    """With empty indexes, as a broker's loading of an empty segment finds them."""
    files = _segment(tmp_path, b"no batch at all, but more than 17 bytes")
    files.index_path.write_bytes(b"old")

    recover_segment(_scan(files), UNSHARED)

    assert set(_contents(tmp_path).values()) == {b""}
    assert len(_contents(tmp_path)) == 3


@pytest.mark.parametrize(
    ("number", "offset"), [(0, 99), (0, 90), (1, 99), (1, 1 << 40), (1, -1), (2, 109), (1, 111), (1, 1 << 62)]
)
def test_scan_segment_when_offsets_go_back_then_is_an_error_that_names_the_place(
    tmp_path: Path, number: int, offset: int
) -> None:
    """Which of two batches is wrong can't be told; nothing is cut for a guess."""
    data = _changed(_SOUND, number * _SIZE, offset.to_bytes(8, "big", signed=True))

    with pytest.raises(CorruptBatchError, match=r"go back, run a repair: .*00000000000000000100\.log"):
        _scan(_segment(tmp_path, data))


def test_recover_segment_when_overflowed_then_changes_nothing(tmp_path: Path) -> None:
    """An index can't hold the offset: the segment has to be split first."""
    data = segment_bytes([_BATCH, replace(_BATCH, gap=INT32_MAX)], _BASE)
    found = _scan(_segment(tmp_path, data))

    with pytest.raises(CorruptFileError, match="split"):
        recover_segment(found, UNSHARED)
    assert found.is_overflowed
    assert list(_contents(tmp_path).values()) == [data]


def test_scan_segment_when_the_largest_relative_offset_is_used_then_it_is_no_overflow(tmp_path: Path) -> None:
    """2147483647 above the base fits; one more does not."""
    last = replace(_BATCH, last_offset_delta=0, gap=INT32_MAX - 5)

    assert _scan(_segment(tmp_path, segment_bytes([_BATCH, last], _BASE)), 0).stop is None
    assert _scan(_segment(tmp_path, segment_bytes([_BATCH, replace(last, gap=INT32_MAX - 4)], _BASE)), 0).is_overflowed


def test_recover_segment_when_files_are_right_then_leaves_them(tmp_path: Path) -> None:
    """The same inodes: nothing is written twice."""
    files = _segment(tmp_path, _SOUND)
    recover_segment(_scan(files, 0), UNSHARED)
    before = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}

    recover_segment(_scan(files, 0), UNSHARED)

    assert {path.name: path.stat().st_ino for path in tmp_path.iterdir()} == before


def test_recover_segment_when_a_transaction_index_has_nothing_to_say_then_is_empty(tmp_path: Path) -> None:
    """A broker truncates the file, and makes none."""
    files = _segment(tmp_path, _SOUND)
    files.txn_index_path.write_bytes(bytes(34))

    recover_segment(_scan(files), UNSHARED)

    assert files.txn_index_path.read_bytes() == b""


def test_recover_segment_when_the_log_changed_since_then_refuses(tmp_path: Path) -> None:
    """Somebody else is at work there."""
    files = _segment(tmp_path, _SOUND[:-1])
    found = _scan(files)
    files.log_path.write_bytes(_SOUND)

    with pytest.raises(CorruptFileError, match="changed since"):
        recover_segment(found, UNSHARED)
    assert _contents(tmp_path) == {files.log_path.name: _SOUND}


def test_recover_segment_when_the_owner_is_another_then_changes_nothing(tmp_path: Path) -> None:
    """The check comes before the first change."""
    files = _segment(tmp_path, _SOUND[:-1])

    def check_owner() -> None:
        raise WriterFencedError("taken")

    with pytest.raises(WriterFencedError):
        recover_segment(_scan(files), CheckedBy(check_owner))
    assert _contents(tmp_path) == {files.log_path.name: _SOUND[:-1]}


class _InterruptedError(Exception):
    """What ends a recovery at a step."""


def _ending_at(step: int) -> Callable[..., None]:
    left = [step]

    def reach(*_: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise _InterruptedError

    return reach


@pytest.mark.parametrize("step", range(5))
def test_recover_segment_when_interrupted_then_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """The second one leaves what one that was not interrupted leaves."""
    data = segment_bytes([replace(_MARKER, marker=None, is_transactional=True), _MARKER, *[_BATCH] * 9], _BASE)[:-9]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for folder in (whole, broken):
        folder.mkdir()
        for suffix in (".index", ".timeindex", ".txnindex"):
            (folder / segment_file_name(_BASE, suffix)).write_bytes(b"stale")
    recover_segment(_scan(_segment(whole, data), 100), UNSHARED)
    files = _segment(broken, data)

    with monkeypatch.context() as patched, contextlib.suppress(_InterruptedError):
        ending = _ending_at(step)
        patched.setattr(recovery_module, "reach", ending)
        recover_segment(_scan(files, 100), CheckedBy(ending))
    recover_segment(_scan(files, 100), UNSHARED)

    assert _contents(broken) == _contents(whole)


@pytest.mark.parametrize("piece_bytes", [100_000, 300_000, PIECE_BYTES])
@pytest.mark.parametrize("size_bytes", [1 << 20, (1 << 20) + 4097])
def test_scan_segment_when_larger_than_a_piece_then_agrees_with_the_plain_one(
    tmp_path: Path, piece_bytes: int, size_bytes: int
) -> None:
    """Whether pieces are read or mapped, and wherever they end."""
    specs = [replace(_BATCH, body=bytes(number * 7 % 3000), time=number % 50) for number in range(900)]
    data = segment_bytes(specs, _BASE)[:size_bytes]
    plain = recover_plainly(data, _BASE, 4096)

    found = scan_segment(_segment(tmp_path, data), 4096, ProducerStates(_BASE), (), piece_bytes)

    assert (found.valid_bytes, found.next_offset) == (plain.valid_bytes, plain.next_offset)
    assert (found.offset_index, found.time_index) == (plain.offset_index, plain.time_index)


def test_scan_segment_when_a_length_is_made_huge_then_holds_no_more_than_a_piece(tmp_path: Path) -> None:
    """A batch larger than a piece is read as a whole only once its CRC was found to be right."""
    large = segment_bytes([replace(_BATCH, body=bytes(PIECE_BYTES + 1)), _BATCH], _BASE)
    sound, broken = tmp_path / "sound", tmp_path / "broken"
    sound.mkdir()
    broken.mkdir()

    assert _scan(_segment(sound, large)).batch_count == 2
    found = _scan(_segment(broken, _changed(large, 1 << 20, b"x")))
    assert found.stop is not None
    assert (found.stop.kind, found.valid_bytes) == ("crc", 0)


def test_scan_segment_when_larger_than_any_then_refuses(tmp_path: Path) -> None:
    """No broker makes such a file, nor opens it."""
    files = _segment(tmp_path, b"")
    with files.log_path.open("r+b") as file:
        file.truncate(INT32_MAX + 1)

    with pytest.raises(CorruptFileError, match="larger"):
        _scan(files)


def test_scan_segment_when_the_log_is_gone_then_names_it(tmp_path: Path) -> None:
    """The disk's refusal is an error of this package."""
    files = SegmentFiles(5, tmp_path / segment_file_name(5, LOG))
    with pytest.raises(StorageError, match=r"00000000000000000005\.log"):
        _scan(files)


@pytest.mark.parametrize("golden", golden_logs("v1-*"))
def test_scan_segment_of_entries_when_a_byte_is_changed_then_keeps_those_before(
    golden: GoldenLog, tmp_path: Path
) -> None:
    """Formats v0 and v1 have CRCs, too; only an entry's offset lies outside."""
    files = list_segments(golden.directory)[0]
    data = files.log_path.read_bytes()
    shutil.copy(files.log_path, tmp_path)
    copied = SegmentFiles(files.base_offset, tmp_path / files.log_path.name)
    offsets = (scan_batches(data).position[:, None] + np.arange(8)).ravel().tolist()
    for position in sorted(set(range(0, len(data), 7)) - set(offsets)):
        copied.log_path.write_bytes(_changed(data, position, bytes([data[position] ^ 0x55])))

        assert _scan(copied).valid_bytes <= position


def test_scan_segment_when_offsets_pass_the_largest_number_then_refused(tmp_path: Path) -> None:
    """Behind 2^63-1 no offset follows: the smallest number is one more in 64 bits, and goes back all the same."""
    data = encode_batch(Batch([1]), INT64_MAX) + encode_batch(Batch([1]), -INT64_MAX - 1)

    with pytest.raises(CorruptBatchError, match="go back"):
        _scan(_segment(tmp_path, data, INT64_MAX))


@pytest.mark.parametrize("tail", [1, 9, 12, 17])
@pytest.mark.parametrize(("byte", "kind"), [(0, "zeros"), (1, "torn")])
def test_scan_segment_when_a_tail_is_too_short_for_any_batch_then_torn(
    tmp_path: Path, tail: int, byte: int, kind: StopKind
) -> None:
    """A length, a format and a CRC that only so few bytes are left for are not looked at."""
    data = encode_batch(Batch([1]), _BASE)

    found = _scan(_segment(tmp_path, data + bytes([byte]) * tail))

    assert found.stop is not None
    assert (found.stop.kind, found.valid_bytes) == (kind, len(data))


def _entry_of(magic: int, value_bytes: int) -> bytes:
    """Return an entry whose CRC is right under a magic that no format has."""
    entry = bytearray(pack_entry(Record(offset=_BASE, timestamp=5, key=None, value=bytes(value_bytes)), 0))
    entry[16] = magic
    entry[12:16] = zlib.crc32(entry[16:]).to_bytes(4, "big")
    return bytes(entry)


@pytest.mark.parametrize("magic", [128, 255])
@pytest.mark.parametrize("value_bytes", [0, 100, 5000])
def test_scan_segment_when_the_byte_of_a_magic_is_negative_then_is_an_entry(
    tmp_path: Path, magic: int, value_bytes: int
) -> None:
    """Kafka's magic is a signed byte, and what is below 2 has the least size and the CRC-32 of an entry."""
    data = _entry_of(magic, value_bytes)

    found = scan_segment(_segment(tmp_path, data), 4096, ProducerStates(_BASE), (), 1000)

    assert (found.stop, found.valid_bytes) == (None, len(data))


@pytest.mark.parametrize("magic", [0, 128, 255])
def test_scan_segment_when_the_length_of_an_entry_is_raised_then_damage(tmp_path: Path, magic: int) -> None:
    """With one bit of its length undone the CRC-32 is right: bytes were changed, not cut off."""
    data = _changed(_entry_of(magic, 100), 10, b"\x01")

    stop = _scan(_segment(tmp_path, data)).stop

    assert stop is not None
    assert (stop.kind, stop.is_damage) == ("length", True)
