from dataclasses import replace
from pathlib import Path

import pytest

from sparklog.storage_core.checkpoint.leader_epochs import render_leader_epochs
from sparklog.storage_core.checkpoint.producer_snapshot import ProducerState, render_producer_snapshot
from sparklog.storage_core.inspect.verify.verify_log import verify_directory
from sparklog.storage_core.log.files.names import INDEX, TIMEINDEX, segment_file_name
from tests.build.written_log import Batch, WrittenLog, write_log

_EPOCHS = "leader-epoch-checkpoint"


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    """Three segments of three batches, offsets from 100 on."""
    return write_log(tmp_path / "t-0", [[Batch([1000 + s])] * 3 for s in range(3)], start_offset=100)


@pytest.mark.parametrize("entries", [[], [(0, 101)]])
def test_verify_directory_when_first_offsets_have_no_epoch_then_found(
    log: WrittenLog, entries: list[tuple[int, int]]
) -> None:
    """Where a ledger names the log, its epoch file covers every offset from the log's start on."""
    (log.directory / _EPOCHS).write_bytes(render_leader_epochs(entries))

    findings = verify_directory(log.directory, log.expected).findings

    assert [(each.kind, each.file) for each in findings] == [("checkpoint", _EPOCHS)]


def test_verify_directory_when_log_starts_inside_a_segment_then_epochs_may_start_there(log: WrittenLog) -> None:
    """Retention cuts the epoch file at the log's start, which may lie behind the first segment's."""
    assert log.expected is not None
    (log.directory / _EPOCHS).write_bytes(render_leader_epochs([(0, 101)]))

    assert verify_directory(log.directory, replace(log.expected, log_start_offset=101)).findings == []


def test_verify_directory_when_segment_is_gone_among_gaps_then_its_indexes_tell(tmp_path: Path) -> None:
    """Where offsets may be missing, an index without its `.log` is what is left of a lost segment."""
    gaps = [[Batch([1000 + s]), Batch([1000 + s], gap=5), Batch([1000 + s], gap=7)] for s in range(3)]
    log = write_log(tmp_path / "t-0", gaps)
    lost = log.batches[3]
    lost[0].unlink()

    found = {(each.kind, each.file) for each in verify_directory(log.directory, log.expected).findings}

    assert found == {("index", segment_file_name(lost[3], suffix)) for suffix in (INDEX, TIMEINDEX)}


def test_verify_directory_when_index_lies_beyond_the_committed_end_then_uncommitted(log: WrittenLog) -> None:
    """A writer that died between a new segment's files leaves nothing that counts."""
    (log.directory / segment_file_name(500, INDEX)).write_bytes(b"")

    assert {each.kind for each in verify_directory(log.directory, log.expected).findings} == {"uncommitted"}


def test_verify_directory_when_it_is_gone_then_the_ledgers_offsets_are_named(log: WrittenLog, tmp_path: Path) -> None:
    """What is lost with a whole directory is known from the ledger."""
    (found,) = verify_directory(tmp_path / "t-1", log.expected).findings

    assert (found.kind, found.first_offset, found.last_offset) == ("missing", 100, 108)


def test_verify_directory_when_every_timestamp_is_below_minus_one_then_deep_is_sound(tmp_path: Path) -> None:
    """Records may be from before 1970; the largest of their timestamps is then negative."""
    log = write_log(tmp_path / "t-0", [[Batch([-5, -7]), Batch([-(2**63)])]])

    assert verify_directory(log.directory, log.expected, deep=True).findings == []


def _producer(last_offset: int) -> ProducerState:
    return ProducerState(
        producer_id=7,
        producer_epoch=0,
        last_sequence=0,
        last_offset=last_offset,
        offset_delta=0,
        timestamp=1000,
        coordinator_epoch=-1,
        current_txn_first_offset=-1,
    )


@pytest.mark.parametrize(
    ("offset", "content", "what"),
    [
        (103, render_producer_snapshot([_producer(102)])[:-1] + b"\x01", "crc="),
        (103, render_producer_snapshot()[:5], "fewer than its header"),
        (103, render_producer_snapshot([_producer(103)]), "speaks of offset 103, but was taken at 103"),
        (110, render_producer_snapshot(), "above the log's end 109"),
    ],
)
def test_verify_directory_when_snapshot_wrong_then_found(
    log: WrittenLog, offset: int, content: bytes, what: str
) -> None:
    """A producer snapshot has a CRC, and speaks of offsets before its own, which lies inside the log."""
    name = f"{offset:020d}.snapshot"
    (log.directory / name).write_bytes(content)

    (found,) = verify_directory(log.directory, log.expected).findings

    assert (found.kind, found.rule, found.file) == ("checkpoint", "snapshot", name)
    assert what in found.what


def test_verify_directory_when_snapshots_are_sound_then_no_finding(log: WrittenLog) -> None:
    """Snapshots at segment borders and at the log's end are what a broker leaves."""
    (log.directory / f"{103:020d}.snapshot").write_bytes(render_producer_snapshot([_producer(102)]))
    (log.directory / f"{109:020d}.snapshot").write_bytes(render_producer_snapshot())

    assert verify_directory(log.directory, log.expected).findings == []


@pytest.mark.parametrize("name", ["00000000000000000103.log.d", "notes"])
def test_verify_directory_when_a_folder_lies_in_the_log_then_foreign(log: WrittenLog, name: str) -> None:
    """A log directory holds files alone."""
    (log.directory / name).mkdir()

    assert [(f.kind, f.file) for f in verify_directory(log.directory, log.expected).findings] == [("foreign", name)]


def test_verify_directory_when_a_folder_is_named_like_a_segment_then_foreign(log: WrittenLog) -> None:
    """A folder is no segment, whatever its name."""
    (log.directory / "00000000000000000050.log").mkdir()

    (found,) = verify_directory(log.directory, log.expected).findings

    assert (found.kind, found.rule, found.file) == ("foreign", "name", "00000000000000000050.log")


def test_verify_directory_when_a_segments_name_is_short_then_foreign(log: WrittenLog) -> None:
    """Names have 20 digits: a broker would take the file for a segment all the same."""
    (log.directory / "109.log").write_bytes(b"")

    assert [(f.kind, f.rule) for f in verify_directory(log.directory, log.expected).findings] == [("foreign", "name")]
