"""Cleaning of logs that were damaged in any way, with sound CRCs or without."""

import contextlib
from pathlib import Path
from random import Random

import pytest

from sparklog.storage_core.cleaner.keys.build_map import DirtyRange, build_map
from sparklog.storage_core.cleaner.keys.offset_map import OffsetMap
from sparklog.storage_core.cleaner.rewrite.clean_segments import CleanRequest, clean_segments
from sparklog.storage_core.cleaner.survey.cleaned_transactions import CleanedTransactions
from sparklog.storage_core.errors import LogStorageError
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.record.batch_decode import decode_batches
from sparklog.storage_core.record.batch_scan import check_crcs, scan_batches
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.fuzz.mutations import mutate, repair_crcs
from tests.fuzz.seeds import logs

_SEEDS = 12
_CASES = 60
_HASH_KEY = bytes(16)
_KEPT = ["offset", "timestamp", "key", "value", "headers"]


def _clean(files: SegmentFiles, end_offset: int, map_bytes: int) -> bytes | None:
    """Return what is left of a segment; None where it is refused."""
    with contextlib.suppress(LogStorageError):
        offset_map = OffsetMap(map_bytes, _HASH_KEY)
        dirty = DirtyRange(segments=[files], first_dirty_offset=0, first_uncleanable_offset=end_offset)
        build_map(dirty, offset_map, lambda: None)
        request = CleanRequest(now_ms=1_800_000_000_000, delete_retention_ms=0, cleaning_end_offset=end_offset)
        done = clean_segments([files], offset_map, CleanedTransactions(), request, UNSHARED)
        return done.paths[0].read_bytes()
    return None


@pytest.mark.parametrize("seed", range(_SEEDS))
def test_clean_segments_of_damaged_logs_refuses_or_leaves_a_part_of_them(seed: int, tmp_path: Path) -> None:
    """Whatever the bytes: the log is refused and no file stays, or what is left are records of it, in sound batches."""
    random, refused = Random(seed), 0
    for case in range(_CASES):
        directory = tmp_path / str(case)
        directory.mkdir()
        chosen = random.choice(logs())
        data = chosen.data
        if random.random() < 0.9:
            data = mutate(random, data, [each.data for each in logs()])[0]
        if random.random() < 0.8:
            data = repair_crcs(data)
        path = directory / segment_file_name(0, LOG)
        path.write_bytes(data)

        left = _clean(SegmentFiles(0, path), 2**31 - 1, random.choice((48, 1 << 12)))

        if left is None:
            refused += 1
            assert [each.name for each in directory.iterdir()] == [path.name]
            continue
        scan = scan_batches(left)
        assert scan.valid_bytes == len(left)
        assert not len(check_crcs(left, scan))
        before = decode_batches(data).select(_KEPT).to_pylist()
        by_offset = {each["offset"]: each for each in before}
        for record in decode_batches(left).select(_KEPT).to_pylist():
            assert record == by_offset[record["offset"]]
    assert 0 < refused < _CASES
