"""Logs in another format: what stays, what is lost, and what is refused."""

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparklog.storage_core.checkpoint.leader_epochs import parse_leader_epochs
from sparklog.storage_core.errors import CorruptBatchError, CorruptFileError, InvalidRecordError, UnsupportedFormatError
from sparklog.storage_core.inspect.verify.verify_log import verify_directory
from sparklog.storage_core.log.convert_log import ConversionReport, convert_log
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.record.batch_convert import ConvertOptions
from sparklog.storage_core.record.batch_scan import scan_batches
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from tests.build.record_cases import encode
from tests.build.written_log import Batch, encode_batch, write_log
from tests.plain.legacy_scalar import pack_entry, pack_wrapper
from tests.plain.scalar import Record

_GOLDEN = Path(__file__).resolve().parents[3] / "data" / "golden"
_V2_CASES = sorted(path.name for path in _GOLDEN.glob("v2-*"))
_LEGACY_CASES = sorted(path.name for path in _GOLDEN.glob("v[01]-*"))

Row = tuple[Any, ...]


def _directory(case: str) -> Path:
    return next(path for path in (_GOLDEN / case).iterdir() if path.is_dir())


def _convert(source: Path, target: Path, magic: int, codec: str | None = None, **more: Any) -> ConversionReport:
    return convert_log(source, target, ConvertOptions(magic=magic, codec=codec), **more)


def _rows(directory: Path) -> list[Row]:
    """Return (offset, timestamp, timestamp type, key, value, headers) of every record."""
    reader = LogReader(directory)
    batches = list(reader.read(reader.log_start_offset))
    names = ["offset", "timestamp", "timestamp_type", "key", "value", "headers"]
    table = pa.Table.from_batches(batches).select(names).to_pylist() if batches else []
    return [(*list(row.values())[:-1], tuple(tuple(each.values()) for each in row["headers"])) for row in table]


def _without(rows: Sequence[Row], magic: int) -> list[Row]:
    """Return what a format keeps of rows."""
    if magic == 2:
        return [(row[0], row[1], max(row[2], 0), *row[3:]) for row in rows]
    if magic == 1:
        return [(row[0], row[1], max(row[2], 0), *row[3:5], ()) for row in rows]
    return [(row[0], -1, -1, *row[3:5], ()) for row in rows]


def _needs_codec(case: str, magic: int) -> str | None:
    """Return a codec where the case holds one that the format does not know."""
    codecs = {
        each & 7 for path in _directory(case).glob("*.log") for each in scan_batches(path.read_bytes()).attributes
    }
    return "lz4" if 4 in codecs and magic < 2 else None


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("case", [*_V2_CASES, *_LEGACY_CASES])
def test_convert_log_when_broker_wrote_it_then_keeps_what_the_format_can_say(
    tmp_path: Path, case: str, magic: int
) -> None:
    """Every golden log in every format: records, offsets and segments stay, and the result verifies."""
    source, target = _directory(case), tmp_path / "t-0"
    report = _convert(source, target, magic, _needs_codec(case, magic))
    before, after = _rows(source), _rows(target)

    assert after == _without(before, magic)
    assert sorted(path.name for path in target.glob("*.log")) == sorted(path.name for path in source.glob("*.log"))
    for path in target.glob("*.log"):
        assert set(scan_batches(path.read_bytes()).magic.tolist()) <= {magic}
    assert report.counts.rebuilt_records in (0, len(before))
    assert report.end_offset_after <= report.log_end_offset == LogReader(source).log_end_offset
    assert [str(each) for each in verify_directory(target, deep=True).findings if each.kind not in ("gap",)] == []


@pytest.mark.parametrize("case", _V2_CASES + _LEGACY_CASES)
def test_convert_log_when_format_is_the_same_then_copies_every_byte(tmp_path: Path, case: str) -> None:
    """Batches of the wanted format are left alone, damaged counts and all."""
    source, target = _directory(case), tmp_path / "t-0"
    report = _convert(source, target, int(case[1]))

    for path in source.glob("*.log"):
        assert (target / path.name).read_bytes() == path.read_bytes()
    assert report.counts.rebuilt_batches == 0
    assert report.bytes_before == report.bytes_after


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_convert_log_when_formats_go_in_a_circle_then_nothing_more_is_lost(tmp_path: Path, codec: str) -> None:
    """v2, v1, v2, v1: after the first step the records stay the same, offsets and nulls included."""
    case = f"v2-{codec}"
    places = [_directory(case), *(tmp_path / name for name in ("a-0", "b-0", "c-0"))]
    for source, target, magic in zip(places, places[1:], (1, 2, 1), strict=False):
        _convert(source, target, magic)

    assert _rows(places[1]) == _rows(places[2]) == _rows(places[3])
    assert (places[1] / "00000000000000000000.log").stat().st_size == (
        places[3] / "00000000000000000000.log"
    ).stat().st_size


