import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import crc32c
import pytest

from sparklog.storage_core.index.time_index import TIME_ENTRY_BYTES
from sparklog.storage_core.inspect.verify.findings import LogReport
from sparklog.storage_core.inspect.verify.verify_log import verify_directory
from tests.build.golden import GoldenLog, golden_logs
from tests.build.written_log import Batch, WrittenLog, encode_batch, write_log


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    """Three segments of five batches of three records."""
    segments = [[Batch([s * 1000 + b * 10, s * 1000 + b * 10 + 5, 7]) for b in range(5)] for s in range(3)]
    return write_log(tmp_path / "orders-0", segments)


def _change(path: Path, change: Callable[[bytearray], object]) -> None:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


def _found(log: WrittenLog, *, deep: bool = False, with_ledger: bool = True) -> list[tuple[str, str, int | None]]:
    report = verify_directory(log.directory, log.expected if with_ledger else None, deep=deep)
    return [(finding.kind, finding.file, finding.position) for finding in report.findings]


def _reseal(data: bytearray, start: int, size: int) -> None:
    data[start + 17 : start + 21] = struct.pack(">I", crc32c.crc32c(bytes(data[start + 21 : start + size])))


@pytest.mark.parametrize("golden", golden_logs())
def test_verify_directory_when_broker_wrote_the_log_then_no_finding(golden: GoldenLog) -> None:
    """A broker's log is sound: also compacted, with markers, with deleted records."""
    assert [str(each) for each in verify_directory(golden.directory, deep=True).findings] == []


@pytest.mark.parametrize("with_ledger", [True, False])
def test_verify_directory_when_untouched_then_sound_and_counted(log: WrittenLog, with_ledger: bool) -> None:
    """A sound log has no finding, and the report says what was looked at."""
    report = verify_directory(log.directory, log.expected if with_ledger else None, deep=True)

    assert report.is_sound
    assert (report.segments, report.batches, report.log_start_offset, report.log_end_offset) == (3, 15, 0, 45)
    assert report.bytes_checked == sum(size for _, _, size, _, _ in log.batches)


def test_verify_directory_when_payload_changed_then_file_position_and_offsets(log: WrittenLog) -> None:
    """Damage names its file, its position and the offsets that are lost, also as text and JSON."""
    path, start, size, base, last = log.batches[7]
    _change(path, lambda data: data.__setitem__(start + size - 1, data[start + size - 1] ^ 1))

    finding = verify_directory(log.directory, log.expected).findings[0]

    assert (finding.kind, finding.position, finding.first_offset, finding.last_offset) == ("damage", start, base, last)
    assert str(finding) == (
        f"damage: orders-0/{path.name} position={start} offsets={base}..{last} wrong CRC; {size} bytes"
    )
    assert finding.as_dict()["what"] == f"wrong CRC; {size} bytes"


def test_verify_directory_when_two_batches_damaged_then_two_findings(log: WrittenLog) -> None:
    """Each damaged place is found; what lies between is checked."""
    path, first, _, _, _ = log.batches[5]
    _, third, _, _, _ = log.batches[7]
    _change(path, lambda data: [data.__setitem__(at + 70, data[at + 70] ^ 1) for at in (first, third)])

    assert _found(log) == [("damage", path.name, first), ("damage", path.name, third)]


def test_verify_directory_when_length_leads_nowhere_then_next_batch_is_found_again(log: WrittenLog) -> None:
    """A wrong length is one finding; the batches behind it are checked as before."""
    path, start, _, base, last = log.batches[6]
    _change(path, lambda data: data.__setitem__(slice(start + 8, start + 12), b"\0\0\0\x55"))

    report = verify_directory(log.directory, log.expected)

    assert [(f.position, f.first_offset, f.last_offset) for f in report.findings] == [(start, base, last)]
    assert report.batches == 14


def test_verify_directory_when_region_overwritten_then_one_finding_over_it(log: WrittenLog) -> None:
    """Garbage over several batches is one finding that spans their offsets."""
    path, start, _, base, _ = log.batches[6]
    last = log.batches[8][4]
    end = log.batches[9][1]
    _change(path, lambda data: data.__setitem__(slice(start, end), b"\x5a" * (end - start)))

    findings = verify_directory(log.directory, log.expected).findings

    assert [(f.position, f.first_offset, f.last_offset) for f in findings] == [(start, base, last)]


