import contextlib
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.index.index_builder import IndexBuilder
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.load.recover_segment import SegmentRecovery, recover_segment, scan_segment
from sparklog.storage_core.log.producers.states import ProducerStates
from sparklog.storage_core.record.batch_scan import scan_batches
from sparklog.storage_core.record.control_records import control_types, coordinator_epochs
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.batch_bytes import BatchSpec, segment_bytes
from tests.plain.plain_recovery import PlainRecovery, recover_plainly

_BASE = 1000
_DATA = st.builds(
    BatchSpec,
    gap=st.sampled_from([0, 0, 0, 3]),
    last_offset_delta=st.integers(0, 3),
    leader_epoch=st.integers(-1, 3),
    time=st.integers(0, 20),
    producer_id=st.integers(-1, 2),
    producer_epoch=st.integers(0, 1),
    base_sequence=st.sampled_from([-1, 0, 7, 2**31 - 2]),
    is_transactional=st.booleans(),
    body=st.binary(max_size=60),
)
_MARKERS = st.builds(
    BatchSpec,
    leader_epoch=st.integers(-1, 3),
    time=st.integers(0, 20),
    producer_id=st.integers(0, 2),
    producer_epoch=st.integers(0, 2),
    marker=st.integers(0, 1),
    coordinator_epoch=st.integers(0, 5),
    records_count=st.sampled_from([1, 1, 1, 0]),
)
_SEGMENTS = st.lists(st.one_of(_DATA, _DATA, _MARKERS), max_size=30)
_INTERVALS = st.sampled_from([0, 100, 300, 4096])
_CHUNKS = st.sampled_from([1, 150, 400, 1 << 20])