def test_convert_log_when_going_down_then_tells_what_is_lost(tmp_path: Path) -> None:
    """Headers, timestamps, control batches, producers and transactions are counted."""
    expected = json.loads((_GOLDEN / "v2-headers" / "expected.json").read_text())["records"]
    headers = _convert(_directory("v2-headers"), tmp_path / "h-0", 0).counts
    transactions = _convert(_directory("v2-transactional"), tmp_path / "t-0", 1).counts

    assert headers.records_without_headers == sum(1 for each in expected if each["headers"])
    assert headers.records_without_timestamp == len(expected)
    assert transactions.control_batches > 0
    assert transactions.batches_without_transaction > 0
    assert transactions.batches_without_producer >= transactions.batches_without_transaction
    assert transactions.records_without_timestamp == 0


def test_convert_log_when_log_ends_in_a_marker_then_reports_the_lower_end(tmp_path: Path) -> None:
    """A control batch has an offset that the older formats can't hold: the log ends before it."""
    report = _convert(_directory("v2-transactional"), tmp_path / "t-0", 1)

    assert report.log_end_offset == LogReader(_directory("v2-transactional")).log_end_offset
    assert report.end_offset_after == LogReader(tmp_path / "t-0").log_end_offset


def test_convert_log_when_codec_is_zstd_then_refuses_and_names_the_place(tmp_path: Path) -> None:
    """As a broker answers an old consumer: there is no zstd below v2, unless another codec is asked for."""
    with pytest.raises(UnsupportedFormatError, match=r"v1 has no zstd.*offset=0 file=.*00\.log"):
        _convert(_directory("v2-zstd"), tmp_path / "a-0", 1)

    _convert(_directory("v2-zstd"), tmp_path / "b-0", 1, "gzip")
    data = (tmp_path / "b-0" / "00000000000000000000.log").read_bytes()
    assert {each & 7 for each in scan_batches(data).attributes.tolist()} == {1}


def test_convert_log_when_entries_are_plain_then_sets_become_batches(tmp_path: Path) -> None:
    """Entries without a codec are put together, up to a producer's batch size, and never across a segment."""
    _convert(_directory("v1-segments"), tmp_path / "t-0", 2)
    for path in (tmp_path / "t-0").glob("*.log"):
        scan = scan_batches(path.read_bytes())

        assert len(scan) == 1
        assert scan.records_count[0] == len(scan_batches((_directory("v1-segments") / path.name).read_bytes()))


def test_convert_log_when_wrapper_has_append_time_then_batch_has_it(tmp_path: Path) -> None:
    """The timestamp type goes up and down again; entries of one append share a batch."""
    records = [Record(offset=n, timestamp=5, key=b"k", value=b"v") for n in range(6)]
    source = tmp_path / "s-0"
    source.mkdir()
    log = pack_wrapper(records[:2], 1, "gzip", 900)
    log += b"".join(pack_entry(replace(each, timestamp=901), 1, 8) for each in records[2:4])
    log += b"".join(pack_entry(replace(each, timestamp=902), 1, 8) for each in records[4:5])
    log += pack_entry(records[5], 1)
    (source / "00000000000000000000.log").write_bytes(log)
    _convert(source, tmp_path / "u-0", 2)
    _convert(tmp_path / "u-0", tmp_path / "d-0", 1)
    scan = scan_batches((tmp_path / "u-0" / "00000000000000000000.log").read_bytes())

    assert [row[1:3] for row in _rows(tmp_path / "u-0")] == [(900, 1)] * 2 + [(901, 1)] * 2 + [(902, 1), (5, 0)]
    assert scan.max_timestamp.tolist() == [900, 901, 902, 5]
    assert _rows(tmp_path / "d-0") == _rows(tmp_path / "u-0") == _rows(source)
    assert not verify_directory(tmp_path / "u-0", deep=True).findings