def test_verify_directory_when_tail_is_zeros_then_said_so(log: WrittenLog) -> None:
    """Zeros behind the last batch of a plain folder are what a power cut leaves."""
    path = log.batches[-1][0]
    size = path.stat().st_size
    _change(path, lambda data: data.extend(bytes(500)))

    findings = verify_directory(log.directory).findings

    assert [(f.position, f.what) for f in findings] == [(size, "the last 500 bytes are zeros")]


def test_verify_directory_when_last_batch_incomplete_then_found(log: WrittenLog) -> None:
    """A torn batch at the end of a plain folder is a finding."""
    path, start, _, _, _ = log.batches[-1]
    _change(path, lambda data: data.__delitem__(slice(-5, None)))

    assert _found(log, with_ledger=False) == [("damage", path.name, start)]


def test_verify_directory_when_bytes_beyond_the_committed_end_then_uncommitted(log: WrittenLog) -> None:
    """What a running or killed writer leaves is told apart from damage, and not judged."""
    path = log.batches[-1][0]
    size = path.stat().st_size
    _change(path, lambda data: data.extend(b"anything"))

    assert _found(log) == [("uncommitted", path.name, size)]


def test_verify_directory_when_segment_beyond_the_committed_end_then_uncommitted(log: WrittenLog) -> None:
    """A segment behind the active one is uncommitted as a whole."""
    (log.directory / "00000000000000000045.log").write_bytes(encode_batch(Batch([1]), 45))

    assert _found(log) == [("uncommitted", "00000000000000000045.log", None)]


def test_verify_directory_when_a_segment_below_the_start_reaches_above_it_then_named(log: WrittenLog) -> None:
    """One that ends below is on its way out; one that does not holds offsets a second time."""
    segments = sorted(log.directory.glob("*.log"))
    assert log.expected is not None
    log.expected = replace(log.expected, log_start_offset=int(segments[1].stem))
    assert _found(log) == []

    segments[0].write_bytes(segments[0].read_bytes() + segments[1].read_bytes())

    assert _found(log) == [("foreign", segments[0].name, None)]


def test_verify_directory_when_committed_bytes_gone_then_missing(log: WrittenLog) -> None:
    """A log cut at a batch border has no damaged batch; the ledger tells, or at least its index."""
    path, start, _, base, last = log.batches[-1]
    _change(path, lambda data: data.__delitem__(slice(start, None)))

    report = verify_directory(log.directory, log.expected)

    assert [(f.kind, f.first_offset, f.last_offset) for f in report.findings] == [
        ("missing", None, None),
        ("missing", base, last),
    ]
    assert {kind for kind, _, _ in _found(log, with_ledger=False)} == {"index"}


@pytest.mark.parametrize(("number", "kind"), [(0, "missing"), (1, "gap"), (2, "missing")])
def test_verify_directory_when_segment_gone_then_found(log: WrittenLog, number: int, kind: str) -> None:
    """A lost segment is found wherever it was: first, middle or active."""
    path = sorted({each[0] for each in log.batches})[number]
    for file in log.directory.glob(f"{path.stem}*"):
        file.unlink()

    report = verify_directory(log.directory, log.expected)

    hit = next(each for each in report.findings if each.kind == kind)
    assert (hit.first_offset, hit.last_offset) == (number * 15, number * 15 + 14)


def test_verify_directory_when_gaps_are_usual_then_no_gap_reported(tmp_path: Path) -> None:
    """In a log with many gaps another one says nothing."""
    log = write_log(tmp_path / "t-0", [[Batch([1, 2], gap=3 * b) for b in range(5)]])

    assert _found(log) == []


def test_verify_directory_when_ledger_says_dense_then_every_gap_reported(tmp_path: Path) -> None:
    """Whoever knows that offsets are dense gets each gap."""
    log = write_log(tmp_path / "t-0", [[Batch([1, 2], gap=3 * (b % 2)) for b in range(5)]])
    assert log.expected is not None
    log.expected = replace(log.expected, has_gaps=False)

    assert [kind for kind, _, _ in _found(log)] == ["gap", "gap"]


