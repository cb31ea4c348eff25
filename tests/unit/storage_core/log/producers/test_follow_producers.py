import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparklog.storage_core.checkpoint.producer_snapshot import ProducerState, parse_producer_snapshot
from sparklog.storage_core.log.files.segments import list_segments
from sparklog.storage_core.log.producers.follow import follow_producers
from sparklog.storage_core.log.producers.snapshots import find_snapshot, list_snapshots
from sparklog.storage_core.log.producers.states import ProducerStates
from sparklog.storage_core.record.control_records import ControlType
from tests.build.golden import GoldenLog, golden_logs
from tests.build.transaction_log import Data, Marker, write_transaction_log
from tests.build.written_snapshot import write_snapshot

_NOW_MS = 1_700_000_100_000


def _by_id(states: list[ProducerState]) -> list[ProducerState]:
    return sorted(states, key=lambda each: each.producer_id)


@dataclass(frozen=True)
class _Followed:
    """A state, where its snapshot was, and the snapshots to write."""

    producers: ProducerStates
    snapshot_offset: int | None
    snapshots: dict[int, list[ProducerState]]


def _follow(
    directory: Path, end_offset: int, now_ms: int = _NOW_MS, *bases: int, log_start_offset: int = 0
) -> _Followed:
    """Follow a log from its newest snapshot on, without the producers that expired in it."""
    found = find_snapshot(directory, log_start_offset, end_offset)
    producers = ProducerStates(log_start_offset if found.offset is None else found.offset, found.producers)
    producers.remove_expired(now_ms)
    snapshots = follow_producers(producers, list_segments(directory), end_offset, bases)
    return _Followed(producers, found.offset, snapshots)


@pytest.mark.parametrize("golden", golden_logs("v2-*"))
def test_follow_producers_when_the_newest_snapshots_are_gone_then_gives_what_they_held(
    golden: GoldenLog, tmp_path: Path
) -> None:
    """From the one before, or the log alone, a broker's own entries come out."""
    directory = tmp_path / golden.directory.name
    shutil.copytree(golden.directory, directory)
    now_ms = 1_700_000_300_000 + (86_400_000 if golden.name in ("v2-compact-second", "v2-compact-expired") else 0)
    for offset in reversed(list_snapshots(directory)):
        path = directory / f"{offset:020d}.snapshot"
        held = parse_producer_snapshot(path.read_bytes())
        path.unlink()
        if golden.name in ("v2-compact-second", "v2-compact-expired") and not list_snapshots(directory):
            continue  # the producer expired while the broker was down; what is left of its batches has no expiry

        found = _follow(directory, offset, now_ms)

        assert _by_id(found.producers.states()) == _by_id(held)
        assert found.snapshots[offset] == found.producers.states()


def test_follow_producers_when_a_snapshot_is_there_then_batches_before_it_are_not_read(tmp_path: Path) -> None:
    """Damage there does not matter, as in Kafka."""
    log = write_transaction_log(tmp_path / "t-0", [[Data(2, 7)], [Data(2, 8), Marker(8)]])
    write_snapshot(log.directory, 2, [])
    first = log.batches[0][0]
    first.write_bytes(bytes(len(first.read_bytes())))

    found = _follow(log.directory, log.log_end_offset)

    assert (found.snapshot_offset, list(found.producers.batches())) == (2, [8])


def test_follow_producers_when_bases_are_wanted_then_gives_snapshots_there_and_at_the_end(tmp_path: Path) -> None:
    """A broker writes them as it passes the last segments; none where the scan begins."""
    log = write_transaction_log(tmp_path / "t-0", [[Data(2, 7)], [Data(2, 8)], [Data(1, 9)]])

    found = _follow(log.directory, 5, _NOW_MS, 0, 2, 4)

    assert {offset: sorted(each.producer_id for each in states) for offset, states in found.snapshots.items()} == {
        2: [7],
        4: [7, 8],
        5: [7, 8, 9],
    }


def test_follow_producers_up_to_an_offset_inside_a_batch_then_leaves_that_batch_out(tmp_path: Path) -> None:
    """What is wanted is the state in front of it."""
    log = write_transaction_log(tmp_path / "t-0", [[Data(2, 7), Data(3, 8), Data(1, 9)]])

    found = _follow(log.directory, 3)

    assert (list(found.producers.batches()), found.producers.map_end_offset) == ([7], 3)


def test_follow_producers_when_expired_in_the_snapshot_then_are_forgotten(tmp_path: Path) -> None:
    """Those that the scan meets are not, whatever their time."""
    log = write_transaction_log(tmp_path / "t-0", [[Data(2, 7)], [Data(2, 8)]])
    write_snapshot(log.directory, 2, _follow(log.directory, 2).producers.states())
    late = _NOW_MS + 90_000_000

    assert sorted(_follow(log.directory, 4).producers.batches()) == [7, 8]
    assert sorted(_follow(log.directory, 2, late).producers.batches()) == [7]  # its transaction is open
    committed = write_transaction_log(tmp_path / "c-0", [[Data(2, 7), Marker(7, ControlType.COMMIT)], [Data(2, 8)]])
    write_snapshot(committed.directory, 3, _follow(committed.directory, 3).producers.states())
    assert sorted(_follow(committed.directory, 5, late).producers.batches()) == [8]


def test_follow_producers_when_the_log_starts_inside_then_batches_below_are_left_out(tmp_path: Path) -> None:
    """Deleted records leave no state."""
    log = write_transaction_log(tmp_path / "t-0", [[Data(2, 7), Data(2, 8), Data(2, 9)]])

    found = _follow(log.directory, log.log_end_offset, log_start_offset=3)

    assert sorted(found.producers.batches()) == [8, 9]
