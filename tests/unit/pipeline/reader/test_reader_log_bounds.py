"""What can be read, and what a query asks for."""

import logging
from contextlib import closing
from pathlib import Path

import pytest

from sparklog.pipeline.places.store_view import open_logs
from sparklog.pipeline.reader.log_bounds import LogBounds, find_bounds, resolve_ends, resolve_starts
from sparklog.pipeline.reader.options import ReaderOptions, parse_options
from sparklog.storage_core.errors import CorruptBatchError, InvalidConfigError, OffsetOutOfRangeError
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.sink_store import in_process, numbers, open_events
from tests.build.written_log import Batch, write_log

_T0, _T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two logs: offsets 100 to 130 with times 0, 10, ... 290, and offsets 0 to 10 with times 0 to 90."""
    times = [[number * 10 + more * 10 for more in range(10)] for number in range(0, 30, 10)]
    write_log(tmp_path / "t-0", [[Batch(times[0])], [Batch(times[1]), Batch(times[2])]], start_offset=100)
    write_log(tmp_path / "t-1", [[Batch(times[0])]])
    return tmp_path


def _bounds(folder: Path, **options: str) -> tuple[dict[TopicPartition, LogBounds], ReaderOptions]:
    parsed = parse_options({"path": str(folder), **options}, "any")
    return find_bounds(open_logs(folder, parsed.as_of).logs, parsed), parsed


def _starts(folder: Path, **options: str) -> list[int]:
    return list(resolve_starts(*_bounds(folder, **options)).values())


def _ends(folder: Path, **options: str) -> list[int]:
    return list(resolve_ends(*_bounds(folder, **options)).values())


def test_bounds_when_a_folder_is_no_store_then_the_logs_say_where_they_end(folder: Path) -> None:
    """Start and end are the first base offset, and behind the last batch."""
    bounds, _ = _bounds(folder)

    assert [(each.start_offset, each.end_offset) for each in bounds.values()] == [(100, 130), (0, 10)]


def test_bounds_when_a_store_is_read_then_its_ledger_says_where_logs_end(tmp_path: Path) -> None:
    """What lies behind the committed end does not exist, neither does what came after an earlier version."""
    with closing(open_events(tmp_path / "store")) as writer:
        writer.append("q", 0, in_process(numbers(0, 10)))
        writer.append("q", 1, in_process(numbers(10, 30)))
    version = open_logs(tmp_path / "store").ledger_version or 0

    now, _ = _bounds(tmp_path / "store")
    then, _ = _bounds(tmp_path / "store", asOfVersion=str(version - 1))

    assert sum(each.end_offset for each in now.values()) == 30
    assert sum(each.end_offset for each in then.values()) == 10


def test_bounds_when_a_folder_is_asked_for_its_past_then_it_is_an_error(folder: Path) -> None:
    """Only a store has a ledger."""
    with pytest.raises(InvalidConfigError, match="earlier versions exist only in a store"):
        _bounds(folder, asOfVersion="1")


def test_bounds_when_the_end_is_damaged_then_it_is_an_error_or_the_log_ends_there(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An end that can't be found fails, with file and position; where loss is allowed what is in front of it counts."""
    path = folder / "t-0" / f"{110:020}.log"
    with path.open("ab") as file:
        file.write(bytes([0xFF]) * 100)

    with pytest.raises(CorruptBatchError, match=rf"{path} position=\d+"):
        _bounds(folder)
    with caplog.at_level(logging.WARNING):
        bounds, _ = _bounds(folder, failOnDataLoss="false")
    assert bounds[_T0].end_offset == 130
    assert "the end of a log is damaged" in caplog.text


def test_resolve_when_words_are_given_then_they_are_the_ends_of_each_log(folder: Path) -> None:
    """Earliest and latest, also as -2 and -1."""
    assert _starts(folder) == [100, 0]
    assert _starts(folder, startingOffsets='{"t": {"0": -2, "1": 4}}') == [100, 4]
    assert _starts(folder, startingOffsets="latest") == [130, 10]
    assert _ends(folder) == [130, 10]
    assert _ends(folder, endingOffsets='{"t": {"0": 105, "1": -1}}') == [105, 10]


def test_resolve_when_times_are_given_then_records_are_looked_up(folder: Path) -> None:
    """The first record that is not earlier; without one an end is the log's end."""
    assert _starts(folder, startingTimestamp="85") == [109, 9]
    assert _starts(folder, startingOffsetsByTimestamp='{"t": {"0": 200, "1": 0}}') == [120, 0]
    assert _ends(folder, endingTimestamp="85") == [109, 9]
    assert _ends(folder, endingOffsetsByTimestamp='{"t": {"0": 10000, "1": 11}}') == [130, 2]


def test_resolve_when_no_record_is_late_enough_then_it_is_an_error_or_the_end(folder: Path) -> None:
    """The strategy decides, as in the connector; ending there is no error."""
    with pytest.raises(InvalidConfigError, match="log=t-1 timestamp=200"):
        _starts(folder, startingTimestamp="200")

    assert _starts(folder, startingTimestamp="200", startingOffsetsByTimestampStrategy="latest") == [120, 10]


@pytest.mark.parametrize(("offset", "left"), [(99, 100), (131, 130)])
def test_resolve_when_an_offset_is_outside_then_it_is_an_error_or_what_is_left(
    folder: Path, offset: int, left: int
) -> None:
    """An offset that is gone, or not there yet, is named with what there is."""
    starting = f'{{"t": {{"0": {offset}, "1": 0}}}}'

    with pytest.raises(OffsetOutOfRangeError, match=f"log=t-0 offset={offset} start=100 end=130"):
        _starts(folder, startingOffsets=starting)
    assert _starts(folder, startingOffsets=starting, failOnDataLoss="false") == [left, 0]


def test_resolve_when_partitions_differ_then_the_error_names_them(folder: Path) -> None:
    """Offsets by partition are for exactly the partitions that are read."""
    with pytest.raises(InvalidConfigError, match=r"starting .* missing: t:1; not read: u:0"):
        _starts(folder, startingOffsets='{"t": {"0": 100}, "u": {"0": 0}}')
    with pytest.raises(InvalidConfigError, match=r"ending .* missing: t:0"):
        _ends(folder, endingOffsets='{"t": {"1": 5}}')
