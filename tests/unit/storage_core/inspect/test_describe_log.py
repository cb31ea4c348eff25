from dataclasses import replace
from pathlib import Path

from sparklog.storage_core.inspect.describe_log import describe_log
from tests.build.written_log import Batch, WrittenLog, write_log


def _log(directory: Path) -> WrittenLog:
    return write_log(directory / "t-0", [[Batch([10, 30]), Batch([20])], [Batch([25]), Batch([5, 40])]], start_offset=7)


def test_describe_log_when_two_segments_then_offsets_sizes_and_timestamps(tmp_path: Path) -> None:
    """Each segment reaches to the next one, the last to the log's end; the largest timestamp is each segment's own."""
    described = describe_log(_log(tmp_path).directory)

    assert (described.log, described.log_start_offset, described.log_end_offset) == ("t-0", 7, 13)
    assert [(s.base_offset, s.next_offset, s.max_timestamp_ms) for s in described.segments] == [
        (7, 10, 30),
        (10, 13, 40),
    ]
    assert described.size_bytes == sum(s.size_bytes for s in described.segments)
    assert described.max_timestamp_ms == 40


def test_describe_log_when_a_folder_is_named_like_a_segment_then_passed_over(tmp_path: Path) -> None:
    """A folder is no segment, whatever its name."""
    directory = _log(tmp_path).directory
    before = describe_log(directory)
    (directory / f"{99:020d}.log").mkdir()

    assert describe_log(directory) == before


def test_describe_log_when_ledger_known_then_only_committed_bytes_count(tmp_path: Path) -> None:
    """What a writer has not committed is no part of the log."""
    log = _log(tmp_path)
    position, base = log.batches[-1][1], log.batches[-1][3]
    assert log.expected is not None
    described = describe_log(log.directory, replace(log.expected, log_end_offset=base, active_size_bytes=position))

    assert described.log_end_offset == base
    assert (described.segments[-1].size_bytes, described.segments[-1].max_timestamp_ms) == (position, 25)


def test_describe_log_when_directory_empty_then_no_segments(tmp_path: Path) -> None:
    """An empty directory is an empty log."""
    described = describe_log(tmp_path)

    assert (described.log_start_offset, described.log_end_offset, described.segments) == (0, 0, ())


def test_describe_log_when_rendered_as_dict_then_plain_values(tmp_path: Path) -> None:
    """The JSON view has every field."""
    described = describe_log(_log(tmp_path).directory).as_dict()

    assert described["segments"][1]["next_offset"] == 13
