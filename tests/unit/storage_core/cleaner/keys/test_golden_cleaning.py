"""Our cleaning of a log that a broker cleaned, against what the broker left."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from sparklog.storage_core.checkpoint.producer_snapshot import parse_producer_snapshot
from sparklog.storage_core.cleaner.keys.build_map import DirtyRange, build_map
from sparklog.storage_core.cleaner.keys.offset_map import OffsetMap
from sparklog.storage_core.cleaner.rewrite.clean_segments import CleanedSegment, CleanRequest, clean_segments
from sparklog.storage_core.cleaner.survey.cleaned_transactions import CleanedTransactions
from sparklog.storage_core.log.files.segments import SegmentFiles, list_segments
from sparklog.storage_core.record.attributes import DELETE_HORIZON_BIT
from sparklog.storage_core.record.batch_decode import decode_batches
from sparklog.storage_core.record.batch_scan import scan_batches
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.golden import GoldenLog, golden_logs

_RETENTION_MS = 45_000


@dataclass(frozen=True)
class _Pass:
    """One pass of the broker.

    Attributes:
        before, after: names of the logs.
        first_dirty_offset: of the pass, and `end_offset`: the active segment's base then.
        now_ms: when the pass was.
    """

    before: str
    after: str
    first_dirty_offset: int
    end_offset: int
    now_ms: int


_PASSES = [
    _Pass("v2-compact-before", "v2-compact-after", 0, 195, 1_795_222_729_306 - _RETENTION_MS),
    _Pass("v2-compact-after", "v2-compact-after", 195, 195, 1_795_222_729_306 - 1),
]


def _log(name: str) -> GoldenLog:
    found: GoldenLog = golden_logs(name)[0].values[0]
    return found


def _clean(each: _Pass, folder: Path) -> tuple[CleanedSegment, list[SegmentFiles]]:
    directory = Path(shutil.copytree(_log(each.before).directory, folder / "log"))
    group = [files for files in list_segments(directory) if files.base_offset < each.end_offset]
    offset_map = OffsetMap(1 << 20, bytes(16))
    build_map(
        DirtyRange(
            segments=group, first_dirty_offset=each.first_dirty_offset, first_uncleanable_offset=each.end_offset
        ),
        offset_map,
        UNSHARED.check,
    )
    newest = max(directory.glob("*.snapshot"))
    request = CleanRequest(
        now_ms=each.now_ms,
        delete_retention_ms=_RETENTION_MS,
        cleaning_end_offset=each.end_offset,
        producers=parse_producer_snapshot(newest.read_bytes()),
        index_interval_bytes=300,
    )
    return clean_segments(group, offset_map, CleanedTransactions(), request, UNSHARED), group


@pytest.mark.parametrize("each", _PASSES)
def test_clean_segments_of_a_broker_log_gives_what_the_broker_left(each: _Pass, tmp_path: Path) -> None:
    """Every record and every header is as the broker left it; where no codec is at work, every byte is."""
    cleaned, _ = _clean(each, tmp_path)
    theirs = _log(each.after).directory / "00000000000000000000.log"
    our_bytes, their_bytes = cleaned.paths[0].read_bytes(), theirs.read_bytes()
    ours, wanted = scan_batches(our_bytes), scan_batches(their_bytes)

    for name in ("base_offset", "last_offset", "leader_epoch", "attributes", "base_timestamp", "max_timestamp"):
        assert getattr(ours, name).tolist() == getattr(wanted, name).tolist()
    for name in ("producer_id", "producer_epoch", "base_sequence", "records_count"):
        assert getattr(ours, name).tolist() == getattr(wanted, name).tolist()
    assert decode_batches(our_bytes).equals(decode_batches(their_bytes))
    assert (ours.attributes & DELETE_HORIZON_BIT).any()
    plain = [number for number in range(len(ours)) if not ours.attributes[number] & 7]
    assert plain
    for number in plain:
        first, end = int(ours.position[number]), int(ours.position[number] + ours.size[number])
        at = int(wanted.position[number])
        assert our_bytes[first:end] == their_bytes[at : at + end - first]


def test_clean_segments_of_a_broker_log_gives_the_broker_indexes(tmp_path: Path) -> None:
    """The indexes of a cleaned segment have the entries that a broker makes: one per batch that passes the interval."""
    cleaned, _ = _clean(_PASSES[0], tmp_path)
    theirs = _log("v2-compact-after").directory
    entry = np.dtype([("offset", ">i4"), ("position", ">i4")])
    ours, wanted = (
        np.frombuffer(path.read_bytes(), entry) for path in (cleaned.paths[1], theirs / "00000000000000000000.index")
    )

    assert ours["offset"].tolist() == wanted["offset"].tolist()
    assert cleaned.paths[2].read_bytes() == (theirs / "00000000000000000000.timeindex").read_bytes()


def test_clean_segments_when_nothing_goes_says_that_nothing_changed(tmp_path: Path) -> None:
    """A segment that keeps every byte is known as such, and written all the same."""
    cleaned, group = _clean(_PASSES[1], tmp_path)

    assert cleaned.is_unchanged
    assert cleaned.paths[0].read_bytes() == group[0].log_path.read_bytes()