def test_convert_log_when_formats_are_mixed_then_keeps_the_order(tmp_path: Path) -> None:
    """A segment of all formats and codecs becomes one of one format, record by record."""
    source = tmp_path / "s-0"
    source.mkdir()
    record = Record(offset=0, timestamp=7, key=b"k", value=b"v" * 50)
    made = [replace(record, offset=n, value=b"%d" % n * 20) for n in range(12)]
    log = pack_entry(made[0], 0) + pack_wrapper(made[1:3], 1, "lz4") + encode_batch(Batch([1, 2]), 3, "gzip")
    log += pack_wrapper(made[5:7], 0, "snappy") + pack_entry(made[7], 1) + pack_entry(made[8], 1)
    log += encode_batch(Batch([3, 4, 5]), 9)
    (source / "00000000000000000000.log").write_bytes(log)
    for magic in (0, 1, 2):
        target = tmp_path / f"v{magic}-0"
        report = _convert(source, target, magic)

        assert _rows(target) == _without(_rows(source), magic)
        assert report.counts.copied_batches == {0: 2, 1: 3, 2: 2}[magic]
        assert not verify_directory(target, deep=True).findings


def test_convert_log_when_going_up_then_batches_continue_the_leader_epoch(tmp_path: Path) -> None:
    """Batches built from old entries have the epoch before them, or 0, and the epoch file says the same."""
    source = tmp_path / "s-0"
    source.mkdir()
    record = Record(offset=0, timestamp=7, key=b"k", value=b"v")
    log = pack_entry(record, 0) + encode_batch(Batch([1], leader_epoch=4), 1)
    log += pack_entry(replace(record, offset=2), 1) + encode_batch(Batch([1], leader_epoch=6), 3)
    (source / "00000000000000000000.log").write_bytes(log)
    (source / "leader-epoch-checkpoint").write_bytes(b"0\n3\n4 1\n6 3\n9 4\n")
    _convert(source, tmp_path / "t-0", 2)

    assert scan_batches((tmp_path / "t-0" / "00000000000000000000.log").read_bytes()).leader_epoch.tolist() == [
        0,
        4,
        4,
        6,
    ]
    epochs = parse_leader_epochs((tmp_path / "t-0" / "leader-epoch-checkpoint").read_bytes())
    assert epochs == [(0, 0), (4, 1), (6, 3), (9, 4)]


def test_convert_log_when_small_files_exist_then_takes_those_of_the_format(tmp_path: Path) -> None:
    """The topic's id always; epochs, snapshots and aborted transactions only where the format has them."""
    source = _directory("v2-transactional")
    _convert(source, tmp_path / "two-0", 2)
    _convert(source, tmp_path / "one-0", 1)
    beside = {path.name for path in source.iterdir()}

    assert {path.name for path in (tmp_path / "two-0").iterdir()} == beside
    assert {path.suffix for path in (tmp_path / "one-0").iterdir()} == {".log", ".index", ".timeindex", ".metadata"}
    assert (tmp_path / "one-0" / "partition.metadata").read_bytes() == (source / "partition.metadata").read_bytes()


def test_convert_log_when_segment_would_grow_too_large_then_goes_on_in_another(tmp_path: Path) -> None:
    """Positions are 32 bits wide: a segment that gets larger than allowed is split between batches."""
    written = write_log(tmp_path / "s-0", [[Batch([n, n]) for n in range(20)], [Batch([99])]])
    report = _convert(written.directory, tmp_path / "t-0", 1, max_segment_bytes=500)
    names = sorted(path.name for path in (tmp_path / "t-0").glob("*.log"))

    assert _rows(tmp_path / "t-0") == _rows(written.directory)
    assert report.segments == len(names) > 2
    assert "00000000000000000040.log" in names
    assert all((tmp_path / "t-0" / name).stat().st_size <= 500 for name in names)
    assert not verify_directory(tmp_path / "t-0", deep=True).findings


def test_convert_log_when_end_is_committed_then_leaves_the_rest(tmp_path: Path) -> None:
    """What lies behind a ledger's end, segments too, is not there."""
    written = write_log(tmp_path / "s-0", [[Batch([1, 2]), Batch([3, 4])], [Batch([5])]])
    for end, segments in ((2, 1), (4, 1), (5, 2)):
        target = tmp_path / f"t-{end}"
        _convert(written.directory, target, 1, log_end_offset=end)

        assert [row[0] for row in _rows(target)] == list(range(end))
        assert len(list(target.glob("*.log"))) == segments


def test_convert_log_when_committed_records_are_gone_then_refuses(tmp_path: Path) -> None:
    """A log that ends before its ledger says so is not passed off as whole."""
    written = write_log(tmp_path / "s-0", [[Batch([1, 2])]])
    with pytest.raises(CorruptFileError, match="its committed end is 5"):
        _convert(written.directory, tmp_path / "t-0", 1, log_end_offset=5)