def test_verify_directory_when_base_offset_changed_among_gaps_then_index_tells(tmp_path: Path) -> None:
    """Where offsets have gaps, an index entry is the witness of a batch's offset."""
    log = write_log(tmp_path / "t-0", [[Batch([b, 7], gap=9) for b in range(12)]])
    index = log.directory / "00000000000000000000.index"
    offset, position = struct.unpack_from(">ii", index.read_bytes(), 8)
    _change(
        log.batches[0][0], lambda data: data.__setitem__(slice(position, position + 8), struct.pack(">q", offset - 2))
    )

    assert _found(log) == [("damage", log.batches[0][0].name, position)]


def test_verify_directory_when_epoch_changed_then_found_with_what_is_due(log: WrittenLog) -> None:
    """Every batch must have the epoch that the epoch file names for its offset."""
    path, start, _, base, last = log.batches[3]
    _change(path, lambda data: data.__setitem__(15, 9) if start == 0 else data.__setitem__(start + 15, 9))

    findings = verify_directory(log.directory, log.expected).findings

    assert [(f.position, f.first_offset, f.last_offset) for f in findings] == [(start, base, last)]
    assert findings[0].what == "leader epoch 9 disagrees with leader-epoch-checkpoint, which says 0"


def test_verify_directory_when_epochs_change_where_the_file_says_then_sound(tmp_path: Path) -> None:
    """A log that several epochs wrote is sound; with another start offset in the file it is not."""
    segments = [[Batch([1], leader_epoch=0), Batch([2], leader_epoch=3)], [Batch([3], leader_epoch=5)]]
    log = write_log(tmp_path / "t-0", segments, epochs=[(0, 0), (3, 1), (5, 2)])
    assert _found(log) == []

    (log.directory / "leader-epoch-checkpoint").write_bytes(b"0\n2\n0 0\n5 2\n")
    assert _found(log) == [("damage", "00000000000000000000.log", log.batches[1][1])]


def test_verify_directory_when_epochs_go_back_without_a_file_then_found(tmp_path: Path) -> None:
    """Without an epoch file epochs may at least not go back."""
    log = write_log(tmp_path / "t-0", [[Batch([1], leader_epoch=e) for e in (0, 0, 7, 0, 1)]])
    (log.directory / "leader-epoch-checkpoint").unlink()

    assert _found(log, with_ledger=False) == [("damage", "00000000000000000000.log", log.batches[2][1])]


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("leader-epoch-checkpoint", b"0\n1\n5 0\n", "has epoch 5, the ledger says 0"),
        ("leader-epoch-checkpoint", b"0\n2\n0 0\n", "announces 2 entries"),
        ("leader-epoch-checkpoint", b"0\n2\n0 0\n1 900\n", "above the log's end 45"),
        ("leader-epoch-checkpoint", None, "is missing"),
        ("partition.metadata", b"version: 0\n", "does not have the lines"),
        ("partition.metadata", b"version: 0\ntopic_id: 3db5QLSqSZieL3rJBUUegA", "the ledger says q1Sh"),
        ("partition.metadata", None, "is missing"),
    ],
)
def test_verify_directory_when_small_file_wrong_then_named(
    log: WrittenLog, name: str, content: bytes | None, what: str
) -> None:
    """The files beside the log are checked against the log and the ledger."""
    path = log.directory / name
    path.write_bytes(content) if content is not None else path.unlink()

    findings = verify_directory(log.directory, log.expected).findings

    assert any(f.kind == "checkpoint" and f.file == name and what in f.what for f in findings), findings


def test_verify_directory_when_index_entry_changed_then_found(log: WrittenLog) -> None:
    """Each byte of an index entry matters: its offset must end the batch at its position."""
    path = log.directory / "00000000000000000015.index"
    for at in range(path.stat().st_size):
        before = path.read_bytes()
        _change(path, lambda data, at=at: data.__setitem__(at, data[at] ^ 0x11))  # type: ignore[misc]
        assert [(kind, file) for kind, file, _ in _found(log)] == [("index", path.name)]
        path.write_bytes(before)


