from pathlib import Path

import numpy as np
import pytest

from sparklog.storage_core.checkpoint.producer_snapshot import ProducerState, render_producer_snapshot
from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.index.transaction_index import AbortedTransaction
from sparklog.storage_core.log.producers.transactions import TransactionTracker
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.record.batch_scan import scan_batches
from sparklog.storage_core.record.control_records import ControlType, control_types
from tests.build.transaction_log import Data, Event, Marker, control_batch, data_batch, write_transaction_log

_ABORT = ControlType.ABORT


def _follow(tracker: TransactionTracker, events: list[Event]) -> list[AbortedTransaction]:
    data, offset = b"", tracker.next_offset
    for event in events:
        data += control_batch(event, offset) if isinstance(event, Marker) else data_batch(event, offset)
        offset += 1 if isinstance(event, Marker) else event.count
    scan = scan_batches(data)
    return tracker.follow(scan, control_types(data, scan))


def _state(producer_id: int, first_offset: int) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=0,
        last_sequence=0,
        last_offset=0,
        offset_delta=0,
        timestamp=0,
        coordinator_epoch=-1,
        current_txn_first_offset=first_offset,
    )


def _committed(reader: LogReader) -> list[int]:
    batches = reader.read(reader.log_start_offset, isolation="read_committed")
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_tracker_when_transactions_interleave_then_aborted_ones_with_their_last_stable_offsets() -> None:
    """An entry has the first offset of its transaction, its marker's, and up to where all was decided then."""
    tracker = TransactionTracker(10)

    aborted = _follow(tracker, [Data(2, 7), Data(1, 8), Data(3, 7), Marker(7, _ABORT), Data(1), Marker(8, _ABORT)])

    assert aborted == [AbortedTransaction(0, 7, 10, 16, 12), AbortedTransaction(0, 8, 12, 18, 19)]
    assert (tracker.first_open, tracker.next_offset) == (None, 19)


def test_tracker_when_batches_come_in_parts_then_transactions_go_on() -> None:
    """What was open stays open from one part to the next."""
    tracker = TransactionTracker(0)

    assert _follow(tracker, [Data(2, 7), Data(1, 9)]) == []
    assert tracker.first_open == 0
    assert _follow(tracker, [Data(1, 7), Marker(7, _ABORT)]) == [AbortedTransaction(0, 7, 0, 4, 2)]
    assert tracker.first_open == 2


def test_tracker_when_marker_ends_nothing_then_no_transaction() -> None:
    """A marker without data, its own removed or never written to this log, aborts nothing."""
    tracker = TransactionTracker(0)

    assert _follow(tracker, [Marker(7, _ABORT), Data(1, 7), Marker(7), Marker(7, _ABORT)]) == []
    assert tracker.first_open is None


def test_tracker_when_control_record_is_of_another_type_then_ignored() -> None:
    """Only commits and aborts end a transaction."""
    tracker = TransactionTracker(0)
    data = data_batch(Data(1, 7), 0) + control_batch(Marker(7, ControlType.LEADER_CHANGE), 1)
    scan = scan_batches(data)

    assert tracker.follow(scan, control_types(data, scan)) == []
    assert tracker.first_open == 0


def test_tracker_when_nothing_follows_then_stays() -> None:
    """No batches change nothing."""
    tracker = TransactionTracker(5, {3: 4, 2: 1})

    assert tracker.follow(scan_batches(b""), np.empty(0, np.int16)) == []
    assert (tracker.next_offset, tracker.first_open) == (5, 1)


def test_last_stable_offset_when_marker_is_in_another_segment_then_found(tmp_path: Path) -> None:
    """A transaction goes on over segments, and is open only if no segment has its marker."""
    segments: list[list[Event]] = [[Data(2, 7), Data(1, 8)], [Data(5)], [Marker(7), Data(1)]]
    log = write_transaction_log(tmp_path / "t-0", segments, start_offset=100)

    assert LogReader(log.directory).last_stable_offset == log.last_stable_offset == 102


def test_last_stable_offset_when_no_transactions_then_the_end(tmp_path: Path) -> None:
    """Without transactions everything is stable."""
    log = write_transaction_log(tmp_path / "t-0", [[Data(3)], [Data(2)]])

    assert LogReader(log.directory).last_stable_offset == 5


def test_last_stable_offset_when_snapshot_knows_an_older_transaction_then_pinned_at_the_start(tmp_path: Path) -> None:
    """Of a transaction whose data retention removed only a snapshot tells; it keeps everything unstable."""
    log = write_transaction_log(tmp_path / "t-0", [[Data(3)], [Data(2)]], start_offset=50)
    snapshot = log.directory / "00000000000000000053.snapshot"
    snapshot.write_bytes(render_producer_snapshot([_state(9, 41), _state(8, -1)]))

    assert LogReader(log.directory).last_stable_offset == 50
    snapshot.unlink()
    assert LogReader(log.directory).last_stable_offset == 55


