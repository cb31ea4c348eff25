from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.storage_core.errors import OffsetOutOfRangeError
from sparklog.storage_core.index.index_builder import BuiltIndexes, IndexBuilder
from sparklog.storage_core.index.offset_index import pack_offset_entries
from sparklog.storage_core.index.time_index import pack_time_entries
from sparklog.storage_core.record.batch_scan import scan_batches
from tests.build.sink_store import in_process, log_directories, numbers, open_store
from tests.build.written_log import Batch, write_log

_BASE = 100


def _build(batches: list[tuple[int, int, int]], interval_bytes: int, borders: list[int]) -> BuiltIndexes:
    """Build from (size, offsets, max timestamp) of batches, handed over in parts."""
    table = np.array(batches, np.int64).reshape(-1, 3)
    position, last_offset = np.cumsum(table[:, 0]) - table[:, 0], _BASE + np.cumsum(table[:, 1]) - 1
    builder = IndexBuilder(_BASE, interval_bytes)
    for part in np.split(np.arange(len(table)), sorted(borders)):
        builder.add(position[part], last_offset[part], table[part, 2])
    return builder.finish()


def _build_plainly(batches: list[tuple[int, int, int]], interval_bytes: int) -> BuiltIndexes:
    """The scalar twin: LogSegment.recover, line by line."""
    offsets, times = [], []
    valid_bytes, last_entry_position, next_offset = 0, 0, _BASE
    largest, offset_of_largest, last_entry_timestamp = -1, _BASE, -1
    for size, count, timestamp in batches:
        last_offset = next_offset + count - 1
        if timestamp > largest:
            largest, offset_of_largest = timestamp, last_offset
        if valid_bytes - last_entry_position > interval_bytes:
            offsets.append((last_offset - _BASE, valid_bytes))
            if largest > last_entry_timestamp:
                times.append((largest, offset_of_largest - _BASE))
                last_entry_timestamp = largest
            last_entry_position = valid_bytes
        valid_bytes, next_offset = valid_bytes + size, last_offset + 1
    if largest > last_entry_timestamp:
        times.append((largest, offset_of_largest - _BASE))
    return BuiltIndexes(
        pack_offset_entries([each for each, _ in offsets], [each for _, each in offsets]),
        pack_time_entries([each for each, _ in times], [each for _, each in times]),
    )


@given(
    st.lists(st.tuples(st.integers(61, 900), st.integers(1, 5), st.integers(-2, 50))),
    st.integers(0, 2000),
    st.lists(st.integers(0, 20)),
)
def test_index_builder_matches_its_scalar_twin(
    batches: list[tuple[int, int, int]], interval_bytes: int, borders: list[int]
) -> None:
    """The compiled builder and Kafka's recovery loop agree, however the batches are handed over."""
    assert _build(batches, interval_bytes, borders) == _build_plainly(batches, interval_bytes)


def test_index_builder_when_segments_are_closed_then_what_an_append_wrote(tmp_path: Path) -> None:
    """A rebuild of a closed segment has the bytes that its writer gave it."""
    segments = [[Batch([s * 100 + b, s * 100 + 50 - b]) for b in range(9)] for s in range(3)]
    log = write_log(tmp_path / "t-0", segments, start_offset=7)

    _check_closed_segments(log.directory, 200)


def test_index_builder_when_the_sink_rolled_then_what_it_wrote(tmp_path: Path) -> None:
    """Segments that the sink closed within one run are rebuilt to the byte."""
    settings = {"segment.bytes": 3000, "batch.size": 200, "index.interval.bytes": 300}
    writer = open_store(tmp_path / "store", {"t": settings}, topic="t")
    writer.append("q", 0, in_process(numbers(0, 900)))
    writer.close()

    assert _check_closed_segments(log_directories(tmp_path / "store")["t-0"], 300) > 3


def _check_closed_segments(directory: Path, interval_bytes: int) -> int:
    closed = sorted(directory.glob("*.log"))[:-1]
    for path in closed:
        scan = scan_batches(path.read_bytes())
        builder = IndexBuilder(int(path.stem), interval_bytes)
        builder.add(scan.position, scan.last_offset, scan.max_timestamp)
        built = builder.finish()
        assert built.offset_index == path.with_suffix(".index").read_bytes(), path
        assert built.time_index == path.with_suffix(".timeindex").read_bytes(), path
    return len(closed)


def test_index_builder_when_there_is_no_batch_then_both_files_are_empty() -> None:
    """An empty segment has empty indexes."""
    assert IndexBuilder(5).finish() == BuiltIndexes(b"", b"")


def test_index_builder_when_no_batch_has_a_timestamp_then_no_time_entry() -> None:
    """Batches of v0, or empty ones, leave the time index empty."""
    assert _build([(5000, 1, -1)] * 3, 4096, []).time_index == b""


def test_index_builder_when_offset_does_not_fit_then_refused() -> None:
    """An entry holds 31 bits: a segment that spans more has to be split first."""
    builder = IndexBuilder(0, 10)
    builder.add(*(np.array(each, np.int64) for each in ([0, 70], [1, 2**31], [1, 2])))

    with pytest.raises(OffsetOutOfRangeError):
        builder.finish()
