"""Logs end where they are told to, although no record comes there."""

import shutil
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparklog.pipeline.checks.verify_logs import verify
from sparklog.pipeline.places.store_view import open_logs
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.place.end_offsets import PlannedEnds
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.errors import InvalidConfigError, InvalidRecordError, StorageError
from sparklog.storage_core.inspect.verify.findings import Finding
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.record.batch_scan import scan_batches
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.compacted_store import clean
from tests.build.sink_store import contents, in_process, open_store, read_store, rows

_LOG = ("t", 0)
_SETTINGS = {"partitions": 2, "segment.bytes": 600, "batch.size": 200, "index.interval.bytes": 100}


def _open(path: Path, settings: Mapping[str, object] = _SETTINGS, **options: Any) -> StoreWriter:
    return open_store(path, {"t": settings}, topic="t", offsets="preserved", **options)


def _rows(*offsets: int) -> pa.RecordBatch:
    values = [f"{offset:05}" for offset in offsets]
    times = [1000 + offset for offset in offsets]
    return rows(partition=[0] * len(offsets), offset=list(offsets), key=values, value=values, timestamp=times)


def _append(path: Path, number: int, offsets: range | tuple[int, ...], end: int | None, **options: Any) -> None:
    with closing(_open(path, **options)) as writer:
        run = in_process(_rows(*offsets)) if offsets else in_process()
        writer.append("q", number, run, {_LOG: end} if end is not None else {})


def _state(path: Path) -> LogState:
    return Ledger.open(path / "ledger").states()[TopicPartition(*_LOG)]


def _span(path: Path) -> tuple[int, int]:
    state = _state(path)
    return state.log_start_offset, state.log_end_offset


def _offsets(path: Path) -> list[int]:
    return [record.offset for record in read_store(path)["t-0"]]


def _reader(path: Path) -> LogReader:
    return next(each for each in open_logs(path).logs if each.log == TopicPartition(*_LOG)).reader()


def _assert_sound(path: Path) -> None:
    found: list[Finding] = []
    verify(open_logs(path), found.append, deep=True)
    assert [str(each) for each in found if each.kind not in ("known", "nothing", "gap")] == []


def test_append_when_the_source_ends_above_its_last_record_then_so_does_the_log(memory_path: Path) -> None:
    """One batch without records stands for the offsets up to the source's end; records go on behind it."""
    _append(memory_path, 0, range(10), 14)

    assert _span(memory_path) == (0, 14)
    assert list(_reader(memory_path).read(10)) == []
    _assert_sound(memory_path)

    _append(memory_path, 1, (14, 15), 16)

    assert _span(memory_path) == (0, 16)
    assert _offsets(memory_path) == [*range(10), 14, 15]
    assert [row for batch in _reader(memory_path).read(11) for row in batch.column("offset").to_pylist()] == [14, 15]
    _assert_sound(memory_path)


def test_append_when_it_holds_an_end_then_writes_what_a_cleaner_leaves_of_a_batch(memory_path: Path) -> None:
    """A header alone: no producer, no times, no flags, all offsets up to the end, a CRC that fits."""
    _append(memory_path, 0, range(3), 7)

    data = next((memory_path / "logs" / "t-0").glob("*.log")).read_bytes()
    scan = scan_batches(data)
    assert (scan.base_offset[-1], scan.last_offset[-1], scan.records_count[-1]) == (3, 6, 0)
    assert (scan.max_timestamp[-1], scan.producer_id[-1], scan.attributes[-1]) == (-1, -1, 0)
    assert len(data) - scan.position[-1] == HEADER_BYTES


def test_append_when_only_the_end_has_moved_then_commits_it(memory_path: Path) -> None:
    """A micro-batch without a row may bring a marker."""
    _append(memory_path, 0, range(10), 10)
    before = contents(memory_path / "logs" / "t-0")

    _append(memory_path, 1, (), 10)
    assert contents(memory_path / "logs" / "t-0") == before

    _append(memory_path, 2, (), 11)
    assert _span(memory_path) == (0, 11)
    _assert_sound(memory_path)


def test_append_when_a_log_never_held_a_record_then_it_starts_below_its_end(memory_path: Path) -> None:
    """A log whose source has no record left ends with it; later records and ends do not move its start."""
    _append(memory_path, 0, (), 500)

    assert _span(memory_path) == (499, 500)
    assert [path.name for path in (memory_path / "logs" / "t-0").glob("*.log")] == ["00000000000000000499.log"]
    _assert_sound(memory_path)

    _append(memory_path, 1, (), 503)
    _append(memory_path, 2, (505,), 507)

    assert _span(memory_path) == (499, 507)
    assert _offsets(memory_path) == [505]
    _assert_sound(memory_path)


def test_append_when_the_micro_batch_is_known_then_its_end_changes_nothing(memory_path: Path) -> None:
    """A replay is a replay, whatever end it brings."""
    _append(memory_path, 0, range(10), 12)
    before = contents(memory_path / "logs" / "t-0")

    _append(memory_path, 0, range(10), 99)

    assert _span(memory_path) == (0, 12)
    assert contents(memory_path / "logs" / "t-0") == before


