"""What retention reads of a log's directory."""

from pathlib import Path

import pytest

from sparklog.storage_core.errors import CorruptBatchError, CorruptFileError, StorageError
from sparklog.storage_core.log.files.committed_end import CommittedEnd
from sparklog.storage_core.retention.log_facts import list_log, read_log_facts
from sparklog.storage_core.retention.plan_retention import SegmentFacts
from tests.build.written_log import Batch, WrittenLog, write_log


def _log(tmp_path: Path) -> tuple[WrittenLog, CommittedEnd]:
    log = write_log(tmp_path / "t-0", [[Batch([10, 90])], [Batch([20])], [Batch([25]), Batch([5, 40])]])
    size = (log.directory / f"{3:020}.log").stat().st_size
    return log, CommittedEnd(3, size, 6)


def _size(log: WrittenLog, base: int) -> int:
    return (log.directory / f"{base:020}.log").stat().st_size


def test_list_log_when_listed_then_segments_up_to_the_committed_end(tmp_path: Path) -> None:
    """What a sink adds behind it is no part of the log."""
    log, end = _log(tmp_path)
    with (log.directory / f"{3:020}.log").open("ab") as file:
        file.write(b"uncommitted")
    (log.directory / f"{6:020}.log").write_bytes(b"uncommitted")
    listed = list_log(log.directory, end)

    assert listed.segments == (
        SegmentFacts(0, 2, _size(log, 0)),
        SegmentFacts(2, 3, _size(log, 2)),
        SegmentFacts(3, 6, end.size_bytes),
    )
    assert (listed.deleted, listed.has_stray) == ((), False)


def test_list_log_when_a_segment_was_renamed_in_part_then_said(tmp_path: Path) -> None:
    """An index in front of the first log is what is left of one."""
    log, end = _log(tmp_path)
    (log.directory / f"{0:020}.log").rename(log.directory / f"{0:020}.log.deleted")
    listed = list_log(log.directory, end)

    assert listed.has_stray
    assert [each.name for each in listed.deleted] == [f"{0:020}.log.deleted"]
    assert listed.segments[0].base_offset == 2


def test_list_log_when_the_active_segment_is_missing_then_an_error(tmp_path: Path) -> None:
    """But one without committed bytes need not be there: preserved offsets name it later."""
    log, end = _log(tmp_path)
    (log.directory / f"{3:020}.log").unlink()

    with pytest.raises(CorruptFileError, match="active segment is missing"):
        list_log(log.directory, end)
    assert list_log(log.directory, CommittedEnd(3, 0, 3)).segments[-1] == SegmentFacts(3, 3, 0)
    with pytest.raises(StorageError):
        list_log(tmp_path / "gone", end)


def test_list_log_when_a_replacement_is_not_finished_then_an_error(tmp_path: Path) -> None:
    """Without its name a segment would be none, and the one before would seem to reach to the one behind."""
    log, end = _log(tmp_path)
    path = log.directory / f"{2:020}.log"
    path.rename(f"{path}.swap")
    with pytest.raises(CorruptFileError, match=f"a replacement of segments is not finished: .*{path.name}.swap"):
        list_log(log.directory, end)

    path.with_name(f"{path.name}.swap").rename(log.directory / f"{6:020}.log.swap")  # a sink's, behind what counts
    assert [each.base_offset for each in list_log(log.directory, end).segments] == [0, 3]


def test_timestamps_when_the_index_tells_a_young_one_then_nothing_more_is_read(tmp_path: Path) -> None:
    """What keeps a segment is enough; what deletes it is looked for in its batches."""
    log, end = _log(tmp_path)
    listed = list_log(log.directory, end)
    (log.directory / f"{3:020}.timeindex").write_bytes(b"")

    assert read_log_facts(log.directory, listed, 0, lambda ms: ms >= 90).timestamp_of(0) == 90
    assert [read_log_facts(log.directory, listed, 0, lambda _: False).timestamp_of(each) for each in range(3)] == [
        90,
        20,
        40,
    ]


@pytest.mark.parametrize("number", [0, 2])
def test_timestamps_when_a_segment_is_damaged_or_short_then_an_error(tmp_path: Path, number: int) -> None:
    """The time of its file says nothing of its records."""
    log, end = _log(tmp_path)
    listed = list_log(log.directory, end)
    path = log.directory / f"{listed.segments[number].base_offset:020}.log"
    path.with_suffix(".timeindex").write_bytes(b"")
    path.write_bytes(path.read_bytes()[:-10])

    with pytest.raises(CorruptBatchError, match=f"committed bytes are missing.*{path.name}"):
        read_log_facts(log.directory, listed, 0, lambda _: False).timestamp_of(number)
    with pytest.raises(CorruptBatchError, match=f"no whole batch.*{path.name}"):
        read_log_facts(
            log.directory, list_log(log.directory, CommittedEnd(3, path.stat().st_size, 6)), 0, lambda _: False
        ).timestamp_of(number)


def test_facts_when_read_then_the_end_is_the_high_watermark(tmp_path: Path) -> None:
    """What is committed needs no replica."""
    log, end = _log(tmp_path)
    facts = read_log_facts(log.directory, list_log(log.directory, end), 1, lambda _: False)

    assert (facts.log_start_offset, facts.log_end_offset, facts.high_watermark) == (1, 6, 6)