def test_verify_directory_when_time_index_entry_changed_then_found(log: WrittenLog) -> None:
    """Each byte of a time entry matters: it names a batch and the largest timestamp so far."""
    path = log.directory / "00000000000000000015.timeindex"
    for at in range(path.stat().st_size):
        before = path.read_bytes()
        _change(path, lambda data, at=at: data.__setitem__(at, data[at] ^ 0x11))  # type: ignore[misc]
        assert {(kind, file) for kind, file, _ in _found(log)} == {("index", path.name)}, at
        path.write_bytes(before)


def test_verify_directory_when_last_time_entry_of_closed_segment_gone_then_found(log: WrittenLog) -> None:
    """A closed segment's time index ends with its largest timestamp; the active one's may lag behind."""
    closed, active = (log.directory / f"{base:020d}.timeindex" for base in (15, 30))
    _change(closed, lambda data: data.__delitem__(slice(-TIME_ENTRY_BYTES, None)))
    _change(active, lambda data: data.__delitem__(slice(-TIME_ENTRY_BYTES, None)))

    assert _found(log) == [("index", closed.name, None)]


def test_verify_directory_when_indexes_padded_then_only_the_active_segment_may(log: WrittenLog) -> None:
    """A zero tail belongs to the active segment; a closed one's files are trimmed."""
    for name in ("00000000000000000015.index", "00000000000000000030.index", "00000000000000000030.timeindex"):
        _change(log.directory / name, lambda data: data.extend(bytes(240)))

    assert [(kind, file) for kind, file, _ in _found(log)] == [("index", "00000000000000000015.index")]


def test_verify_directory_when_index_size_odd_then_found(log: WrittenLog) -> None:
    """An index holds whole entries."""
    _change(log.directory / "00000000000000000015.index", lambda data: data.append(1))

    assert [(kind, file) for kind, file, _ in _found(log)] == [("index", "00000000000000000015.index")]


def test_verify_directory_when_one_index_missing_then_half_an_index_found(log: WrittenLog) -> None:
    """Kafka believes half an index, and builds both where none is there; in a store both must be."""
    (log.directory / "00000000000000000015.timeindex").unlink()
    assert _found(log, with_ledger=False) == [("index", "00000000000000000015.timeindex", None)]

    (log.directory / "00000000000000000015.index").unlink()
    assert _found(log, with_ledger=False) == [("sparse", "00000000000000000015.index", None)]
    assert [kind for kind, _, _ in _found(log)] == ["index", "index"]


@pytest.mark.parametrize(("kept", "found"), [(9999, []), (3, ["sparse"]), (0, ["sparse"])])
def test_verify_directory_when_entries_of_an_index_are_gone_then_noted(
    tmp_path: Path, kept: int, found: list[str]
) -> None:
    """An index that lost entries is right, but slow: it is noted where no writer leaves so few."""
    batches = [Batch([1000 + number], value_bytes=3000) for number in range(40)]
    log = write_log(tmp_path / "t-0", [batches, [Batch([9000])]], index_interval_bytes=4096)
    _change(log.directory / f"{0:020d}.index", lambda data: data.__delitem__(slice(kept * 8, None)))

    assert [kind for kind, _, _ in _found(log)] == found


def test_verify_directory_when_batches_are_large_then_their_index_is_no_sparse_one(tmp_path: Path) -> None:
    """Between two large batches there is nothing that could have an entry."""
    batches = [Batch([1000 + number], value_bytes=100_000) for number in range(5)]
    log = write_log(tmp_path / "t-0", [batches, [Batch([9000])]], index_interval_bytes=4096)

    assert _found(log) == []


def test_verify_directory_when_entries_lead_behind_the_committed_end_then_uncommitted(log: WrittenLog) -> None:
    """Index entries of a micro-batch that was not committed are no damage."""
    index, times = (log.directory / f"00000000000000000030{suffix}" for suffix in (".index", ".timeindex"))
    _change(index, lambda data: data.extend(struct.pack(">ii", 40, 90_000)))
    _change(times, lambda data: data.extend(struct.pack(">qi", 10**6, 40)))

    assert [(kind, file) for kind, file, _ in _found(log)] == [("uncommitted", index.name), ("uncommitted", times.name)]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("00000000000000000000.log.swap", "damage"), ("00000000000000000000.log.x1.cleaned", "uncommitted")],
)
def test_verify_directory_when_file_is_on_its_way_then_named(log: WrittenLog, name: str, kind: str) -> None:
    """A replacement that was not finished is named; a file that waits for its deletion is not."""
    (log.directory / name).write_bytes(b"")
    (log.directory / "00000000000000000000.log.deleted").write_bytes(b"")

    assert _found(log) == [(kind, name, None)]


