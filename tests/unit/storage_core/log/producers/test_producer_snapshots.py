from pathlib import Path

import pytest

from sparklog.storage_core.checkpoint.producer_snapshot import ProducerState
from sparklog.storage_core.log.producers.snapshots import find_snapshot, list_snapshots, stray_snapshots
from tests.build.written_snapshot import write_snapshot

_STATE = ProducerState(
    producer_id=7,
    producer_epoch=0,
    last_sequence=1,
    last_offset=9,
    offset_delta=1,
    timestamp=5,
    coordinator_epoch=-1,
    current_txn_first_offset=-1,
)


def test_list_snapshots_when_other_files_lie_there_then_leaves_them_out(tmp_path: Path) -> None:
    """Only complete names count."""
    for name in ("00000000000000000010.snapshot", "00000000000000000002.snapshot", "5.snapshot"):
        (tmp_path / name).touch()
    for name in ("00000000000000000003.snapshot.deleted", "00000000000000000004.log", "x.snapshot"):
        (tmp_path / name).touch()

    assert list_snapshots(tmp_path) == [2, 10]


@pytest.mark.parametrize(
    ("after", "up_to", "expected"), [(0, 99, 30), (0, 29, 20), (20, 29, None), (10, 20, 20), (30, 99, None)]
)
def test_find_snapshot_takes_the_newest_behind_the_start_up_to_the_end(
    tmp_path: Path, after: int, up_to: int, expected: int | None
) -> None:
    """One at the log's start says nothing, one behind its end knows of batches that are gone."""
    for offset in (10, 20, 30):
        write_snapshot(tmp_path, offset, [_STATE])

    found = find_snapshot(tmp_path, after, up_to)

    assert (found.offset, found.damaged) == (expected, ())
    assert found.producers == (() if expected is None else (_STATE,))


@pytest.mark.parametrize("content", [b"", b"\x00\x02", b"\xff" * 148])
def test_find_snapshot_when_the_newest_is_damaged_then_takes_the_one_before(tmp_path: Path, content: bytes) -> None:
    """And says which a broker would delete."""
    write_snapshot(tmp_path, 10, [_STATE])
    write_snapshot(tmp_path, 20, [])
    for offset in (30, 40):
        (tmp_path / f"{offset:020d}.snapshot").write_bytes(content)

    found = find_snapshot(tmp_path, 0, 99)

    assert (found.offset, found.damaged) == (20, (40, 30))


@pytest.mark.parametrize(
    ("offsets", "bases", "gone"),
    [
        ([], [0, 10], []),
        ([10, 20, 25], [0, 10, 20], []),
        ([5, 10, 20, 25], [0, 10, 20], [5]),
        ([5, 15, 25, 28], [0, 10, 20], [5, 15, 25]),
        ([5, 15, 20], [0, 10, 20], [5, 15]),
        ([15], [0, 10, 20], [15]),
        ([5, 15], [], [5]),
    ],
)
def test_stray_snapshots_are_those_of_no_segment_but_the_newest(
    offsets: list[int], bases: list[int], gone: list[int]
) -> None:
    """The newest stays if it is that of the log's end, at or behind the last segment."""
    assert stray_snapshots(offsets, bases) == gone
