from dataclasses import replace
from pathlib import Path

import pytest

from storage_core.checkpoint.leader_epochs import render_leader_epochs
from storage_core.inspect.verify_log import verify_directory
from storage_core.log.log_files import INDEX, TIMEINDEX, segment_file_name
from tests.written_log import Batch, WrittenLog, write_log

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
