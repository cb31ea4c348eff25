import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.storage_core.log.read.log_reader import LogReader
from tests.build.written_log import Batch, WrittenLog, write_log

_BATCHES = st.builds(
    Batch,
    st.lists(st.integers(-1, 60), min_size=1, max_size=4),
    gap=st.integers(0, 4),
    value_bytes=st.sampled_from([0, 30, 90]),
)
_SEGMENTS = st.lists(st.lists(_BATCHES, min_size=1, max_size=8), min_size=1, max_size=4)


def _records(log: WrittenLog, start: int, end: int) -> list[tuple[int, int]]:
    records = zip(log.offsets, log.timestamps, strict=True)
    return [(offset, timestamp) for offset, timestamp in records if start <= offset < end]


@settings(deadline=None, max_examples=60)
@given(_SEGMENTS, st.integers(0, 900), st.sampled_from(["none", "lz4"]), st.data())
def test_log_reader_agrees_with_a_list_of_records(
    segments: list[list[Batch]], interval: int, codec: str, data: st.DataObject
) -> None:
    """Reads and lookups over segments, gaps and indexes of any density answer what a plain list answers."""
    with tempfile.TemporaryDirectory() as folder:
        log = write_log(Path(folder) / "t-0", segments, start_offset=50, index_interval_bytes=interval, codec=codec)
        assert log.expected is not None
        end = log.expected.log_end_offset
        start = data.draw(st.integers(50, end))
        reader = LogReader(log.directory, log_start_offset=start)
        assert reader.log_end_offset == end
        known = _records(log, start, end)

        from_offset = data.draw(st.integers(start, end))
        found = [
            pair
            for batch in reader.read(from_offset)
            for pair in zip(batch.column("offset").to_pylist(), batch.column("timestamp").to_pylist(), strict=True)
        ]
        assert found == [pair for pair in known if pair[0] >= from_offset]

        for asked in data.draw(st.lists(st.integers(-1, 62), min_size=1, max_size=5)):
            assert reader.offset_for_time(asked) == next((pair for pair in known if pair[1] >= asked), None)
        dated = [pair for pair in known if pair[1] >= 0]
        assert reader.offset_of_max_timestamp() == (max(dated, key=lambda pair: pair[1]) if dated else None)