@pytest.mark.parametrize("tail", [b"", bytes(100), b"\0" * 8 + b"\0\0\0\x40", bytes(16)])
def test_convert_log_when_tail_is_torn_then_ends_before_it(tmp_path: Path, tail: bytes) -> None:
    """Part of a batch, or zeros, behind the last batch of a log are no records."""
    written = write_log(tmp_path / "s-0", [[Batch([1, 2])]])
    with written.batches[0][0].open("ab") as file:
        file.write(tail)
    report = _convert(written.directory, tmp_path / "t-0", 0)

    assert report.end_offset_after == 2


@pytest.mark.parametrize(("at", "message"), [(70, "wrong CRC"), (7, "base offset")])
def test_convert_log_when_batch_is_damaged_then_names_file_and_position(tmp_path: Path, at: int, message: str) -> None:
    """Nothing is converted that did not pass its checks."""
    written = write_log(tmp_path / "s-0", [[Batch([1, 2]), Batch([3])]])
    path, position, *_ = written.batches[1]
    data = bytearray(path.read_bytes())
    data[position + at] = 1 if at == 7 else data[position + at] ^ 1
    path.write_bytes(data)

    with pytest.raises(CorruptBatchError, match=rf"{message}.*file=.*\.log position={position}"):
        _convert(written.directory, tmp_path / "t-0", 1)


def test_convert_log_when_closed_segment_is_torn_then_refuses(tmp_path: Path) -> None:
    """Only the last segment may end inside a batch."""
    written = write_log(tmp_path / "s-0", [[Batch([1, 2])], [Batch([3])]])
    with written.batches[0][0].open("ab") as file:
        file.write(bytes(3))
    with pytest.raises(CorruptBatchError, match="ends inside a batch"):
        _convert(written.directory, tmp_path / "t-0", 1)


def test_convert_log_when_timestamp_is_before_1970_then_v1_refuses_and_v0_drops_it(tmp_path: Path) -> None:
    """Format v1 knows -1 and nothing else below 0."""
    source = tmp_path / "s-0"
    source.mkdir()
    data = encode([Record(offset=0, timestamp=-5, key=None, value=b"")], EncodeOptions()).data.tobytes()
    (source / "00000000000000000000.log").write_bytes(data)
    with pytest.raises(InvalidRecordError, match=r"before 1970.*file="):
        _convert(source, tmp_path / "a-0", 1)

    _convert(source, tmp_path / "b-0", 0)
    assert [row[:2] for row in _rows(tmp_path / "b-0")] == [(0, -1)]


def test_convert_log_when_wrapper_reaches_back_then_refuses(tmp_path: Path) -> None:
    """A wrapper's offset is outside its CRC: one that is too low would give offsets twice."""
    source = tmp_path / "s-0"
    source.mkdir()
    records = [Record(offset=n, timestamp=7, key=b"k", value=b"v") for n in range(6)]
    wrapper = bytearray(pack_wrapper(records[3:], 1, "gzip"))
    wrapper[7] = 4
    (source / "00000000000000000000.log").write_bytes(pack_wrapper(records[:3], 1, "gzip") + wrapper)
    with pytest.raises(CorruptBatchError, match="file="):
        _convert(source, tmp_path / "t-0", 2)


def test_convert_log_when_log_has_no_records_then_segments_stay(tmp_path: Path) -> None:
    """An empty log, and a directory without segments, are converted to what they are."""
    source = tmp_path / "s-0"
    source.mkdir()
    assert _convert(source, tmp_path / "a-0", 1).segments == 0
    (source / "00000000000000000042.log").touch()
    report = _convert(source, tmp_path / "b-0", 1, log_end_offset=42)

    assert sorted(path.name for path in (tmp_path / "b-0").iterdir()) == [
        "00000000000000000042.index",
        "00000000000000000042.log",
        "00000000000000000042.timeindex",
    ]
    assert (report.segments, report.end_offset_after) == (1, 42)


def test_convert_log_when_golden_records_compared_then_equal_what_the_consumer_read(tmp_path: Path) -> None:
    """The same records in three formats, against what Kafka's own consumer read from the first."""
    expected = json.loads((_GOLDEN / "v2-segments" / "expected.json").read_text())["records"]
    for magic in (0, 1, 2):
        _convert(_directory("v2-segments"), tmp_path / f"v{magic}-0", magic)
        found = [(row[0], row[3], row[4]) for row in _rows(tmp_path / f"v{magic}-0")]

        assert found == [
            (
                each["offset"],
                *(None if each[name] is None else base64.b64decode(each[name]) for name in ("key", "value")),
            )
            for each in expected
        ]