@pytest.mark.parametrize(("offsets", "end"), [((), 9), ((20, 21), 21)])
def test_append_when_an_end_is_too_low_then_refused_as_a_whole(
    memory_path: Path, offsets: tuple[int, ...], end: int
) -> None:
    """An end below what the log holds, or gets, is not the source's."""
    _append(memory_path, 0, range(10), 10)

    with pytest.raises(InvalidRecordError, match=rf"end offset is too low: log=t-0 end_offset={end}"):
        _append(memory_path, 1, offsets, end)

    assert _span(memory_path) == (0, 10)
    assert _offsets(memory_path) == list(range(10))
    assert contents(memory_path / "staging") == {}


def test_append_when_a_planned_end_went_back_then_the_log_keeps_its_end_and_others_go_on(
    memory_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A source may lose its last records; the rows of its other partitions are as good as before."""
    _append(memory_path, 0, range(100), 100)
    with closing(_open(memory_path)) as writer:
        run = in_process(rows(partition=[1], offset=[0], key=["k"], value=["v"], timestamp=[1]))
        writer.append("q", 1, run, PlannedEnds({_LOG: 95, ("t", 1): 3}))

    assert _span(memory_path) == (0, 100)
    assert Ledger.open(memory_path / "ledger").states()[TopicPartition("t", 1)].log_end_offset == 3
    assert "end offset is too low: log=t-0 end_offset=95 needed=100" in caplog.text


def test_append_when_planned_ends_stay_too_low_then_says_so_once_for_each_log_and_run(
    memory_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A stream of many micro-batches is not a stream of warnings; its next run says so again."""
    with closing(_open(memory_path)) as writer:
        writer.append("q", 0, in_process(), PlannedEnds({_LOG: 10, ("t", 1): 10}))
        for number, low in enumerate(({_LOG: 5}, {_LOG: 5}, {_LOG: 6, ("t", 1): 7}), 1):
            writer.append("q", number, in_process(), PlannedEnds(low))
    told = [record.getMessage() for record in caplog.records if "too low" in record.getMessage()]
    assert [line.partition("log=")[2] for line in told] == [
        "t-0 end_offset=5 needed=10",
        "t-1 end_offset=7 needed=10",
    ]

    caplog.clear()
    with closing(_open(memory_path)) as writer:
        writer.append("q", 4, in_process(), PlannedEnds({_LOG: 5}))
    assert "log=t-0 end_offset=5 needed=10" in caplog.text


@pytest.mark.parametrize(
    ("offsets", "start", "end", "span"),
    [
        ((5, 6), 0, 9, (0, 9)),
        ((5, 6), 5, 7, (5, 7)),
        ((), 3, 9, (3, 9)),
        ((), 9, 9, (8, 9)),
        ((5, 6), 6, 7, (5, 7)),  # no plan of Spark's
        ((2**40, 2**40 + 1), 7, 2**40 + 5, (7, 2**40 + 5)),
        ((), 7, 2**40, (7, 2**40)),
    ],
)
def test_append_when_a_new_logs_source_starts_without_records_then_the_log_starts_there(
    memory_path: Path, offsets: tuple[int, ...], start: int, end: int, span: tuple[int, int]
) -> None:
    """A group below the source's first record finds its offset, and no record is there that the source lacks."""
    with closing(_open(memory_path)) as writer:
        run = in_process(_rows(*offsets)) if offsets else in_process()
        writer.append("q", 0, run, PlannedEnds({_LOG: end}, {_LOG: start}))

    first = min((memory_path / "logs" / "t-0").glob("*.log")).name
    assert (_span(memory_path), int(first.removesuffix(".log"))) == (span, span[0])
    assert _offsets(memory_path) == list(offsets)
    read = [row for batch in _reader(memory_path).read(span[0]) for row in batch.column("offset").to_pylist()]
    assert read == list(offsets)
    _assert_sound(memory_path)


def test_append_when_a_log_holds_something_then_its_sources_start_changes_nothing(memory_path: Path) -> None:
    """Each micro-batch tells where it starts: only where a log begins does that count."""
    _append(memory_path, 0, (5, 6), 9)
    before = contents(memory_path / "logs" / "t-0")
    with closing(_open(memory_path)) as writer:
        writer.append("other", 0, in_process(), PlannedEnds({_LOG: 9}, {_LOG: 0}))

    assert _span(memory_path) == (5, 9)
    assert contents(memory_path / "logs" / "t-0") == before


def test_append_when_an_end_is_too_low_and_rows_are_diverted_then_the_log_keeps_its_end(
    memory_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where rows of a source that began anew are diverted, its end does not stop the stream."""
    _append(memory_path, 0, range(10), 12)
    _append(memory_path, 1, (3, 4), 5, on_invalid="quarantine")

    assert _span(memory_path) == (0, 12)
    assert "end offset is too low: log=t-0 end_offset=5 needed=12" in caplog.text


@pytest.mark.parametrize(
    ("ends", "problem"),
    [
        ({("t", 2): 1}, "log=t-2"),
        ({("u", 0): 1}, "log=u-0"),
        ({("t", 0): -1}, "-1 is no offset"),
        ({("t", 0): 2**63}, "is no offset"),
        ({("t", 0): "1"}, "is no offset"),
        ({("t", 0): True}, "is no offset"),
    ],
)
def test_append_when_end_offsets_make_no_sense_then_refused(
    memory_path: Path, ends: Mapping[tuple[str, int], int], problem: str
) -> None:
    """A log that the sink does not have, and what is no offset."""
    with closing(_open(memory_path)) as writer, pytest.raises(InvalidConfigError, match=problem):
        writer.append("q", 0, in_process(), ends)


def test_append_when_offsets_are_assigned_then_end_offsets_are_refused(memory_path: Path) -> None:
    """Assigned offsets are dense."""
    writer = open_store(memory_path, {"t": _SETTINGS}, topic="t")
    with closing(writer), pytest.raises(InvalidConfigError, match="offsets: preserved"):
        writer.append("q", 0, in_process(), {_LOG: 5})


@pytest.mark.parametrize("end", [2**31 + 5, 2**31 + 13, 2**40, 2**63 - 1])
def test_append_when_the_end_is_far_then_offsets_still_fit_their_segment(memory_path: Path, end: int) -> None:
    """A batch spans at most 2^31 - 1 offsets above its first one, and so does a segment."""
    _append(memory_path, 0, range(10), end)

    assert _span(memory_path) == (0, end)
    assert _offsets(memory_path) == list(range(10))
    assert list(_reader(memory_path).read(end - 1)) == []
    _assert_sound(memory_path)


def test_append_when_placing_fails_then_no_end_has_moved(memory_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch that holds an end is undone like all others, and comes with the micro-batch's next attempt."""
    _append(memory_path, 0, range(10), 12)
    with closing(_open(memory_path)) as writer:
        before = contents(memory_path / "logs" / "t-0")
        with monkeypatch.context() as patched:
            patched.setattr("sparklog.sink.place.placer.sync_files", _fail)
            with pytest.raises(StorageError):
                writer.append("q", 1, in_process(_rows(*range(12, 40))), {_LOG: 50, ("t", 1): 7})
        assert contents(memory_path / "logs" / "t-0") == before
        assert not list((memory_path / "logs" / "t-1").glob("*.log"))
        writer.append("q", 1, in_process(_rows(*range(12, 40))), {_LOG: 50, ("t", 1): 7})

    assert _span(memory_path) == (0, 50)
    assert _offsets(memory_path) == [*range(10), *range(12, 40)]
    _assert_sound(memory_path)


def test_segments_when_every_micro_batch_ends_in_a_marker_then_roll_and_are_indexed(memory_path: Path) -> None:
    """Batches without records count as bytes and offsets of their segments, and say nothing of times."""
    for number in range(40):
        _append(memory_path, number, (10 * number,), 10 * number + 5)

    assert _offsets(memory_path) == [10 * number for number in range(40)]
    assert _span(memory_path) == (0, 395)
    assert len(list((memory_path / "logs" / "t-0").glob("*.log"))) > 5
    assert _reader(memory_path).offset_for_time(1000 + 200) == (200, 1200)
    _assert_sound(memory_path)


def test_compaction_when_ends_were_held_then_the_batches_without_records_go(memory_path: Path) -> None:
    """Only the last batch of what is cleaned has to stay for the log's sake."""
    settings = {**_SETTINGS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.0, "file.delete.delay.ms": 0}
    for number in range(40):
        with closing(_open(memory_path, settings)) as writer:
            writer.append("q", number, in_process(_rows(10 * number)), {_LOG: 10 * number + 5})
    directory = memory_path / "logs" / "t-0"
    before = _empty_batches(directory)
    clean(memory_path)

    assert _offsets(memory_path) == [10 * number for number in range(40)]
    assert _span(memory_path) == (0, 395)
    assert _empty_batches(directory) < before / 2
    _assert_sound(memory_path)


def test_copy_when_the_log_directory_alone_is_taken_then_a_reader_finds_the_end(memory_path: Path) -> None:
    """Without a ledger the batches tell where a log ends: so a broker sees it."""
    _append(memory_path, 0, range(10), 14)
    copy = memory_path / "copy" / "t-0"
    shutil.copytree(Store.find(memory_path).log_path(_state(memory_path)), copy)

    assert LogReader(copy).log_end_offset == 14


def _empty_batches(directory: Path) -> int:
    return sum(int((scan_batches(path.read_bytes()).records_count == 0).sum()) for path in directory.glob("*.log"))


def _fail(*_: object) -> None:
    raise OSError(28, "No space left on device")