def test_last_stable_offset_when_snapshot_has_open_transactions_then_scanned_from_there(tmp_path: Path) -> None:
    """The newest sound snapshot is the start of the scan: what it says of the part before is taken."""
    log = write_transaction_log(tmp_path / "t-0", [[Data(3, 7)], [Marker(7), Data(2, 6)], [Marker(6)]])
    snapshots = {3: [_state(7, 0)], 6: [_state(6, 4)], 7: [_state(5, 2)], 900: [_state(4, 1)]}
    for offset, states in snapshots.items():
        (log.directory / f"{offset:020d}.snapshot").write_bytes(render_producer_snapshot(states))

    assert LogReader(log.directory).last_stable_offset == 2
    (log.directory / f"{7:020d}.snapshot").write_bytes(b"damaged")
    assert LogReader(log.directory).last_stable_offset == 7


def test_last_stable_offset_when_snapshot_is_not_behind_the_log_start_then_not_used(tmp_path: Path) -> None:
    """The marker may lie between such a snapshot and the log's start."""
    log = write_transaction_log(tmp_path / "t-0", [[Data(3)]], start_offset=50)
    (log.directory / f"{50:020d}.snapshot").write_bytes(render_producer_snapshot([_state(9, 41)]))

    assert LogReader(log.directory).last_stable_offset == 53


def test_last_stable_offset_when_given_then_nothing_is_scanned(tmp_path: Path) -> None:
    """Who knows it says so; it lies within the log."""
    log = write_transaction_log(tmp_path / "t-0", [[Data(3, 7)]])

    assert LogReader(log.directory, last_stable_offset=2).last_stable_offset == 2
    assert LogReader(log.directory, last_stable_offset=9).last_stable_offset == 3


def test_last_stable_offset_when_marker_is_damaged_then_refused_with_its_place(tmp_path: Path) -> None:
    """A marker is believed only if its CRC is right."""
    log = write_transaction_log(tmp_path / "t-0", [[Data(3, 7), Marker(7, _ABORT), Data(1)]])
    path, position, size, _ = log.batches[1]
    data = bytearray(path.read_bytes())
    data[position + size - 9] ^= 1
    path.write_bytes(data)

    with pytest.raises(CorruptBatchError, match=rf"wrong CRC: offsets=3\.\.3 .*{path.name} position={position}"):
        assert LogReader(log.directory).last_stable_offset


def test_last_stable_offset_when_batch_of_the_open_transaction_is_damaged_then_refused(tmp_path: Path) -> None:
    """A wrong producer id would hide everything behind its batch: that batch is checked."""
    log = write_transaction_log(tmp_path / "t-0", [[Data(1), Data(3, 7), Marker(7), Data(1)]])
    path, position, _, _ = log.batches[1]
    data = bytearray(path.read_bytes())
    data[position + 50] ^= 1
    path.write_bytes(data)

    with pytest.raises(CorruptBatchError, match=rf"position={position}"):
        assert LogReader(log.directory).last_stable_offset


def test_read_committed_when_log_begins_inside_an_aborted_transaction_then_its_rest_is_left_out(
    tmp_path: Path,
) -> None:
    """Retention may have removed the beginning of a transaction; what is left of it is aborted all the same."""
    segments: list[list[Event]] = [[Data(2, 7)], [Data(3, 7), Data(1)], [Marker(7, _ABORT), Data(1)]]
    log = write_transaction_log(tmp_path / "t-0", segments)
    for path in log.directory.glob("00000000000000000000.*"):
        path.unlink()

    assert _committed(LogReader(log.directory)) == [5, 7]


@pytest.mark.parametrize("damage", ["none", "missing", "torn", "other producer", "no marker there", "later version"])
def test_read_committed_when_a_long_transaction_is_looked_up_then_whatever_its_index_says_the_same(
    tmp_path: Path, damage: str
) -> None:
    """The transaction index saves a scan; where it is not there, or not right, the scan is done."""
    filler: list[Event] = [Data(1, value_bytes=700_000) for _ in range(4)]
    segments: list[list[Event]] = [
        [Data(2, 5), Marker(5, _ABORT), Data(2, 7), Data(1, 8), *filler],
        [Data(1, 6), Marker(8), *filler, Marker(6, _ABORT)],
        [Data(2, 8), Marker(7, _ABORT), Marker(8, _ABORT)],
    ]
    log = write_transaction_log(tmp_path / "t-0", segments)
    path = sorted(log.directory.glob("*.txnindex"))[-1]
    data = path.read_bytes()
    other = bytes(9) + b"\x08" + data[10:]
    changed = {"torn": data[:-1], "other producer": other, "later version": b"\0\1" + data[2:]}
    if damage == "missing":
        path.unlink()
    elif damage == "no marker there":
        path.write_bytes(data[:25] + bytes([data[25] - 1]) + data[26:])
    else:
        path.write_bytes(changed.get(damage, data))

    assert len(log.aborted) == len(list(log.directory.glob("*.txnindex"))) + (damage == "missing")
    assert _committed(LogReader(log.directory)) == log.committed