def test_verify_directory_when_batch_lies_under_a_right_crc_then_only_deep_finds_it(log: WrittenLog) -> None:
    """A wrong largest timestamp under a right CRC shows when records are decoded."""
    path, start, size, _, _ = log.batches[6]

    def lie(data: bytearray) -> None:
        data[start + 35 : start + 43] = struct.pack(">q", 1000)  # below the true one, above the batch before
        _reseal(data, start, size)

    _change(path, lie)

    assert ("damage", path.name, start) in _found(log, deep=True)


def test_verify_directory_when_record_length_lies_under_a_right_crc_then_deep_finds_it(log: WrittenLog) -> None:
    """A record that contradicts its batch is found, and the batches behind it are still looked at."""
    first, second = log.batches[6], log.batches[8]

    def lie(data: bytearray) -> None:
        for _, start, size, _, _ in (first, second):
            data[start + 61] = 0x7F
            _reseal(data, start, size)

    _change(first[0], lie)

    assert _found(log) == []
    assert _found(log, deep=True) == [("damage", first[0].name, first[1]), ("damage", first[0].name, second[1])]


def test_verify_directory_when_more_records_than_offsets_then_found(log: WrittenLog) -> None:
    """A batch can't hold more records than it has offsets."""
    path, start, size, _, _ = log.batches[6]

    def lie(data: bytearray) -> None:
        data[start + 57 : start + 61] = struct.pack(">i", 4)
        _reseal(data, start, size)

    _change(path, lie)

    assert _found(log) == [("damage", path.name, start)]


def test_verify_directory_when_batch_larger_than_a_read_then_sound(tmp_path: Path) -> None:
    """A batch may be larger than what is read at once."""
    log = write_log(tmp_path / "t-0", [[Batch([1]), Batch([2] * 3, value_bytes=3 << 20), Batch([3])]])

    assert _found(log, deep=True) == []


def test_verify_directory_when_nothing_is_there_then_a_finding(tmp_path: Path) -> None:
    """A folder without a batch, and a folder that is not there, do not pass as sound."""
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "00000000000000000000.log").touch()

    assert [f.kind for f in verify_directory(tmp_path / "t-0").findings] == ["nothing"]
    assert [f.kind for f in verify_directory(tmp_path / "absent-0").findings] == ["missing"]


def test_verify_directory_when_log_must_be_empty_then_sound(tmp_path: Path) -> None:
    """A log that the ledger knows as empty is sound without a batch, with or without its first segment."""
    log = write_log(tmp_path / "t-0", [[]])
    assert _found(log) == []

    for path in log.directory.glob("0*"):
        path.unlink()
    assert _found(log) == []


def test_log_report_when_as_dict_then_everything_for_json(log: WrittenLog) -> None:
    """The JSON view has the counts and every finding."""
    report: LogReport = verify_directory(log.directory, log.expected)
    report.add("index", "offset-index", "x", "y", 3)

    assert report.as_dict()["batches"] == 15
    assert report.as_dict()["findings"][0]["position"] == 3
    assert report.as_dict()["findings"][0]["remedy"] == "repair --execute rebuilds it"


@pytest.mark.parametrize("tail", [1, 9, 11, 12, 16, 17])
@pytest.mark.parametrize("last", [True, False])
def test_verify_directory_when_a_tail_is_too_short_for_any_batch_then_torn(
    log: WrittenLog, tail: int, last: bool
) -> None:
    """So few bytes announce nothing that could be impossible: no length is read out of them, nor a format."""
    path = sorted(log.directory.glob("*.log"))[-1 if last else 0]
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"\x07" * tail)

    findings = verify_directory(log.directory).findings

    found = [(each.kind, each.rule, each.position, each.what) for each in findings]
    assert found == [("damage", "length", size, f"torn tail: too short for any batch; {tail} bytes")]
