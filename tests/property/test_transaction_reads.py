import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.storage_core.index.transaction_index import AbortedTransaction
from sparklog.storage_core.log.producers.transactions import TransactionTracker
from sparklog.storage_core.log.read.aborted_batches import AbortedBatches, aborted_mask
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.log.scan.log_walk import LogWalk, SegmentList
from sparklog.storage_core.record.batch_scan import scan_batches
from sparklog.storage_core.record.control_records import NO_CONTROL_TYPE, ControlType, control_types
from tests.build.transaction_log import Data, Event, Marker, TransactionLog, data_batch, write_transaction_log

_PRODUCERS = st.integers(0, 3)
_EVENTS = st.one_of(
    st.builds(Data, st.integers(1, 3), st.integers(-1, 3), st.integers(0, 2)),
    st.builds(Marker, _PRODUCERS, st.sampled_from([ControlType.ABORT, ControlType.COMMIT]), st.integers(0, 2)),
)
_SEGMENTS = st.lists(st.lists(_EVENTS, min_size=1, max_size=8), min_size=1, max_size=5)
_INDEXES = st.sampled_from(["all", "none", "some", "garbage"])


def _write(folder: str, segments: list[list[Event]], indexes: str, codec: str = "none") -> TransactionLog:
    log = write_transaction_log(Path(folder) / "t-0", segments, start_offset=20, codec=codec)
    for number, path in enumerate(sorted(log.directory.glob("*.txnindex"))):
        if indexes == "none" or (indexes == "some" and number % 2):
            path.unlink()
        elif indexes == "garbage":
            path.write_bytes(path.read_bytes()[::-1])
    if indexes == "all":
        for base in log.aborted:
            (log.directory / f"{base:020d}.txnindex").touch()
    return log


@settings(deadline=None, max_examples=80)
@given(_SEGMENTS, _INDEXES, st.sampled_from(["none", "zstd"]), st.data())
def test_reads_of_both_isolation_levels_agree_with_a_list_of_events(
    segments: list[list[Event]], indexes: str, codec: str, data: st.DataObject
) -> None:
    """Any range read in chunks of any size gives what the events say, whatever became of the transaction indexes."""
    with tempfile.TemporaryDirectory() as folder:
        log = _write(folder, segments, indexes, codec)
        reader = LogReader(log.directory)
        assert (reader.log_end_offset, reader.last_stable_offset) == (log.log_end_offset, log.last_stable_offset)
        start = data.draw(st.integers(20, log.log_end_offset))
        end = data.draw(st.integers(start, log.log_end_offset + 3))
        chunk_bytes = data.draw(st.sampled_from([1, 100, 300, 1 << 20]))
        for isolation, known in (("read_committed", log.committed), ("read_uncommitted", log.offsets)):
            found = [
                offset
                for batch in reader.read(start, end_offset=end, isolation=isolation, chunk_bytes=chunk_bytes)  # type: ignore[arg-type]
                for offset in batch.column("offset").to_pylist()
            ]
            assert found == [each for each in known if start <= each < end]


@settings(deadline=None, max_examples=80)
@given(_SEGMENTS, _INDEXES, st.sampled_from([0, 1, 2]))
def test_aborted_batches_are_the_same_by_index_and_by_scan(
    segments: list[list[Event]], indexes: str, scanned_chunks: int
) -> None:
    """However soon the indexes are asked, the batches passed over are those whose transactions were aborted."""
    with tempfile.TemporaryDirectory() as folder:
        log = _write(folder, segments, indexes)
        listed = SegmentList(log.directory, log.log_end_offset)
        aborted = AbortedBatches(listed, scanned_chunks)
        seen: list[int] = []
        for reader, chunk in LogWalk(listed, 20, log.last_stable_offset, chunk_bytes=150).chunks():
            kept = chunk.scan.take(~aborted.mask(reader, chunk))
            spans = zip(kept.base_offset.tolist(), kept.last_offset.tolist(), strict=True)
            seen += [offset for base, last in spans for offset in range(base, last + 1)]

        assert [each for each in seen if each not in log.markers] == log.committed


@settings(deadline=None, max_examples=60)
@given(_SEGMENTS, st.integers(1, 400))
def test_tracker_makes_the_entries_that_a_broker_makes(segments: list[list[Event]], part_bytes: int) -> None:
    """Followed in parts of any size, a log's batches give the entries of its transaction indexes."""
    with tempfile.TemporaryDirectory() as folder:
        log = _write(folder, segments, "none")
        listed = SegmentList(log.directory, log.log_end_offset)
        tracker, found = TransactionTracker(20), list[AbortedTransaction]()
        for _, chunk in LogWalk(listed, 20, log.log_end_offset, chunk_bytes=part_bytes).chunks():
            found += tracker.follow(chunk.scan, control_types(chunk.data, chunk.scan))

        assert found == [entry for entries in log.aborted.values() for entry in entries]


_RANGES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 9)).map(
        lambda each: AbortedTransaction(0, each[0], each[1], each[1] + each[2], each[1] + each[2] + 1)
    ),
    max_size=8,
)


@given(st.lists(st.builds(Data, st.integers(1, 3), st.integers(-1, 3)), min_size=1, max_size=12), _RANGES)
def test_aborted_mask_matches_a_look_at_each_pair(events: list[Data], ranges: list[AbortedTransaction]) -> None:
    """A batch is aborted if a transaction of its producer begins at or before its end and ends behind its start."""
    data, offset = b"", 0
    for event in events:
        data += data_batch(event, offset)
        offset += event.count
    scan = scan_batches(data)
    aborted = _without_overlaps(ranges)

    mask = aborted_mask(scan, aborted)

    for number, event in enumerate(events):
        hits = [
            each
            for each in aborted
            if each.producer_id == event.producer_id
            and each.first_offset <= scan.last_offset[number]
            and scan.base_offset[number] < each.last_offset
        ]
        assert mask[number] == bool(hits)


def _without_overlaps(ranges: list[AbortedTransaction]) -> list[AbortedTransaction]:
    """Leave out those that a log can't have: a producer's transactions follow each other."""
    kept: list[AbortedTransaction] = []
    for each in sorted(ranges, key=lambda entry: entry.first_offset):
        before = [other for other in kept if other.producer_id == each.producer_id]
        if not before or before[-1].last_offset < each.first_offset:
            kept.append(each)
    return kept


def test_no_control_type_is_no_marker() -> None:
    """The stand-in for data differs from both ends of a transaction."""
    assert np.int16(NO_CONTROL_TYPE) not in (ControlType.ABORT, ControlType.COMMIT)