def _recover(data: bytes, interval: int, piece_bytes: int) -> tuple[SegmentRecovery, ProducerStates, list[bytes]]:
    """Scan and recover bytes as a file; return what was found, and the files afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        files = SegmentFiles(_BASE, Path(folder, segment_file_name(_BASE, LOG)))
        files.log_path.write_bytes(data)
        producers = ProducerStates(_BASE)
        found = scan_segment(files, interval, producers, (), piece_bytes)
        recover_segment(found, UNSHARED)
        paths = (files.log_path, files.index_path, files.time_index_path, files.txn_index_path)
        return found, producers, [path.read_bytes() if path.exists() else b"" for path in paths]


def _agree(data: bytes, interval: int, piece_bytes: int) -> PlainRecovery:
    plain = recover_plainly(data, _BASE, interval)
    found, producers, written = _recover(data, interval, piece_bytes)
    assert written == [data[: plain.valid_bytes], plain.offset_index, plain.time_index, plain.txn_index]
    assert (found.valid_bytes, found.next_offset) == (plain.valid_bytes, plain.next_offset)
    assert found.cut_bytes == len(data) - plain.valid_bytes
    assert (found.stop is None) == (plain.valid_bytes == len(data))
    assert list(found.leader_epochs) == plain.epochs
    assert {
        each.producer_id: (
            each.producer_epoch,
            each.coordinator_epoch,
            each.timestamp,
            each.current_txn_first_offset,
            (each.last_sequence, each.last_offset, each.offset_delta),
        )
        for each in producers.states()
    } == {
        producer_id: (
            each.epoch,
            each.coordinator_epoch,
            each.timestamp,
            each.first_offset,
            each.batches[-1][:3] if each.batches else (-1, -1, 0),
        )
        for producer_id, each in plain.producers.items()
    }
    return plain


@given(_SEGMENTS, _INTERVALS, _CHUNKS)
def test_recovery_of_a_sound_segment_agrees_with_the_plain_one(
    specs: list[BatchSpec], interval: int, piece_bytes: int
) -> None:
    """Nothing is cut, and indexes, epochs and producers are those of one batch at a time, in chunks of any size."""
    data = segment_bytes(specs, _BASE)

    assert _agree(data, interval, piece_bytes).valid_bytes == len(data)


@given(_SEGMENTS, _INTERVALS, _CHUNKS, st.data())
def test_recovery_of_any_prefix_keeps_the_whole_batches(
    specs: list[BatchSpec], interval: int, piece_bytes: int, data: st.DataObject
) -> None:
    """A torn tail goes, and what stays has the indexes of a segment to which no more was appended."""
    whole = segment_bytes(specs, _BASE)
    size = data.draw(st.integers(0, len(whole)))
    zeros = data.draw(st.sampled_from([0, 1, 30, 5000]))

    torn = whole[:size] + bytes(zeros)  # which may be what was there

    plain = _agree(torn, interval, piece_bytes)

    scan = scan_batches(whole)
    is_whole = np.array([torn[:end] == whole[:end] for end in (scan.position + scan.size).tolist()], np.bool_)
    kept = scan.take(is_whole)
    assert plain.valid_bytes == int(kept.size.sum())
    builder = IndexBuilder(_BASE, interval)
    for number in range(len(kept)):
        builder.add(*(each[number : number + 1] for each in (kept.position, kept.last_offset, kept.max_timestamp)))
    built = builder.finish()
    assert (plain.offset_index, plain.time_index) == (built.offset_index, built.time_index)


@example([BatchSpec(body=bytes(50)), BatchSpec(), BatchSpec()], 0, 1, 0, 0x01)
@example([BatchSpec(marker=0, producer_id=0, producer_epoch=0)], 0, 1, 16, 0x01)
@given(_SEGMENTS, _INTERVALS, _CHUNKS, st.integers(0, 4000), st.integers(1, 255))
def test_recovery_with_a_changed_byte_agrees_with_the_plain_one(
    specs: list[BatchSpec], interval: int, piece_bytes: int, position: int, change: int
) -> None:
    """Wherever a byte was changed, the longest prefix of batches that can be right stays."""
    data = bytearray(segment_bytes(specs, _BASE))
    if data:
        data[position % len(data)] ^= change

    _agree_unless_overflowed(bytes(data), interval, piece_bytes)


@given(st.binary(max_size=3000), _CHUNKS)
def test_recovery_of_arbitrary_bytes_agrees_with_the_plain_one(data: bytes, piece_bytes: int) -> None:
    """No bytes make it fail, and none that are no batch stay."""
    _agree_unless_overflowed(data, 4096, piece_bytes)


@given(_SEGMENTS, _INTERVALS, st.integers(0, 3000))
def test_recovery_when_run_again_changes_nothing(specs: list[BatchSpec], interval: int, size: int) -> None:
    """What a recovery leaves is sound."""
    _, _, written = _recover(segment_bytes(specs, _BASE)[:size], interval, 1 << 20)

    found, _, again = _recover(written[0], interval, 1 << 20)

    assert again == written
    assert found.stop is None


def _agree_unless_overflowed(data: bytes, interval: int, piece_bytes: int) -> None:
    """A changed offset may be one that goes back, or for which the segment has to be split: nothing may be written."""
    with tempfile.TemporaryDirectory() as folder:
        files = SegmentFiles(_BASE, Path(folder, segment_file_name(_BASE, LOG)))
        files.log_path.write_bytes(data)
        try:
            plain = recover_plainly(data, _BASE, interval)
        except ValueError:
            with pytest.raises(CorruptBatchError, match="go back"):
                scan_segment(files, interval, ProducerStates(_BASE))
            return
        if plain.is_overflowed:
            with contextlib.suppress(CorruptBatchError):  # what follows a changed offset goes back, mostly
                found = scan_segment(files, interval, ProducerStates(_BASE))
                assert (found.is_overflowed, found.valid_bytes) == (True, plain.valid_bytes)
            return
    _agree(data, interval, piece_bytes)


_STATES = st.lists(st.one_of(_DATA, _MARKERS), max_size=40)


@given(_STATES, st.lists(st.integers(1, 10), max_size=10))
def test_producers_followed_in_parts_are_those_followed_at_once(specs: list[BatchSpec], parts: list[int]) -> None:
    """All five batches of each producer, so that a duplicate is recognised however the log was read."""
    scan = scan_batches(segment_bytes(specs, _BASE))
    data = segment_bytes(specs, _BASE)
    plain = recover_plainly(data, _BASE, 4096)
    states, start = ProducerStates(_BASE), 0
    for size in [*parts, len(scan)]:
        _follow(states, data, start, start + size)
        start += size

    known = {
        producer_id: [(each.last_sequence, each.last_offset, each.offset_delta, each.timestamp) for each in batches]
        for producer_id, batches in states.batches().items()
    }
    assert known == {producer_id: list(each.batches) for producer_id, each in plain.producers.items()}


def _follow(states: ProducerStates, data: bytes, start: int, end: int) -> None:
    scan = scan_batches(data)
    part = scan.take(slice(start, end))
    types = control_types(data, part)
    states.follow(part, types, coordinator_epochs(data, part, types))
